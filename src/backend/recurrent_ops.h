// RecurrentOps: what a backend offers beside Backend for layers that keep a state of fixed size in
// place of keys and values: the short convolution, Gated DeltaNet, Mamba2's state space, and the
// gates around them. Callers are ops/, which checks shapes; reference/ is the obvious form.
//
// One recurrence for prompts, replies and whatever else a window is: a row's state comes from the
// row before it, in order, in fp32, by the same operations. How a sequence is cut into windows and
// what runs beside it must not change a bit.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "backend/backend.h"

namespace invar {

// What one recurrent layer keeps of a sequence.
struct RecurrentLayerShape {
  // The last conv_kernel - 1 rows that short_conv() was given.
  int conv_channels = 0;
  int conv_kernel = 0;
  // The state of gated_delta() or ssd(): [num_heads][key_dim][value_dim], fp32.
  int num_heads = 0;
  int key_dim = 0;    // ssd: state_size
  int value_dim = 0;  // ssd: head_dim

  bool operator==(const RecurrentLayerShape&) const = default;
};

// Slots, each with the states of all recurrent layers at one position of one sequence. A sequence
// that runs has a slot of its own, which its windows name; others hold copies for later.
class StateCache {
 public:
  virtual ~StateCache() = default;
  int num_slots = 0;
  size_t num_bytes = 0;
};

// Which key head a value head meets.
enum class HeadOrder {
  kGrouped,  // value head h, key head h / (num_value_heads / num_key_heads): Hugging Face
  kTiled     // value head h, key head h % num_key_heads: GGUF files of qwen35 and qwen35moe
};

struct GatedDeltaArgs {
  int layer = 0;  // index into the StateCache
  int num_key_heads = 0, num_value_heads = 0;
  int key_dim = 0, value_dim = 0;
  HeadOrder order = HeadOrder::kGrouped;
  std::span<const float> decay;    // [num_value_heads], -exp(A_log): negative
  std::span<const float> dt_bias;  // [num_value_heads]
};

struct SsdArgs {
  int layer = 0;
  int num_heads = 0, head_dim = 0;
  int num_groups = 0,
      state_size = 0;              // heads h of group h / (num_heads / num_groups) share B and C
  std::span<const float> decay;    // [num_heads], -exp(A_log): negative
  std::span<const float> dt_bias;  // [num_heads]
  std::span<const float> skip;     // [num_heads], D
  float dt_min = 0, dt_max = 0;    // dt is clamped to them; dt_max 0: it is not
};

enum class GateOrder {
  kNormThenGate,  // norm(x) * weight * act(z): Gated DeltaNet
  kGateThenNorm   // norm(x * act(z)) * weight: Mamba2
};

struct GatedNormArgs {
  int group_size = 0;  // the mean of squares is taken over so many neighbours; divides num_cols
  float eps = 0;
  GateOrder order = GateOrder::kNormThenGate;
  bool sigmoid = false;  // act is the sigmoid, else SiLU
};

class RecurrentOps {
 public:
  virtual ~RecurrentOps() = default;

  // kResourceExhausted names the bytes asked for.
  virtual Result<std::unique_ptr<StateCache>> make_state_cache(
      std::span<const RecurrentLayerShape> layers, int num_slots) = 0;
  // Bytes of one slot over all layers.
  virtual size_t state_slot_bytes(std::span<const RecurrentLayerShape> layers) const = 0;
  // Slot `to` becomes what slot `from` is. Between steps, or after begin_step() before any op.
  virtual void copy_state(StateCache& cache, int from, int to) = 0;

  // Below, a window's rows go on from what its state_slot holds, which afterwards holds what comes
  // behind the last of them; a window with start == 0 begins from zeros, whatever the slot holds.

  // Causal depthwise convolution over a sequence's rows, then SiLU:
  //   y[t][c] = silu(bias[c] + sum over j ascending of weight[j][c] * x[t - conv_kernel + 1 +
  //   j][c])
  // x, y [num_rows, channels], y is not x; weight [conv_kernel][channels]; bias [channels] or empty
  virtual void short_conv(Tensor y, Tensor x, std::span<const float> weight,
                          std::span<const float> bias, std::span<const Window> windows,
                          StateCache& cache, int layer) = 0;

  // The gated delta rule (specs/qwen3_5.md section 6), for each value head and row:
  //   q = q / sqrt(sum q^2 + 1e-6) / sqrt(key_dim), k = k / sqrt(sum k^2 + 1e-6)
  //   S = exp(decay * softplus(a + dt_bias)) * S
  //   S = S + k (sigmoid(b) * (v - S^T k))^T, y = S^T q
  // q, k [num_rows, num_key_heads * key_dim]; v, y [num_rows, num_value_heads * value_dim];
  // a, b [num_rows, num_value_heads]
  virtual void gated_delta(Tensor y, Tensor q, Tensor k, Tensor v, Tensor a, Tensor b,
                           std::span<const Window> windows, StateCache& cache,
                           const GatedDeltaArgs& args) = 0;

  // Mamba2 (specs/nemotron_h.md section 3), for each head and row, with dt = softplus(dt + dt_bias)
  // clamped:
  //   S = exp(dt * decay) * S + B (dt * x)^T, y = S^T C + skip * x
  // x, y [num_rows, num_heads * head_dim]; b, c [num_rows, num_groups * state_size];
  // dt [num_rows, num_heads]
  virtual void ssd(Tensor y, Tensor x, Tensor b, Tensor c, Tensor dt,
                   std::span<const Window> windows, StateCache& cache, const SsdArgs& args) = 0;

  // RMSNorm of each group of neighbours, gated by z. x, y, z [num_rows, num_cols]; y may be x.
  // weight: [group_size], the same for every group, or [num_cols].
  virtual void gated_norm(Tensor y, Tensor x, Tensor z, std::span<const float> weight,
                          const GatedNormArgs& args) = 0;

  // x[t][i] *= sigmoid(gate[t][i]); gate [num_rows, num_cols] as x.
  virtual void sigmoid_gate(Tensor x, Tensor gate) = 0;

  // x = max(x, 0)^2.
  virtual void relu2(Tensor x) = 0;
};

}  // namespace invar
