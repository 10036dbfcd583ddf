// Attention over a paged cache with grouped queries: host side. Arithmetic (class T, simplified;
// the long form is in docs/cuda-kernels.md):
//
//   s_j    = FDA chain over head_dim of q . k_j, times scale (times softcap's tanh), times log2 e
//   group  = 256 keys by absolute position: m = max s_j; p_j = ex2(s_j - m); l = sum of p_j (tiles
//   of
//            64 keys, ascending); O = FDA chain over the keys ascending of bf16(p_j) v_j, from 0
//   fold   = groups ascending: M = max(m, m_g), l = fma(l_g, 2^(m_g-M), l 2^(m-M)), O likewise
//
// A group's partial result does not depend on what else is computed, so groups may run one after
// another in a CTA (prefill) or side by side with a combine kernel after (decode), bits equal.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/epilogue.h"
#include "backend/cuda/packed.h"

namespace invar::cuda {

inline constexpr int kGroupKeys = 256;  // of a page and of a fold step

// A page of a layer holds, per kv head, K as [256 keys, head_dim] and V transposed as
// [head_dim, 256 keys], bf16. Page p of a layer starts at layer base + p * page_elements.
INVAR_HD inline int64_t page_elements(int num_kv_heads, int head_dim) {
  return int64_t{2} * num_kv_heads * kGroupKeys * head_dim;
}

// One sequence's new rows, as backend.h's Window, on the device.
struct DeviceWindow {
  int32_t first_row = 0;
  int32_t num_rows = 0;
  int32_t start = 0;       // absolute position of first_row
  int32_t first_page = 0;  // index into the page list
};

struct AttentionShape {
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;  // 64, 128 or 256
  float scale = 0;
  int sliding_window = 0;
  float softcap = 0;
  bool operator==(const AttentionShape&) const = default;
};

struct AttentionCall {
  AttentionShape shape;
  OutputType input_type = OutputType::kBF16;  // of q, k and v; fp32 is rounded to bf16
  const void* q = nullptr;                    // rows, strides in elements; aligned to 16 bytes
  int64_t q_stride = 0;
  const void* k = nullptr;
  int64_t k_stride = 0;
  const void* v = nullptr;
  int64_t v_stride = 0;
  // Where not null, q and k are fp32 and are rotated as they are read, as rope() would have done:
  // cosine and sine of [num_rows, num_freqs], made by rope_table(). num_freqs a multiple of 8.
  const float2* rotation = nullptr;
  int num_freqs = 0;
  void* y = nullptr;  // bf16
  int64_t y_stride = 0;
  const DeviceWindow* windows = nullptr;  // on the device
  int num_windows = 0;
  const int32_t* pages = nullptr;       // on the device: the page lists of all windows
  const int32_t* row_window = nullptr;  // on the device: window of each row
  int num_rows = 0;
  int max_window_rows = 0;  // host's knowledge, for the grid only
  int max_groups = 0;       // most groups a window touches, likewise
  void* cache = nullptr;    // the layer's pages, bf16
  float* workspace = nullptr;
  size_t workspace_bytes = 0;
};

// A call as the kernels take it.
struct AttentionParams {
  AttentionCall c;
  float log2_scale = 0;    // scale * log2 e, or scale / softcap
  float log2_softcap = 0;  // softcap * log2 e
  int heads_per_kv = 0;
  int64_t page_size = 0;      // elements
  int groups = 0;             // of the workspace
  bool split = false;         // partial results of groups, combined after
  bool values_later = false;  // V into L2 only after the wait
  bool store_inside = false;  // the attention kernel stores k and v itself: one row tile a window
};
AttentionParams attention_params(const AttentionCall& call);  // the last three are the caller's

struct AttentionSchedule {  // time only
  enum class Path : uint8_t { kChoose, kSplit, kLoop };
  Path path = Path::kChoose;
  int row_tiles = 0;  // 16-row tiles of a CTA: 1 or 2
  int prefetch = 0;   // of a page into L2 by the split kernel: K and V at once (1), V after K (2)
  int token = 0;      // attention_token.cu for one new row a sequence: no (1), wherever it can (2)
  int stream = 0;     // attention_stream.cu, likewise
  bool dependent = false;
};

// Workspace of the split path: partial results of every (row, head, group).
size_t attention_workspace_bytes(const AttentionShape& shape, int num_rows, int max_groups);

// A dependent launch reads windows, pages and cached keys and values ahead of its wait. Kernels of
// dependent launches run ahead of each other without end, so whatever wrote those must have been
// waited for: a step begins with a launch that is not dependent.
//
// Stores k and v of all rows in their pages, then attends. The split path needs its workspace; the
// choice falls on the loop path where it does not fit.
void attention(cudaStream_t stream, const AttentionCall& call,
               const AttentionSchedule& schedule = {});

}  // namespace invar::cuda
