// Units: for the states a head of a window, for the convolution some channels of a window. A unit
// reads and writes its own part of the slot only and goes through its rows in order.
#include "backend/cpu/recurrent.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "backend/cpu/recurrent_kernels.h"
#include "backend/cpu/row_phase.h"
#include "backend/cpu/simd_kernels.h"
#include "backend/cpu/state_cache.h"
#include "base/check.h"

namespace invar::cpu {
namespace {

// Rows whose keys and queries are scaled ahead of a head's pass over them: 32 KiB at 128 keys.
constexpr int64_t kChunkRows = 32;
// How far ahead of scaling they are asked for: rows are a page or more apart.
constexpr int64_t kRowsAhead = 4;
// Channels of a unit of the convolution.
constexpr int64_t kConvChannels = 512;
// A value of a convolution takes about as long as four of kMinSharedValues.
constexpr int64_t kMinSharedConv = kMinSharedValues / 4;

int64_t num_rows_of(std::span<const Window> windows) {
  int64_t count = 0;
  for (const Window& window : windows) count += window.num_rows;
  return count;
}

void prefetch(const float* values, int64_t count) {
  for (int64_t i = 0; i < count; i += 16) __builtin_prefetch(values + i);
}

class CpuRecurrentOps final : public RecurrentOps {
 public:
  CpuRecurrentOps(ThreadPool& pool, Isa isa) : pool_(pool), kernels_(simd_kernels(isa).recurrent) {}

  Result<std::unique_ptr<StateCache>> make_state_cache(std::span<const RecurrentLayerShape> layers,
                                                       int num_slots) override {
    return CpuStateCache::make(layers, num_slots);
  }
  size_t state_slot_bytes(std::span<const RecurrentLayerShape> layers) const override {
    return cpu::state_slot_bytes(layers);
  }

  void copy_state(StateCache& cache, int from, int to) override {
    auto& states = static_cast<CpuStateCache&>(cache);
    const std::span<const uint8_t> source = states.slot_bytes(from);
    uint8_t* const target = states.slot_bytes(to).data();
    if (from == to) return;
    constexpr size_t kPiece = size_t{256} << 10;
    const auto num_pieces = static_cast<int64_t>((source.size() + kPiece - 1) / kPiece);
    const auto copy = [&](int64_t begin, int64_t end, int) {
      const size_t first = static_cast<size_t>(begin) * kPiece;
      const size_t last = std::min(static_cast<size_t>(end) * kPiece, source.size());
      std::memcpy(target + first, source.data() + first, last - first);
    };
    run(num_pieces, num_pieces > 1, copy);
  }

  void short_conv(Tensor y, Tensor x, std::span<const float> weight, std::span<const float> bias,
                  std::span<const Window> windows, StateCache& cache, int layer) override {
    auto& states = static_cast<CpuStateCache&>(cache);
    const RecurrentLayerShape& shape = states.layer_shape(layer);
    INVAR_CHECK(shape.conv_channels == x.num_cols &&
                    static_cast<int64_t>(weight.size()) == shape.conv_kernel * x.num_cols,
                "layer %d keeps %d channels, %d taps; short_conv has %ld, %zu weights", layer,
                shape.conv_channels, shape.conv_kernel, long{x.num_cols}, weight.size());
    const int64_t num_blocks = (x.num_cols + kConvChannels - 1) / kConvChannels;
    const auto convolve = [&](int64_t begin, int64_t end, int) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const Window& window = windows[static_cast<size_t>(unit / num_blocks)];
        const int64_t first = unit % num_blocks * kConvChannels;
        const int64_t count = std::min(kConvChannels, x.num_cols - first);
        convolve_channels(y.cols(first, count), x.cols(first, count), weight.data() + first,
                          bias.empty() ? nullptr : bias.data() + first, window,
                          states.kept(window.state_slot, layer) + first, shape);
      }
    };
    run(static_cast<int64_t>(windows.size()) * num_blocks,
        num_rows_of(windows) * x.num_cols >= kMinSharedConv, convolve);
  }

  void gated_delta(Tensor y, Tensor q, Tensor k, Tensor v, Tensor a, Tensor b,
                   std::span<const Window> windows, StateCache& cache,
                   const GatedDeltaArgs& args) override {
    const int64_t key_stride = padded_columns(args.key_dim);
    const int heads_per_key = args.num_value_heads / args.num_key_heads;
    const float query_scale = 1.0f / std::sqrt(static_cast<float>(args.key_dim));
    const int64_t chunk = std::min(kChunkRows, longest(windows));
    const auto thread_floats = static_cast<size_t>(2 * chunk * key_stride);
    const size_t num_threads = static_cast<size_t>(pool_.num_threads());
    if (scratch_.size() < thread_floats * num_threads) scratch_.resize(thread_floats * num_threads);

    const auto rows_of = [&](StateRows& rows, int64_t row, int head, int thread) {
      const int key_head =
          args.order == HeadOrder::kGrouped ? head / heads_per_key : head % args.num_key_heads;
      const int64_t column = int64_t{key_head} * args.key_dim;
      float* const keys = scratch_.data() + static_cast<size_t>(thread) * thread_floats;
      float* const queries = keys + chunk * key_stride;
      for (int64_t t = 0; t < rows.num_rows; ++t) {
        if (const int64_t ahead = t + kRowsAhead; ahead < rows.num_rows) {
          prefetch(k.row(row + ahead) + column, args.key_dim);
          prefetch(q.row(row + ahead) + column, args.key_dim);
        }
        kernels_.unit(keys + t * key_stride, k.row(row + t) + column, args.key_dim, 1.0f);
        kernels_.unit(queries + t * key_stride, q.row(row + t) + column, args.key_dim, query_scale);
      }
      rows.key = keys;
      rows.query = queries;
      rows.key_stride = rows.query_stride = key_stride;
      rows.value = v.row(row) + int64_t{head} * args.value_dim;
      rows.value_stride = v.row_stride;
      rows.out = y.row(row) + int64_t{head} * args.value_dim;
      rows.out_stride = y.row_stride;
    };
    const auto compute = [&](const StateRows& rows, StateGates& gates, int64_t row, int head) {
      float step[kChunkRows], beta[kChunkRows];
      for (int64_t t = 0; t < rows.num_rows; ++t) {
        step[t] = a.at(row + t, head);
        beta[t] = b.at(row + t, head);
      }
      gates.step = step;
      gates.beta = beta;
      gates.decay = args.decay[static_cast<size_t>(head)];
      gates.dt_bias = args.dt_bias[static_cast<size_t>(head)];
      kernels_.delta_gates(gates);
      kernels_.gated_delta(rows);
    };
    const RecurrentLayerShape shape{
        .num_heads = args.num_value_heads, .key_dim = args.key_dim, .value_dim = args.value_dim};
    for_heads(windows, static_cast<CpuStateCache&>(cache), args.layer, shape, rows_of, compute);
  }

  void ssd(Tensor y, Tensor x, Tensor b, Tensor c, Tensor dt, std::span<const Window> windows,
           StateCache& cache, const SsdArgs& args) override {
    const int heads_per_group = args.num_heads / args.num_groups;
    const auto rows_of = [&](StateRows& rows, int64_t row, int head, int) {
      const int64_t group = int64_t{head / heads_per_group} * args.state_size;
      rows.key = b.row(row) + group;
      rows.key_stride = b.row_stride;
      rows.query = c.row(row) + group;
      rows.query_stride = c.row_stride;
      rows.value = x.row(row) + int64_t{head} * args.head_dim;
      rows.value_stride = x.row_stride;
      rows.out = y.row(row) + int64_t{head} * args.head_dim;
      rows.out_stride = y.row_stride;
      rows.skip = args.skip[static_cast<size_t>(head)];
    };
    const auto compute = [&](const StateRows& rows, StateGates& gates, int64_t row, int head) {
      float step[kChunkRows];
      for (int64_t t = 0; t < rows.num_rows; ++t) step[t] = dt.at(row + t, head);
      gates.step = step;
      gates.decay = args.decay[static_cast<size_t>(head)];
      gates.dt_bias = args.dt_bias[static_cast<size_t>(head)];
      gates.dt_min = args.dt_min;
      gates.dt_max = args.dt_max;
      kernels_.ssd_gates(gates);
      kernels_.ssd(rows);
    };
    const RecurrentLayerShape shape{
        .num_heads = args.num_heads, .key_dim = args.state_size, .value_dim = args.head_dim};
    for_heads(windows, static_cast<CpuStateCache&>(cache), args.layer, shape, rows_of, compute);
  }

  void gated_norm(Tensor y, Tensor x, Tensor z, std::span<const float> weight,
                  const GatedNormArgs& args) override {
    const auto weight_size = static_cast<int64_t>(weight.size());
    for_rows(pool_, x.num_rows, x.num_cols, [&](int64_t t) {
      GatedNormGroup group;
      group.count = args.group_size;
      group.eps = args.eps;
      group.gate_first = args.order == GateOrder::kGateThenNorm;
      group.sigmoid = args.sigmoid;
      for (int64_t first = 0; first < x.num_cols; first += args.group_size) {
        group.y = y.row(t) + first;
        group.x = x.row(t) + first;
        group.z = z.row(t) + first;
        group.weight = weight.data() + first % weight_size;
        kernels_.gated_norm(group);
      }
    });
  }

  void sigmoid_gate(Tensor x, Tensor gate) override {
    for_rows(pool_, x.num_rows, x.num_cols,
             [&](int64_t t) { kernels_.sigmoid_gate(x.row(t), gate.row(t), x.num_cols); });
  }

  void relu2(Tensor x) override {
    for_rows(pool_, x.num_rows, x.num_cols,
             [&](int64_t t) { kernels_.relu2(x.row(t), x.num_cols); });
  }

 private:
  static int64_t longest(std::span<const Window> windows) {
    int64_t rows = 0;
    for (const Window& window : windows) rows = std::max(rows, window.num_rows);
    return rows;
  }

  template <typename F>
  void run(int64_t num_units, bool shared, const F& body) {
    if (shared && pool_.num_threads() > 1) {
      pool_.run(num_units, body);
    } else if (num_units > 0) {
      body(0, num_units, 0);
    }
  }

  // `x`, `y`, `kept` and the weights begin at the unit's first channel.
  void convolve_channels(Tensor y, Tensor x, const float* weight, const float* bias,
                         const Window& window, float* kept, const RecurrentLayerShape& shape) {
    const int64_t stride = shape.conv_channels, num_kept = shape.conv_kernel - 1;
    const size_t row_bytes = static_cast<size_t>(x.num_cols) * sizeof(float);
    if (window.start == 0)
      for (int64_t j = 0; j < num_kept; ++j) std::memset(kept + j * stride, 0, row_bytes);
    // Row r of the window; before it, what was kept.
    const auto input = [&](int64_t r) {
      return r >= 0 ? x.row(window.first_row + r) : kept + (num_kept + r) * stride;
    };
    constexpr int kMaxTaps = 16;
    INVAR_CHECK(shape.conv_kernel >= 1 && shape.conv_kernel <= kMaxTaps, "%d taps; 1 to %d",
                shape.conv_kernel, kMaxTaps);
    const float* taps[kMaxTaps];
    for (int64_t r = 0; r < window.num_rows; ++r) {
      for (int64_t j = 0; j <= num_kept; ++j) taps[j] = input(r - num_kept + j);
      kernels_.short_conv(y.row(window.first_row + r), taps, shape.conv_kernel, weight, stride,
                          bias, x.num_cols);
    }
    // Oldest first: a row that stays moves to a place that has been read.
    for (int64_t j = 0; j < num_kept; ++j)
      if (const float* from = input(window.num_rows - num_kept + j); from != kept + j * stride)
        std::memcpy(kept + j * stride, from, row_bytes);
  }

  // For each head and window, in chunks of rows: rows_of(rows, first_row, head, thread) names the
  // inputs of rows.num_rows rows, then compute(rows, gates, first_row, head) runs the kernels.
  template <typename RowsOf, typename Compute>
  void for_heads(std::span<const Window> windows, CpuStateCache& states, int layer,
                 const RecurrentLayerShape& want, const RowsOf& rows_of, const Compute& compute) {
    const RecurrentLayerShape& shape = states.layer_shape(layer);
    INVAR_CHECK(shape.num_heads == want.num_heads && shape.key_dim == want.key_dim &&
                    shape.value_dim == want.value_dim,
                "layer %d holds %d x %d x %d, the op has %d x %d x %d", layer, shape.num_heads,
                shape.key_dim, shape.value_dim, want.num_heads, want.key_dim, want.value_dim);
    const auto num_windows = static_cast<int64_t>(windows.size());
    const auto state_of = [&](int64_t unit) {
      return states.head(windows[static_cast<size_t>(unit % num_windows)].state_slot, layer,
                         static_cast<int>(unit / num_windows));
    };
    // Head by head, so that threads have equal shares however long the windows are.
    const auto go = [&](int64_t begin, int64_t end, int thread) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const Window& window = windows[static_cast<size_t>(unit % num_windows)];
        const int head = static_cast<int>(unit / num_windows);
        StateRows rows;
        rows.state = state_of(unit);
        rows.key_dim = shape.key_dim;
        rows.value_dim = shape.value_dim;
        if (window.start == 0)
          std::memset(rows.state, 0, CpuStateCache::head_floats(shape) * sizeof(float));
        for (int64_t row = 0; row < window.num_rows; row += kChunkRows) {
          float keep[kChunkRows], gain[kChunkRows];
          rows.num_rows = std::min(kChunkRows, window.num_rows - row);
          rows.keep = keep;
          rows.gain = gain;
          if (row + kChunkRows >= window.num_rows && unit + 1 < end) rows.next = state_of(unit + 1);
          StateGates gates;
          gates.keep = keep;
          gates.gain = gain;
          gates.num_rows = rows.num_rows;
          rows_of(rows, window.first_row + row, head, thread);
          compute(rows, gates, window.first_row + row, head);
        }
      }
    };
    const int64_t values = num_rows_of(windows) * shape.num_heads * shape.key_dim * shape.value_dim;
    run(num_windows * shape.num_heads, values >= kMinSharedValues, go);
  }

  ThreadPool& pool_;
  const RecurrentKernels& kernels_;
  std::vector<float> scratch_;  // [thread][keys, queries][kChunkRows][key_dim padded]
};

}  // namespace

std::unique_ptr<RecurrentOps> make_recurrent_ops(ThreadPool& pool, Isa isa) {
  return std::make_unique<CpuRecurrentOps>(pool, isa);
}

}  // namespace invar::cpu
