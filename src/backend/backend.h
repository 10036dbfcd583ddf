// Backend: the list of kernels a device offers. Each method states its contract; reference/ is the
// obvious form of it and the oracle of every other backend. Callers are ops/ (which checks shapes
// and allocates); a backend may assume checked shapes.
//
// Exactness: every output row depends on its own input row, its weights and its absolute positions
// only. How many rows run together, in which slot, beside what, on how many threads, must not
// change a bit (design/architecture.md section 1).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/threads.h"
#include "tensor/quant.h"
#include "tensor/tensor.h"

namespace invar {

// ---- Weights
// -------------------------------------------------------------------------------------

// What a matrix is for decides the precision of the activations it meets: the head takes 12 bits on
// the cpu backend (design/cpu-kernels.md section 17).
// A router's small matrix meets fp32 activations and stays as precise as it was stored.
enum class MatrixRole { kInner, kHead, kRouter };

// How several matrices become one.
enum class PartOrder {
  kStacked,   // rows of part 0, then of part 1, ...: y is their concatenation (q, k, v)
  kGateAndUp  // two parts of equal shape an expert; only gated_linear and moe take the result
};

// What pack() made in an earlier run (cache/packed_cache.h). A backend names each of its results by
// all that decides their bytes besides the source and BackendInfo::packed_layout.
class PackedCache {
 public:
  virtual ~PackedCache() = default;
  // Whether an earlier run left something: then the source will hardly be read.
  virtual bool is_filled() const = 0;
  // What keep() was given under that name, bit for bit, checked with the help of `pool`; null: it
  // is not there. Each section of a model is asked for once, in the same order in every run. The
  // memory is for reading only, and lives as long as the pointer.
  virtual std::shared_ptr<const uint8_t[]> find(const std::string& section, size_t num_bytes,
                                                ThreadPool& pool) = 0;
  // `memory` never changes again. Called after each find() that gave nothing.
  virtual void keep(const std::string& section, std::shared_ptr<const uint8_t[]> memory,
                    size_t num_bytes) = 0;
};

struct PackRequest {
  std::vector<MatrixView> parts;  // equal num_cols; formats may differ
  PartOrder order = PartOrder::kStacked;
  MatrixRole role = MatrixRole::kInner;
  // > 1: the parts of expert 0, then those of expert 1, ...; equally many, all of one shape. Only
  // moe() takes the result.
  int num_experts = 1;
  PackedCache* cache = nullptr;  // for backends with a packed_layout
};

// A matrix in the layout that a backend's kernels stream.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  int64_t num_rows = 0;  // of y, for one expert; for kGateAndUp: of one part
  int64_t num_cols = 0;
  int num_experts = 1;
  size_t num_bytes = 0;  // memory held
};

// ---- Key/value cache
// -----------------------------------------------------------------------------

// Positions of a page. Fixed: attention folds groups of absolute positions of this size.
inline constexpr int kPagePositions = 256;

struct KvLayerShape {
  int num_kv_heads = 0;
  int head_dim = 0;
};

// Pages for all layers; page p of every layer belongs to the same 256 positions of one sequence.
class KvCache {
 public:
  virtual ~KvCache() = default;
  int num_pages = 0;
  size_t num_bytes = 0;
};

// New rows of one sequence in one step: rows [first_row, first_row + num_rows) of the batch stand
// at positions start, start + 1, ... A prompt chunk, a decode step, and later a draft are all
// windows.
struct Window {
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int64_t start = 0;               // absolute position of the first row
  std::span<const int32_t> pages;  // page table: positions [256 i, 256 i + 256) are in pages[i]
  int32_t state_slot = -1;         // of the StateCache, for models with recurrent layers
};

struct AttentionArgs {
  int layer = 0;  // index into the KvCache
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  float scale = 0;             // scores are (q . k) * scale
  int64_t sliding_window = 0;  // > 0: key visible iff 0 <= p_q - p_k < sliding_window
  float softcap = 0;           // > 0: score = softcap * tanh(score / softcap)
};

// ---- Rope
// ----------------------------------------------------------------------------------------

// angle(position, i) = position * inv_freq[i]; cos and sin are multiplied by `magnitude` (YaRN's
// attention factor, else 1). Half-split: pairs are (i, i + inv_freq.size()); dims beyond
// 2 * inv_freq.size() of a head pass through.
struct RopeSpec {
  std::vector<double> inv_freq;
  double magnitude = 1.0;
};

enum class Activation {
  kSilu,
  kGeluTanh,
  kRelu2  // max(x, 0)^2, in experts without a gate
};

// ---- The kernels
// ---------------------------------------------------------------------------------

struct BackendOptions {
  int num_threads = 0;      // 0: default_num_threads()
  std::string isa;          // cpu: a name of cpu/isa.h, such as "avx2"; "" takes the best there is
  int activation_bits = 8;  // cpu: 8 (head 12), or 12 everywhere
  std::string switches;     // cuda: words of cuda/step.cc such as "no-graph"; speed only
};

struct BackendInfo {
  std::string name;           // "cpu"
  std::string arithmetic_id;  // "cpu-1"; changes whenever any bit may change
  std::string isa;            // "avx2"
  std::string why;            // why this one: "best of portable avx2; no avx512_vnni on this CPU"
  int num_threads = 1;
  // What a packed matrix looks like in memory: "cpu-panels-1". Empty: nothing that could be kept.
  // Changes whenever pack() makes other bytes of the same source.
  std::string packed_layout;
};

// Memory that is not the host's.
struct DeviceRoom {
  uint64_t free_bytes = 0;  // for weights and pages
  std::string device;       // "NVIDIA H200"
};

// What a device can do at best; 0: not known.
struct DeviceRates {
  double read_bytes = 0;  // a second, streaming from its memory
  double operations = 0;  // a second, of the instruction that its matrix products use
};

class RecurrentOps;
class MoeOps;

// A step is begin_step(), then ops, then synchronize(). A device may run nothing before the last of
// these, so what a span names (ids, positions, windows) stays as it is until then; what belongs to
// a model (norm weights, biases, frequencies) does not change at all.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual const BackendInfo& info() const = 0;

  // Where weights and pages live; nothing: in the host's memory.
  virtual std::optional<DeviceRoom> device_room() const { return std::nullopt; }

  // Kernels that only some families need; null: this backend does not have them.
  virtual RecurrentOps* recurrent_ops() { return nullptr; }  // backend/recurrent_ops.h
  virtual MoeOps* moe_ops() { return nullptr; }              // backend/moe_ops.h

  // Measured when asked, within some milliseconds, while no step runs.
  virtual DeviceRates measure_rates() { return {}; }

  // Repacks matrices for this backend's kernels. Integers and scales of the file stay as they are.
  // Reads each part once, front to back (the loader drops pages behind). Errors: kUnsupported for a
  // format this backend cannot run, kResourceExhausted.
  virtual Result<std::unique_ptr<PackedWeight>> pack(const PackRequest& request) = 0;

  // `layers[i]` shapes layer i. kResourceExhausted names the bytes asked for.
  virtual Result<std::unique_ptr<KvCache>> make_kv_cache(std::span<const KvLayerShape> layers,
                                                         int num_pages) = 0;
  // Bytes of one page over all layers.
  virtual size_t kv_page_bytes(std::span<const KvLayerShape> layers) const = 0;

  // Page `to` of every layer becomes what page `from` is.
  virtual void copy_page(KvCache& cache, int from, int to) = 0;

  // Tensors of the step before are not used any more.
  virtual void begin_step() {}

  // y[t] = row ids[t] of table * scale.   y [num_tokens, table.num_cols]
  virtual void embed(Tensor y, std::span<const int32_t> ids, const PackedWeight& table,
                     float scale) = 0;

  // y[t] = x[t] / sqrt(mean(x[t]^2) + eps) * weight, plus residual[t] where residual.data is set.
  // x, y, residual [num_rows, num_cols]; weight: num_cols floats. y may be x or residual.
  virtual void rms_norm(Tensor y, Tensor x, std::span<const float> weight, float eps,
                        Tensor residual) = 0;

  // The same on each head: x [num_rows, num_heads * head_dim] in place; weight: head_dim floats.
  virtual void head_rms_norm(Tensor x, int head_dim, std::span<const float> weight, float eps) = 0;

  // y[t] = w x[t], + bias where bias.data() is set, + residual[t] where residual.data is set (y may
  // be the residual itself).   x [num_rows, w.num_cols], y [num_rows, w.num_rows]
  virtual void linear(Tensor y, Tensor x, const PackedWeight& w, std::span<const float> bias,
                      Tensor residual) = 0;

  // y[t] = activation(gate x[t]) * (up x[t]), w packed with kGateAndUp.   y [num_rows, w.num_rows]
  virtual void gated_linear(Tensor y, Tensor x, const PackedWeight& w, Activation activation) = 0;

  // Rotates every head of x [num_rows, num_heads * head_dim] in place; positions [num_rows].
  virtual void rope(Tensor x, int head_dim, std::span<const int32_t> positions,
                    const RopeSpec& spec) = 0;

  // Stores k and v of every window's rows in its pages, then y[t] = softmax over the visible keys
  // of t's sequence (positions 0 .. its own) of scale * (q[t] . k), times v. Query head h reads kv
  // head h / (num_heads / num_kv_heads).
  //   q, y [num_rows, num_heads * head_dim]; k, v [num_rows, num_kv_heads * head_dim]
  virtual void attention(Tensor y, Tensor q, Tensor k, Tensor v, std::span<const Window> windows,
                         KvCache& cache, const AttentionArgs& args) = 0;

  // y[i] = x[rows[i]].
  virtual void gather_rows(Tensor y, Tensor x, std::span<const int32_t> rows) = 0;

  // Where the host will read logits; as a rule the arena.
  virtual Tensor logits_memory(Arena& arena, int64_t num_rows, int64_t num_cols) {
    return arena.rows(num_rows, num_cols);
  }

  // logits[t] = w x[t] with w of role kHead; softcap > 0: softcap * tanh(logit / softcap).
  virtual void lm_head(Tensor logits, Tensor x, const PackedWeight& w, float softcap) = 0;

  // After begin_step(): of each logit row i with rows[i] != 0 the host wants the id of the largest
  // logit alone, the first of equals, among the ids below num_ids that `never` (ascending,
  // unchanged as long as the model is there) does not name. A backend may ignore it.
  virtual void want_best(std::span<const uint8_t> /*rows*/, int32_t /*num_ids*/,
                         std::span<const int32_t> /*never*/) {}
  // After synchronize(): the ids that were wanted; -1: not wanted or not found, the row's logits
  // are there. Where an id is, they may not be. Empty: nobody looked.
  virtual std::span<const int32_t> best_ids() const { return {}; }

  // Ends a step: the host may read its logits now. Without logits a device may still be at work.
  // Nothing to do on a CPU.
  virtual void synchronize() {}

  // Gives up a step wherever it stands, if there is one: nobody looks at what it has computed, and
  // the next call may be any. For when memory ran out in the middle. Allocates nothing.
  virtual void drop_step() {}

  // Waits within a step, for whoever times single ops: slow on a GPU.
  virtual void synchronize_op() {}
};

using MakeBackend = Result<std::unique_ptr<Backend>> (*)(const BackendOptions&);

// "reference", "cpu", ... as compiled in; unknown names give an error that lists the known ones.
Result<std::unique_ptr<Backend>> make_backend(std::string_view name, const BackendOptions& options);
std::vector<std::string> backend_names();

}  // namespace invar
