// Attention where every sequence has one new token and the groups of keys are many: a long context,
// where the time is bytes.
//
// One CTA an SM works through a contiguous share of all (window, kv head, group) in that order. A
// warp of its own copies their keys and values into a ring in shared memory, a piece at a time and
// ahead of everything, also of the wait for the kernel before; sixteen warps make a group's partial
// result out of it as attention_token.cu does: 16 keys a warp for the scores, 8 dimensions of
// head_dim (16 of 256) a warp for the output, with the bits of attention.cu.
#include <algorithm>
#include <type_traits>

#include "backend/cuda/attention_parts.cuh"
#include "backend/cuda/attention_stream.h"
#include "backend/cuda/epilogue.cuh"
#include "backend/cuda/launch.cuh"
#include "base/check.h"

namespace invar::cuda {
namespace {

constexpr int kWarps = 16, kThreads = kWarps * 32;
// Of the ring; a piece is at most the keys or the values of a group.
constexpr int kRingBytes = 192 * 1024;
__host__ __device__ constexpr int piece_bytes(int head_dim) {
  return head_dim == 64 ? 32 * 1024 : 64 * 1024;
}
__host__ __device__ constexpr int num_pieces(int head_dim) {
  return kRingBytes / piece_bytes(head_dim);
}
constexpr int kSms = 132;

// Rows of q and p are 64 bytes more than a multiple of 128: eight lanes that read together, four of
// one row and four of the next, then meet different banks.
template <int kHeadDim>
struct StreamShared {
  __nv_bfloat16 q[16][kHeadDim + 32];
  __nv_bfloat16 p[16][kGroupKeys + 32];
  float pair_sum[2 * kWarps][16][4];  // p of two keys: [eight keys][row][lane of a quad]
  float top[16][kWarps];
  float tile_sum[4][16];
  __nv_bfloat16 new_k[kHeadDim], new_v[kHeadDim];
  uint64_t full[num_pieces(kHeadDim)], empty[num_pieces(kHeadDim)];
};

template <int kHeadDim>
constexpr size_t stream_bytes() {
  return size_t{kRingBytes} + sizeof(StreamShared<kHeadDim>) + 128;
}

// Where a CTA stands in its share.
struct Item {
  int window, head, group, begin, end;
  DeviceWindow w;

  __device__ __forceinline__ void load(const AttentionParams& p) {
    w = p.c.windows[window];
    begin = p.c.shape.sliding_window > 0
                ? max(0, w.start - p.c.shape.sliding_window + 1) / kGroupKeys
                : 0;
    end = w.start / kGroupKeys + 1;
  }
  // Whether it is another query than before.
  __device__ __forceinline__ bool next(const AttentionParams& p) {
    if (++group < end) return false;
    if (++head == p.c.shape.num_kv_heads) {
      head = 0;
      if (++window < p.c.num_windows) load(p);
    }
    group = begin;
    return true;
  }
};

__device__ __forceinline__ int items_of(const AttentionParams& p, int window) {
  if (window >= p.c.num_windows) return 0;
  Item item;
  item.window = window;
  item.load(p);
  return (item.end - item.begin) * p.c.shape.num_kv_heads;
}

__device__ __forceinline__ int all_items(const AttentionParams& p, int lane) {
  int sum = 0;
  for (int first = 0; first < p.c.num_windows; first += 32) sum += items_of(p, first + lane);
  return __reduce_add_sync(~0u, sum);
}

// By a whole warp: windows are looked at 32 at a time.
__device__ __forceinline__ Item item_at(const AttentionParams& p, int index, int lane) {
  Item item;
  for (int first = 0;; first += 32) {
    const int mine = items_of(p, first + lane);
    int up_to = mine;
#pragma unroll
    for (int o = 1; o < 32; o *= 2) {
      const int other = __shfl_up_sync(~0u, up_to, o);
      if (lane >= o) up_to += other;
    }
    const int all = __shfl_sync(~0u, up_to, 31);
    if (index >= all) {
      index -= all;
      continue;
    }
    const int who = __ffs(static_cast<int>(__ballot_sync(~0u, up_to > index))) - 1;
    index -= __shfl_sync(~0u, up_to - mine, who);
    item.window = first + who;
    break;
  }
  item.load(p);
  item.head = index / (item.end - item.begin);
  item.group = item.begin + index % (item.end - item.begin);
  return item;
}

__device__ __forceinline__ uint32_t stream_pair(uint32_t v, int keep, int at, uint32_t bits) {
  v &= keep >= 2 ? ~0u : keep == 1 ? 0xffffu : 0u;
  if (at == 0) v = (v & 0xffff0000u) | bits;
  if (at == 1) v = (v & 0xffffu) | bits << 16;
  return v;
}

__device__ __forceinline__ uint4 shared_vector(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address));
  return v;
}

// Two neighbouring steps of 32 columns of a row, 64 bytes each, in a piece of keys or values, whose
// rows all begin at the same bank: odd rows read the second step first.
struct TwoSteps {
  uint4 first, second;
};
__device__ __forceinline__ TwoSteps two_steps(uint32_t address, bool odd) {
  const uint4 a = shared_vector(odd ? address + 64 : address);
  const uint4 b = shared_vector(odd ? address : address + 64);
  auto pick = [&](uint32_t x, uint32_t y) { return odd ? y : x; };
  return {{pick(a.x, b.x), pick(a.y, b.y), pick(a.z, b.z), pick(a.w, b.w)},
          {pick(b.x, a.x), pick(b.y, a.y), pick(b.z, a.z), pick(b.w, a.w)}};
}

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads + 32, 1)
    attention_stream_kernel(const __grid_constant__ AttentionParams p) {
  constexpr int kSteps = kHeadDim / 32, kDimBlocks = kHeadDim / 8;
  constexpr int kOut = (kDimBlocks + kWarps - 1) / kWarps;  // n8 blocks of a warp
  constexpr int kPieceBytes = piece_bytes(kHeadDim), kPieces = num_pieces(kHeadDim);
  constexpr int kPieceKeys = kPieceBytes / 2 / kHeadDim;    // of a piece of K
  constexpr int kPieceDims = kPieceBytes / 2 / kGroupKeys;  // of a piece of V
  constexpr int kKPieces = kGroupKeys / kPieceKeys, kVPieces = kHeadDim / kPieceDims;
  extern __shared__ __align__(128) uint8_t shared_raw[];
  uint8_t* ring = shared_raw + (-shared_address(shared_raw) & 127u);
  auto& shared = *reinterpret_cast<StreamShared<kHeadDim>*>(ring + kRingBytes);
  const AttentionShape& s = p.c.shape;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const int heads = p.heads_per_kv;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kPieces; ++i) {
      barrier_init(shared_address(&shared.full[i]), 1);
      barrier_init(shared_address(&shared.empty[i]), kWarps);
    }
    barrier_init_fence();
  }
  const int total = all_items(p, lane);
  const int first = static_cast<int>(int64_t{total} * blockIdx.x / gridDim.x);
  const int last = static_cast<int>(int64_t{total} * (blockIdx.x + 1) / gridDim.x);
  __syncthreads();
  if (first == last) {
    wait_for_producer();
    return;
  }
  Item item = item_at(p, first, lane);

  if (warp == kWarps) {  // ---- copies
    if (lane == 0) {
      const uint64_t policy = evict_first_policy();
      int slot = 0, parity = 1;
      for (int i = first; i < last; ++i) {
        const uint8_t* from = static_cast<const uint8_t*>(p.c.cache) +
                              2 * (p.c.pages[item.w.first_page + item.group] * p.page_size +
                                   int64_t{item.head} * 2 * kGroupKeys * kHeadDim);
        for (int piece = 0; piece < kKPieces + kVPieces; ++piece) {
          barrier_wait(shared_address(&shared.empty[slot]), parity);
          const uint32_t full = shared_address(&shared.full[slot]);
          barrier_expect(full, kPieceBytes);
          bulk_copy_once(shared_address(ring) + slot * kPieceBytes, from + piece * kPieceBytes,
                         kPieceBytes, full, policy);
          if (++slot == kPieces) {
            slot = 0;
            parity ^= 1;
          }
        }
        item.next(p);
      }
    }
    wait_for_producer();
    return;
  }

  // ---- arithmetic
  wait_for_producer();
  let_next_kernel_start();
  auto sync = [] { named_barrier(1, kThreads); };
  int slot = 0, parity = 0;  // of the group's first piece
  // Slot and parity `piece` pieces on.
  auto piece_at = [&](int piece, int& at, int& phase) {
    at = slot + piece;
    phase = parity;
    for (int most = kKPieces + kVPieces + kPieces - 1; most >= kPieces; most -= kPieces)
      if (at >= kPieces) {
        at -= kPieces;
        phase ^= 1;
      }
  };
  auto wait_piece = [&](int piece) -> uint32_t {
    int at, phase;
    piece_at(piece, at, phase);
    barrier_wait(shared_address(&shared.full[at]), phase);
    return shared_address(ring) + at * kPieceBytes;
  };
  auto free_piece = [&](int piece) {
    int at, phase;
    piece_at(piece, at, phase);
    if (lane == 0) barrier_arrive(shared_address(&shared.empty[at]));
  };
  // The query's fragments, where registers allow; every warp needs all of it for every group.
  constexpr bool kHoldQuery = kHeadDim <= 128;
  uint4 query[kHoldQuery ? kSteps : 1][2];
  const bool odd = g & 1;
  bool new_query = true;
  for (int i = first; i < last; ++i) {
    const int position = item.w.start, row = item.w.first_row, group = item.group;
    const int left = position + 1 - group * kGroupKeys;  // keys from here on that exist
    const bool scores = warp * 16 < left;
    // Of the new token, if it is of this group; else far away from every key.
    const int new_key = left <= kGroupKeys ? left - 1 : -2 * kGroupKeys;
    // Every key is there and is seen: nothing to mask.
    const bool whole = left > kGroupKeys &&
                       (s.sliding_window <= 0 || position - group * kGroupKeys < s.sliding_window);
    if (new_query || new_key >= 0) {
      sync();  // nobody reads the query before
      for (int j = threadIdx.x; j < 16 * (kHeadDim / 8); j += kThreads) {
        const int r = j / (kHeadDim / 8), dim = j % (kHeadDim / 8) * 8;
        uint4 q = make_uint4(0, 0, 0, 0);
        if (r < heads)
          q = load_rotated(p, p.c.q, row * p.c.q_stride + (item.head * heads + r) * kHeadDim, row,
                           dim);
        *reinterpret_cast<uint4*>(&shared.q[r][dim]) = q;
      }
      // The new token's k and v, by the last warp, into the page and into shared memory.
      if (new_key >= 0 && warp == kWarps - 1 && lane < kHeadDim / 8) {
        const int dim = lane * 8, from = item.head * kHeadDim;
        const uint4 nk = load_rotated(p, p.c.k, row * p.c.k_stride + from, row, dim);
        const uint4 nv = load_eight(p.c.v, p.c.input_type, row * p.c.v_stride + from + dim);
        *reinterpret_cast<uint4*>(&shared.new_k[dim]) = nk;
        *reinterpret_cast<uint4*>(&shared.new_v[dim]) = nv;
        __nv_bfloat16* keys = static_cast<__nv_bfloat16*>(p.c.cache) +
                              p.c.pages[item.w.first_page + group] * p.page_size +
                              int64_t{item.head} * 2 * kGroupKeys * kHeadDim;
        *reinterpret_cast<uint4*>(keys + new_key * kHeadDim + dim) = nk;
        auto* to =
            reinterpret_cast<uint16_t*>(keys + kGroupKeys * kHeadDim) + dim * kGroupKeys + new_key;
        auto put = [&](int j, uint32_t pair) {
          to[j * kGroupKeys] = static_cast<uint16_t>(pair);
          to[(j + 1) * kGroupKeys] = static_cast<uint16_t>(pair >> 16);
        };
        put(0, nv.x);
        put(2, nv.y);
        put(4, nv.z);
        put(6, nv.w);
      }
      sync();
      if constexpr (kHoldQuery) {
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          query[step][0] = *reinterpret_cast<const uint4*>(&shared.q[g][step * 32 + 8 * t]);
          query[step][1] = *reinterpret_cast<const uint4*>(&shared.q[g + 8][step * 32 + 8 * t]);
        }
      }
    }

    // Scores of 16 rows x 16 keys.
    float score[2][4];
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) score[n][j] = 0.f;
    {
      const int piece = warp * 16 / kPieceKeys;
      const uint32_t keys =
          wait_piece(piece) + ((warp * 16 % kPieceKeys + g) * kHeadDim + 8 * t) * 2;
      if (scores) {
#pragma unroll
        for (int pair = 0; pair < kSteps; pair += 2) {
          TwoSteps k[2];
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            k[n] = two_steps(keys + (n * 8 * kHeadDim + pair * 32) * 2, odd);
            if (warp * 16 + n * 8 + g == new_key) {
              const auto* at = reinterpret_cast<const uint4*>(&shared.new_k[pair * 32 + 8 * t]);
              k[n] = {at[0], at[4]};
            }
          }
#pragma unroll
          for (int second = 0; second < 2; ++second) {
            const int step = pair + second, at = step * 32 + 8 * t;
            uint4 low, high;
            if constexpr (kHoldQuery) {
              low = query[step][0];
              high = query[step][1];
            } else {
              low = *reinterpret_cast<const uint4*>(&shared.q[g][at]);
              high = *reinterpret_cast<const uint4*>(&shared.q[g + 8][at]);
            }
            const uint32_t a0[4] = {low.x, high.x, low.y, high.y},
                           a1[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
            for (int n = 0; n < 2; ++n) {
              const uint4& v = second ? k[n].second : k[n].first;
              mma_step(score[n], a0, v.x, v.y);
              mma_step(score[n], a1, v.z, v.w);
            }
          }
        }
      }
      __syncwarp();
#pragma unroll
      for (int j = 0; j < kKPieces; ++j) {
        // A piece is free once it has come and nobody reads it: also this warp has to see it come,
        // else its arrival could count for the piece after.
        if (j != piece) wait_piece(j);
        free_piece(j);
      }
    }
    const int first_key = group * kGroupKeys + warp * 16;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = -INFINITY;
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
          const int key = first_key + n * 8 + 2 * t + odd;
          float& x = score[n][2 * half + odd];
          x = __fmul_rn(x, p.log2_scale);
          if (s.softcap > 0) x = __fmul_rn(p.log2_softcap, tanh_short(x));
          if (!whole &&
              !(key <= position && (s.sliding_window <= 0 || position - key < s.sliding_window)))
            x = -INFINITY;
          top = fmaxf(top, x);
        }
      top = quad_max(top);
      if (t == 0) shared.top[8 * half + g][warp] = top;
    }
    sync();

    float m_group[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto* tops = reinterpret_cast<const float4*>(shared.top[8 * half + g]);
      float top = -INFINITY;
#pragma unroll
      for (int j = 0; j < kWarps / 4; ++j) {
        const float4 four = tops[j];
        top = fmaxf(top, fmaxf(fmaxf(four.x, four.y), fmaxf(four.z, four.w)));
      }
      m_group[half] = top;
      const float base = top == -INFINITY ? 0.f : top;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const float x = exp2_approx(score[n][2 * half] - base);
        const float y = exp2_approx(score[n][2 * half + 1] - base);
        shared.pair_sum[2 * warp + n][8 * half + g][t] = __fadd_rn(x, y);
        *reinterpret_cast<uint32_t*>(&shared.p[8 * half + g][warp * 16 + n * 8 + 2 * t]) =
            bf16_pair(x, y);
      }
    }
    sync();

    // Sums of 64 keys, by the last eight warps.
    if (warp >= 8) {
      const int j = threadIdx.x - 256, tile = j >> 6, r = (j >> 2) & 15;
      float sum = 0.f;
#pragma unroll
      for (int n = 0; n < 8; ++n) sum = __fadd_rn(sum, shared.pair_sum[8 * tile + n][r][t]);
      sum = quad_sum(sum);
      if (t == 0) shared.tile_sum[tile][r] = sum;
    }
    float out[kOut][4];
#pragma unroll
    for (int n = 0; n < kOut; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) out[n][j] = 0.f;
      const int dim_block = warp + n * kWarps;
      if (dim_block >= kDimBlocks) continue;
      const int dim = dim_block * 8;
      const uint32_t values = wait_piece(kKPieces + dim / kPieceDims) +
                              ((dim % kPieceDims + g) * kGroupKeys + 8 * t) * 2;
      // Slots beyond the last key hold anything and must not meet a p of zero. Steps beyond it
      // would add zeros, which change nothing: left out.
      const uint32_t bits = __bfloat16_as_ushort(shared.new_v[dim + g]);
      auto multiply = [&](auto masked) {
        constexpr bool kMasked = decltype(masked)::value;
#pragma unroll
        for (int pair = 0; pair < 8; pair += 2) {
          if (kMasked && pair * 32 >= left) continue;
          const TwoSteps two = two_steps(values + pair * 64, odd);
#pragma unroll
          for (int second = 0; second < 2; ++second) {
            const int step = pair + second;
            if (kMasked && step * 32 >= left) continue;
            uint4 v = second ? two.second : two.first;
            if (kMasked) {
              const int keep = left - step * 32 - 8 * t;  // of this lane's eight keys
              const int at = new_key - step * 32 - 8 * t;
              v = {stream_pair(v.x, keep, at, bits), stream_pair(v.y, keep - 2, at - 2, bits),
                   stream_pair(v.z, keep - 4, at - 4, bits),
                   stream_pair(v.w, keep - 6, at - 6, bits)};
            }
            const uint4 low = *reinterpret_cast<const uint4*>(&shared.p[g][step * 32 + 8 * t]);
            const uint4 high = *reinterpret_cast<const uint4*>(&shared.p[g + 8][step * 32 + 8 * t]);
            const uint32_t a0[4] = {low.x, high.x, low.y, high.y},
                           a1[4] = {low.z, high.z, low.w, high.w};
            mma_step(out[n], a0, v.x, v.y);
            mma_step(out[n], a1, v.z, v.w);
          }
        }
      };
      if (new_key >= 0)
        multiply(std::true_type());
      else
        multiply(std::false_type());
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kVPieces; ++j) {
      wait_piece(kKPieces + j);
      free_piece(kKPieces + j);
    }
    sync();

#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = 8 * half + g, head = item.head * heads + r;
      if (r >= heads) continue;
      float* partial =
          p.c.workspace + ((int64_t{row} * s.num_heads + head) * p.groups + group) * (kHeadDim + 4);
#pragma unroll
      for (int n = 0; n < kOut; ++n) {
        const int dim_block = warp + n * kWarps;
        if (dim_block >= kDimBlocks) continue;
        *reinterpret_cast<float2*>(partial + dim_block * 8 + 2 * t) =
            make_float2(out[n][2 * half], out[n][2 * half + 1]);
      }
      if (warp == 0 && t == 0) {
        float l = shared.tile_sum[0][r];
#pragma unroll
        for (int j = 1; j < 4; ++j) l = __fadd_rn(l, shared.tile_sum[j][r]);
        *reinterpret_cast<float2*>(partial + kHeadDim) = make_float2(m_group[half], l);
      }
    }
    piece_at(kKPieces + kVPieces, slot, parity);
    new_query = item.next(p);
  }
}

}  // namespace

void attention_stream(cudaStream_t stream, const AttentionParams& p, bool dependent) {
  const AttentionShape& s = p.c.shape;
  INVAR_CHECK(p.c.max_window_rows == 1 && p.heads_per_kv <= 16 && p.split,
              "%d rows, %d heads of a kv head", p.c.max_window_rows, p.heads_per_kv);
  const int most = s.num_kv_heads * p.c.num_windows * p.c.max_groups;
  const dim3 grid(static_cast<unsigned>(std::min(kSms, most))), block(kThreads + 32);
  switch (s.head_dim) {
    case 64:
      return launch(attention_stream_kernel<64>, grid, block, stream_bytes<64>(), stream, dependent,
                    p);
    case 128:
      return launch(attention_stream_kernel<128>, grid, block, stream_bytes<128>(), stream,
                    dependent, p);
    default:
      return launch(attention_stream_kernel<256>, grid, block, stream_bytes<256>(), stream,
                    dependent, p);
  }
}

}  // namespace invar::cuda
