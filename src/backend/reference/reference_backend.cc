// The reference backend: every kernel in its obvious form, on the file's own weights, with sums in
// double. It is the oracle of the other backends and the start of a new one; speed is no concern,
// save that linear() reads a weight row once for all activation rows. Threads split outputs only.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "backend/backend.h"
#include "backend/reference/reference_moe.h"
#include "backend/reference/reference_recurrent.h"
#include "backend/reference/reference_weight.h"
#include "base/check.h"
#include "base/threads.h"

namespace invar {
namespace {

// keys and values as fp32, [layer][page][kv head][position][dim].
class ReferenceKvCache : public KvCache {
 public:
  struct Layer {
    KvLayerShape shape;
    std::vector<float> keys, values;
  };
  std::vector<Layer> layers;

  static size_t index(const KvLayerShape& shape, std::span<const int32_t> pages, int64_t position,
                      int kv_head) {
    const auto page = static_cast<size_t>(pages[static_cast<size_t>(position / kPagePositions)]);
    const auto at = static_cast<size_t>(position % kPagePositions);
    const auto heads = static_cast<size_t>(shape.num_kv_heads);
    return ((page * heads + static_cast<size_t>(kv_head)) * kPagePositions + at) *
           static_cast<size_t>(shape.head_dim);
  }
};

class ReferenceBackend : public Backend {
 public:
  explicit ReferenceBackend(const BackendOptions& options)
      : pool_(options.num_threads > 0 ? options.num_threads : default_num_threads()) {
    info_.name = "reference";
    info_.arithmetic_id = "reference-1";
    info_.isa = "portable";
    info_.why = "scalar oracle, sums in double; slow on purpose";
    info_.num_threads = pool_.num_threads();
  }

  const BackendInfo& info() const override { return info_; }
  RecurrentOps* recurrent_ops() override { return recurrent_ops_.get(); }
  MoeOps* moe_ops() override { return moe_ops_.get(); }

  Result<std::unique_ptr<PackedWeight>> pack(const PackRequest& request) override {
    return copy_weight(request);
  }

  Result<std::unique_ptr<KvCache>> make_kv_cache(std::span<const KvLayerShape> layers,
                                                 int num_pages) override {
    auto cache = std::make_unique<ReferenceKvCache>();
    cache->num_pages = num_pages;
    cache->num_bytes = kv_page_bytes(layers) * static_cast<size_t>(num_pages);
    try {
      for (const KvLayerShape& shape : layers) {
        const size_t size = static_cast<size_t>(num_pages) * kPagePositions *
                            static_cast<size_t>(shape.num_kv_heads * shape.head_dim);
        cache->layers.push_back({shape, std::vector<float>(size), std::vector<float>(size)});
      }
    } catch (const std::bad_alloc&) {
      return resource_exhausted(
          "no memory for %zu bytes of keys and values; ask for a smaller context",
          cache->num_bytes);
    }
    return std::unique_ptr<KvCache>(std::move(cache));
  }

  size_t kv_page_bytes(std::span<const KvLayerShape> layers) const override {
    size_t bytes = 0;
    for (const KvLayerShape& shape : layers)
      bytes += 2 * sizeof(float) * kPagePositions *
               static_cast<size_t>(shape.num_kv_heads * shape.head_dim);
    return bytes;
  }

  void copy_page(KvCache& cache, int from, int to) override {
    for (auto& layer : static_cast<ReferenceKvCache&>(cache).layers) {
      const auto size =
          static_cast<ptrdiff_t>(kPagePositions) * layer.shape.num_kv_heads * layer.shape.head_dim;
      for (std::vector<float>* side : {&layer.keys, &layer.values})
        std::copy_n(side->begin() + from * size, size, side->begin() + to * size);
    }
  }

  void embed(Tensor y, std::span<const int32_t> ids, const PackedWeight& table,
             float scale) override {
    const auto& weight = static_cast<const ReferenceWeight&>(table);
    for (int64_t t = 0; t < y.num_rows; ++t) {
      weight.row(ids[static_cast<size_t>(t)], y.row(t));
      for (int64_t i = 0; i < y.num_cols; ++i) y.at(t, i) *= scale;
    }
  }

  void rms_norm(Tensor y, Tensor x, std::span<const float> weight, float eps,
                Tensor residual) override {
    for (int64_t t = 0; t < x.num_rows; ++t) {
      const double scale = inverse_rms(x.row(t), x.num_cols, eps);
      for (int64_t i = 0; i < x.num_cols; ++i) {
        double value = x.at(t, i) * scale * weight[static_cast<size_t>(i)];
        if (residual.data != nullptr) value += residual.at(t, i);
        y.at(t, i) = static_cast<float>(value);
      }
    }
  }

  void head_rms_norm(Tensor x, int head_dim, std::span<const float> weight, float eps) override {
    for (int64_t t = 0; t < x.num_rows; ++t) {
      for (int64_t first = 0; first < x.num_cols; first += head_dim) {
        float* head = x.row(t) + first;
        const double scale = inverse_rms(head, head_dim, eps);
        for (int i = 0; i < head_dim; ++i)
          head[i] = static_cast<float>(head[i] * scale * weight[static_cast<size_t>(i)]);
      }
    }
  }

  void linear(Tensor y, Tensor x, const PackedWeight& w, std::span<const float> bias,
              Tensor residual) override {
    const auto& weight = static_cast<const ReferenceWeight&>(w);
    const std::vector<double> tiles = tiled(x);
    pool_.run(w.num_rows, [&](int64_t begin, int64_t end, int) {
      std::vector<float> row(static_cast<size_t>(w.num_cols));
      std::vector<double> sums(static_cast<size_t>(x.num_rows));
      for (int64_t n = begin; n < end; ++n) {
        weight.row(n, row.data());
        dot_rows(row, tiles, sums);
        for (int64_t t = 0; t < x.num_rows; ++t) {
          double value = sums[static_cast<size_t>(t)];
          if (!bias.empty()) value += bias[static_cast<size_t>(n)];
          if (residual.data != nullptr) value += residual.at(t, n);
          y.at(t, n) = static_cast<float>(value);
        }
      }
    });
  }

  void gated_linear(Tensor y, Tensor x, const PackedWeight& w, Activation activation) override {
    const auto& weight = static_cast<const ReferenceWeight&>(w);
    const std::vector<double> tiles = tiled(x);
    pool_.run(w.num_rows, [&](int64_t begin, int64_t end, int) {
      std::vector<float> row(static_cast<size_t>(w.num_cols));
      std::vector<double> gate(static_cast<size_t>(x.num_rows)), up(gate.size());
      for (int64_t n = begin; n < end; ++n) {
        weight.row(n, row.data());
        dot_rows(row, tiles, gate);
        weight.row(w.num_rows + n, row.data());
        dot_rows(row, tiles, up);
        for (size_t t = 0; t < gate.size(); ++t)
          y.at(static_cast<int64_t>(t), n) =
              static_cast<float>(activate(gate[t], activation) * up[t]);
      }
    });
  }

  void rope(Tensor x, int head_dim, std::span<const int32_t> positions,
            const RopeSpec& spec) override {
    const auto half = static_cast<int64_t>(spec.inv_freq.size());
    for (int64_t t = 0; t < x.num_rows; ++t) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle =
            positions[static_cast<size_t>(t)] * spec.inv_freq[static_cast<size_t>(i)];
        const double c = std::cos(angle) * spec.magnitude, s = std::sin(angle) * spec.magnitude;
        for (int64_t first = 0; first < x.num_cols; first += head_dim) {
          float& a = x.at(t, first + i);
          float& b = x.at(t, first + i + half);
          const double a0 = a, b0 = b;
          a = static_cast<float>(a0 * c - b0 * s);
          b = static_cast<float>(b0 * c + a0 * s);
        }
      }
    }
  }

  void attention(Tensor y, Tensor q, Tensor k, Tensor v, std::span<const Window> windows,
                 KvCache& cache, const AttentionArgs& args) override {
    auto& layer = static_cast<ReferenceKvCache&>(cache).layers[static_cast<size_t>(args.layer)];
    const auto row_bytes = sizeof(float) * static_cast<size_t>(args.head_dim);
    for (const Window& window : windows) {
      for (int64_t r = 0; r < window.num_rows; ++r) {
        for (int h = 0; h < args.num_kv_heads; ++h) {
          const size_t to = ReferenceKvCache::index(layer.shape, window.pages, window.start + r, h);
          const int64_t from = int64_t{h} * args.head_dim;
          std::memcpy(&layer.keys[to], k.row(window.first_row + r) + from, row_bytes);
          std::memcpy(&layer.values[to], v.row(window.first_row + r) + from, row_bytes);
        }
      }
      pool_.run(window.num_rows, [&](int64_t begin, int64_t end, int) {
        for (int64_t r = begin; r < end; ++r)
          for (int h = 0; h < args.num_heads; ++h)
            attend(y.row(window.first_row + r) + int64_t{h} * args.head_dim,
                   q.row(window.first_row + r) + int64_t{h} * args.head_dim, layer, window,
                   window.start + r, h / (args.num_heads / args.num_kv_heads), args);
      });
    }
  }

  void gather_rows(Tensor y, Tensor x, std::span<const int32_t> rows) override {
    for (size_t i = 0; i < rows.size(); ++i)
      std::memcpy(y.row(static_cast<int64_t>(i)), x.row(rows[i]),
                  sizeof(float) * static_cast<size_t>(x.num_cols));
  }

  void lm_head(Tensor logits, Tensor x, const PackedWeight& w, float softcap) override {
    linear(logits, x, w, {}, Tensor{});
    if (softcap <= 0) return;
    for (int64_t t = 0; t < logits.num_rows; ++t)
      for (int64_t n = 0; n < logits.num_cols; ++n)
        logits.at(t, n) =
            static_cast<float>(softcap * std::tanh(double{logits.at(t, n)} / softcap));
  }

 private:
  static double inverse_rms(const float* x, int64_t count, float eps) {
    double sum_sq = 0;
    for (int64_t i = 0; i < count; ++i) sum_sq += double{x[i]} * x[i];
    return 1.0 / std::sqrt(sum_sq / static_cast<double>(count) + eps);
  }

  // x as doubles in tiles of 8 rows, [tile][num_cols][8], the last one padded with zeros:
  // dot_rows() then goes over a weight row once a tile, with one sum a row of x.
  static constexpr size_t kTileRows = 8;
  static std::vector<double> tiled(Tensor x) {
    const auto num_cols = static_cast<size_t>(x.num_cols);
    const size_t num_tiles = (static_cast<size_t>(x.num_rows) + kTileRows - 1) / kTileRows;
    std::vector<double> tiles(num_tiles * num_cols * kTileRows, 0.0);
    for (int64_t t = 0; t < x.num_rows; ++t) {
      const size_t tile = static_cast<size_t>(t) / kTileRows,
                   slot = static_cast<size_t>(t) % kTileRows;
      for (size_t i = 0; i < num_cols; ++i)
        tiles[(tile * num_cols + i) * kTileRows + slot] = x.at(t, static_cast<int64_t>(i));
    }
    return tiles;
  }

  // sums[t] = sum over i ascending of row[i] * x[t][i]
  static void dot_rows(const std::vector<float>& row, const std::vector<double>& tiles,
                       std::vector<double>& sums) {
    const size_t num_cols = row.size();
    for (size_t first = 0; first < sums.size(); first += kTileRows) {
      const double* tile = &tiles[first * num_cols];
      double tile_sums[kTileRows] = {};
      for (size_t i = 0; i < num_cols; ++i)
        for (size_t slot = 0; slot < kTileRows; ++slot)
          tile_sums[slot] += double{row[i]} * tile[i * kTileRows + slot];
      std::copy_n(tile_sums, std::min(kTileRows, sums.size() - first), &sums[first]);
    }
  }

  // One query head at `position` over the keys it may see.
  static void attend(float* y, const float* q, const ReferenceKvCache::Layer& layer,
                     const Window& window, int64_t position, int kv_head,
                     const AttentionArgs& args) {
    const int64_t first =
        args.sliding_window > 0 ? std::max<int64_t>(0, position - args.sliding_window + 1) : 0;
    const auto num_keys = static_cast<size_t>(position - first + 1);
    std::vector<double> scores(num_keys);
    double max_score = -INFINITY;
    for (size_t j = 0; j < num_keys; ++j) {
      const float* key = &layer.keys[ReferenceKvCache::index(
          layer.shape, window.pages, first + static_cast<int64_t>(j), kv_head)];
      double score = 0;
      for (int i = 0; i < args.head_dim; ++i) score += double{q[i]} * key[i];
      score *= args.scale;
      if (args.softcap > 0) score = args.softcap * std::tanh(score / args.softcap);
      scores[j] = score;
      max_score = std::max(max_score, score);
    }
    double sum = 0;
    std::vector<double> out(static_cast<size_t>(args.head_dim), 0.0);
    for (size_t j = 0; j < num_keys; ++j) {
      const double p = std::exp(scores[j] - max_score);
      const float* value = &layer.values[ReferenceKvCache::index(
          layer.shape, window.pages, first + static_cast<int64_t>(j), kv_head)];
      sum += p;
      for (int i = 0; i < args.head_dim; ++i) out[static_cast<size_t>(i)] += p * value[i];
    }
    for (int i = 0; i < args.head_dim; ++i)
      y[i] = static_cast<float>(out[static_cast<size_t>(i)] / sum);
  }

  ThreadPool pool_;
  BackendInfo info_;
  std::unique_ptr<RecurrentOps> recurrent_ops_ = make_reference_recurrent_ops(pool_);
  std::unique_ptr<MoeOps> moe_ops_ = make_reference_moe_ops(pool_);
};

}  // namespace

Result<std::unique_ptr<Backend>> make_reference_backend(const BackendOptions& options) {
  return std::unique_ptr<Backend>(std::make_unique<ReferenceBackend>(options));
}

}  // namespace invar
