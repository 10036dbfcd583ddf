#include "backend/reference/reference_recurrent.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <vector>

#include "base/check.h"

namespace invar {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }
double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }

// [layer][slot][...]
class ReferenceStateCache : public StateCache {
 public:
  struct Layer {
    RecurrentLayerShape shape;
    std::vector<float> conv;   // [slot][conv_kernel - 1][conv_channels], oldest row first
    std::vector<float> state;  // [slot][head][key_dim][value_dim]

    size_t conv_size() const {
      return static_cast<size_t>(shape.conv_kernel - 1) * static_cast<size_t>(shape.conv_channels);
    }
    size_t head_size() const {
      return static_cast<size_t>(shape.key_dim) * static_cast<size_t>(shape.value_dim);
    }
    size_t state_size() const { return static_cast<size_t>(shape.num_heads) * head_size(); }
    float* conv_of(int slot) { return conv.data() + static_cast<size_t>(slot) * conv_size(); }
    float* head_of(int slot, int head) {
      return state.data() + static_cast<size_t>(slot) * state_size() +
             static_cast<size_t>(head) * head_size();
    }
  };
  std::vector<Layer> layers;

  static Layer& layer(StateCache& cache, int index) {
    return static_cast<ReferenceStateCache&>(cache).layers[static_cast<size_t>(index)];
  }
};

class ReferenceRecurrentOps : public RecurrentOps {
 public:
  explicit ReferenceRecurrentOps(ThreadPool& pool) : pool_(pool) {}

  Result<std::unique_ptr<StateCache>> make_state_cache(std::span<const RecurrentLayerShape> layers,
                                                       int num_slots) override {
    auto cache = std::make_unique<ReferenceStateCache>();
    cache->num_slots = num_slots;
    cache->num_bytes = state_slot_bytes(layers) * static_cast<size_t>(num_slots);
    try {
      for (const RecurrentLayerShape& shape : layers) {
        ReferenceStateCache::Layer layer{shape, {}, {}};
        layer.conv.resize(static_cast<size_t>(num_slots) * layer.conv_size());
        layer.state.resize(static_cast<size_t>(num_slots) * layer.state_size());
        cache->layers.push_back(std::move(layer));
      }
    } catch (const std::bad_alloc&) {
      return resource_exhausted("no memory for %zu bytes of recurrent states; ask for fewer",
                                cache->num_bytes);
    }
    return std::unique_ptr<StateCache>(std::move(cache));
  }

  size_t state_slot_bytes(std::span<const RecurrentLayerShape> layers) const override {
    size_t size = 0;
    for (const RecurrentLayerShape& shape : layers) {
      const ReferenceStateCache::Layer layer{shape, {}, {}};
      size += layer.conv_size() + layer.state_size();
    }
    return size * sizeof(float);
  }

  void copy_state(StateCache& cache, int from, int to) override {
    for (ReferenceStateCache::Layer& layer : static_cast<ReferenceStateCache&>(cache).layers) {
      std::copy_n(layer.conv_of(from), layer.conv_size(), layer.conv_of(to));
      std::copy_n(layer.head_of(from, 0), layer.state_size(), layer.head_of(to, 0));
    }
  }

  void short_conv(Tensor y, Tensor x, std::span<const float> weight, std::span<const float> bias,
                  std::span<const Window> windows, StateCache& cache, int index) override {
    ReferenceStateCache::Layer& layer = ReferenceStateCache::layer(cache, index);
    const int64_t num_channels = x.num_cols, num_kept = layer.shape.conv_kernel - 1;
    for (const Window& window : windows) {
      float* const kept = layer.conv_of(window.state_slot);
      if (window.start == 0) std::fill_n(kept, layer.conv_size(), 0.0f);
      // Row r of the window; before it, what was kept.
      const auto input = [&](int64_t r, int64_t c) {
        return r >= 0 ? x.at(window.first_row + r, c) : kept[(num_kept + r) * num_channels + c];
      };
      for (int64_t r = 0; r < window.num_rows; ++r) {
        for (int64_t c = 0; c < num_channels; ++c) {
          double sum = bias.empty() ? 0.0 : bias[static_cast<size_t>(c)];
          for (int64_t j = 0; j <= num_kept; ++j)
            sum += double{weight[static_cast<size_t>(j * num_channels + c)]} *
                   input(r - num_kept + j, c);
          y.at(window.first_row + r, c) = static_cast<float>(silu(sum));
        }
      }
      std::vector<float> next(layer.conv_size());
      for (int64_t j = 0; j < num_kept; ++j)
        for (int64_t c = 0; c < num_channels; ++c)
          next[static_cast<size_t>(j * num_channels + c)] =
              input(window.num_rows - num_kept + j, c);
      std::copy(next.begin(), next.end(), kept);
    }
  }

  void gated_delta(Tensor y, Tensor q, Tensor k, Tensor v, Tensor a, Tensor b,
                   std::span<const Window> windows, StateCache& cache,
                   const GatedDeltaArgs& args) override {
    ReferenceStateCache::Layer& layer = ReferenceStateCache::layer(cache, args.layer);
    const auto key_dim = static_cast<size_t>(args.key_dim);
    const auto value_dim = static_cast<size_t>(args.value_dim);
    const int heads_per_key = args.num_value_heads / args.num_key_heads;
    pool_.run(args.num_value_heads, [&](int64_t begin, int64_t end, int) {
      for (int head = static_cast<int>(begin); head < end; ++head) {
        const int key_head =
            args.order == HeadOrder::kGrouped ? head / heads_per_key : head % args.num_key_heads;
        const double decay = args.decay[static_cast<size_t>(head)];
        const double dt_bias = args.dt_bias[static_cast<size_t>(head)];
        for (const Window& window : windows) {
          float* const state = layer.head_of(window.state_slot, head);
          if (window.start == 0) std::fill_n(state, layer.head_size(), 0.0f);
          for (int64_t t = window.first_row; t < window.first_row + window.num_rows; ++t) {
            std::vector<double> query = unit(q.row(t) + int64_t{key_head} * args.key_dim, key_dim);
            const std::vector<double> key =
                unit(k.row(t) + int64_t{key_head} * args.key_dim, key_dim);
            for (double& value : query) value /= std::sqrt(static_cast<double>(key_dim));
            const double alpha = std::exp(decay * softplus(a.at(t, head) + dt_bias));
            const double beta = sigmoid(b.at(t, head));
            for (size_t j = 0; j < value_dim; ++j) {
              double recalled = 0;
              for (size_t i = 0; i < key_dim; ++i)
                recalled += alpha * state[i * value_dim + j] * key[i];
              const int64_t column = int64_t{head} * args.value_dim + static_cast<int64_t>(j);
              const double delta = beta * (v.at(t, column) - recalled);
              double out = 0;
              for (size_t i = 0; i < key_dim; ++i) {
                float& s = state[i * value_dim + j];
                s = static_cast<float>(alpha * s + key[i] * delta);
                out += double{s} * query[i];
              }
              y.at(t, column) = static_cast<float>(out);
            }
          }
        }
      }
    });
  }

  void ssd(Tensor y, Tensor x, Tensor b, Tensor c, Tensor dt, std::span<const Window> windows,
           StateCache& cache, const SsdArgs& args) override {
    ReferenceStateCache::Layer& layer = ReferenceStateCache::layer(cache, args.layer);
    pool_.run(args.num_heads, [&](int64_t begin, int64_t end, int) {
      for (int head = static_cast<int>(begin); head < end; ++head) {
        const int group = head / (args.num_heads / args.num_groups);
        for (const Window& window : windows) {
          float* const state = layer.head_of(window.state_slot, head);
          if (window.start == 0) std::fill_n(state, layer.head_size(), 0.0f);
          for (int64_t t = window.first_row; t < window.first_row + window.num_rows; ++t) {
            const float* const b_row = b.row(t) + int64_t{group} * args.state_size;
            const float* const c_row = c.row(t) + int64_t{group} * args.state_size;
            double step =
                softplus(dt.at(t, head) + double{args.dt_bias[static_cast<size_t>(head)]});
            if (args.dt_max > 0) step = std::clamp(step, double{args.dt_min}, double{args.dt_max});
            const double alpha = std::exp(step * args.decay[static_cast<size_t>(head)]);
            for (int j = 0; j < args.head_dim; ++j) {
              const int64_t column = int64_t{head} * args.head_dim + j;
              const double input = x.at(t, column);
              double out = 0;
              for (int i = 0; i < args.state_size; ++i) {
                float& s = state[int64_t{i} * args.head_dim + j];
                s = static_cast<float>(alpha * s + b_row[i] * (step * input));
                out += double{s} * c_row[i];
              }
              y.at(t, column) =
                  static_cast<float>(out + args.skip[static_cast<size_t>(head)] * input);
            }
          }
        }
      }
    });
  }

  void gated_norm(Tensor y, Tensor x, Tensor z, std::span<const float> weight,
                  const GatedNormArgs& args) override {
    for (int64_t t = 0; t < x.num_rows; ++t) {
      for (int64_t first = 0; first < x.num_cols; first += args.group_size) {
        std::vector<double> values(static_cast<size_t>(args.group_size));
        double sum_sq = 0;
        for (int i = 0; i < args.group_size; ++i) {
          double value = x.at(t, first + i);
          if (args.order == GateOrder::kGateThenNorm) value *= gate(z.at(t, first + i), args);
          values[static_cast<size_t>(i)] = value;
          sum_sq += value * value;
        }
        const double scale = 1.0 / std::sqrt(sum_sq / args.group_size + double{args.eps});
        for (int i = 0; i < args.group_size; ++i) {
          const auto at = static_cast<size_t>(first + i) % weight.size();
          double value = values[static_cast<size_t>(i)] * scale * weight[at];
          if (args.order == GateOrder::kNormThenGate) value *= gate(z.at(t, first + i), args);
          y.at(t, first + i) = static_cast<float>(value);
        }
      }
    }
  }

  void sigmoid_gate(Tensor x, Tensor gate) override {
    for (int64_t t = 0; t < x.num_rows; ++t)
      for (int64_t i = 0; i < x.num_cols; ++i)
        x.at(t, i) = static_cast<float>(x.at(t, i) * sigmoid(gate.at(t, i)));
  }

  void relu2(Tensor x) override {
    for (int64_t t = 0; t < x.num_rows; ++t)
      for (int64_t i = 0; i < x.num_cols; ++i) {
        const float positive = std::max(x.at(t, i), 0.0f);
        x.at(t, i) = positive * positive;
      }
  }

 private:
  static double gate(double z, const GatedNormArgs& args) {
    return args.sigmoid ? sigmoid(z) : silu(z);
  }

  // x / sqrt(sum x^2 + 1e-6)
  static std::vector<double> unit(const float* x, size_t count) {
    double sum_sq = 0;
    for (size_t i = 0; i < count; ++i) sum_sq += double{x[i]} * x[i];
    std::vector<double> out(count);
    for (size_t i = 0; i < count; ++i) out[i] = x[i] / std::sqrt(sum_sq + 1e-6);
    return out;
  }

  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<RecurrentOps> make_reference_recurrent_ops(ThreadPool& pool) {
  return std::make_unique<ReferenceRecurrentOps>(pool);
}

}  // namespace invar
