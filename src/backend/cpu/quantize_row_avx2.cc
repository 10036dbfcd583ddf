// One row of activations to integers (LinearKernels::quantize_row); the steps are those of
// linear_portable.cc.
#include <immintrin.h>

#include "backend/cpu/linear_avx2.h"

namespace invar::cpu::avx2 {
namespace {

#define INVAR_UNROLL _Pragma("GCC unroll 8")

// The sums of eight int16 lanes' pairs: lane 0 = lanes 0, 2, 4, 6 and lane 1 = lanes 1, 3, 5, 7.
inline __attribute__((always_inline)) __m128i pair_sums(__m128i v) {
  v = _mm_add_epi16(v, _mm_srli_si128(v, 8));
  return _mm_add_epi16(v, _mm_srli_si128(v, 4));
}

struct Halves {
  int32_t pairs[2];  // two int16: sums over k % 4 in {0, 1} and {2, 3}
};

inline __attribute__((always_inline)) void put_sums(GroupSums& out, int slot, float scale,
                                                    const __m128i (&pairs)[2]) {
  const __m128i ones = _mm_set1_epi16(1), none = _mm_setzero_si128();
  int32_t half[2];
  for (int h = 0; h < 2; ++h) {
    half[h] = _mm_cvtsi128_si32(_mm_madd_epi16(pairs[h], ones));
    out.sum_half[h][slot] = half[h];
    out.scaled_sum_half[h][slot] = scale * static_cast<float>(half[h]);
    out.start_half[h][slot] =
        static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_sub_epi16(none, pairs[h])));
  }
  const int32_t sum = half[0] + half[1];
  out.scale[slot] = scale;
  out.sum[slot] = sum;
  out.scaled_sum[slot] = scale * static_cast<float>(sum);
  out.start[slot] = static_cast<uint32_t>(
      _mm_cvtsi128_si32(_mm_sub_epi16(none, _mm_add_epi16(pairs[0], pairs[1]))));
}

}  // namespace

bool quantize_row(const float* x, int64_t num_groups, int bits, const ActivationTile& tile,
                  int slot) {
  const float limit = bits == 8 ? 127.f : 2047.f;
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  const __m256i quad_order =
      _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15,  //
                       0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
  bool finite = true;
  for (int64_t g = 0; g < num_groups; ++g, x += kGroup) {
    __m256 v[4];
    __m256i largest = _mm256_setzero_si256();
    INVAR_UNROLL for (int i = 0; i < 4; ++i) {
      v[i] = _mm256_loadu_ps(x + i * 8);
      largest = _mm256_max_epi32(largest, _mm256_and_si256(magnitude, _mm256_castps_si256(v[i])));
    }
    __m128i l =
        _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
    l = _mm_max_epi32(l, _mm_shuffle_epi32(l, 0x4e));
    l = _mm_max_epi32(l, _mm_shuffle_epi32(l, 0xb1));
    const int32_t amax_bits = _mm_cvtsi128_si32(l);
    const bool group_finite = amax_bits < 0x7f800000;
    finite = finite && group_finite;
    const float amax = _mm_cvtss_f32(_mm_castsi128_ps(l));
    float inverse = group_finite && amax > 0 ? limit / amax : 0.f;
    if (!(inverse <= 3.402823466e38f)) inverse = 0.f;
    const float scale = inverse > 0 ? amax / limit : 0.f;
    if (inverse == 0) INVAR_UNROLL for (int i = 0; i < 4; ++i) v[i] = _mm256_setzero_ps();

    __m256i q[4];
    INVAR_UNROLL for (int i = 0; i < 4; ++i) q[i] =
        _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse)));
    // To int16 in input order: packs works on 128-bit halves.
    __m256i words[2];
    INVAR_UNROLL for (int h = 0; h < 2; ++h) words[h] =
        _mm256_permute4x64_epi64(_mm256_packs_epi32(q[2 * h], q[2 * h + 1]), 0xd8);

    const int64_t entry = g * kTileSlots + slot;
    if (tile.bytes != nullptr)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(tile.bytes + entry * kGroup),
                          _mm256_permute4x64_epi64(_mm256_packs_epi16(words[0], words[1]), 0xd8));
    // Words 0 1 | 2 3 of a quad become 0 2 | 1 3.
    if (tile.quads != nullptr)
      INVAR_UNROLL for (int h = 0; h < 2; ++h)
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(tile.quads + entry * kGroup) + h,
                              _mm256_shuffle_epi8(words[h], quad_order));
    // Sums over k % 4 in {0, 1} and {2, 3}: add neighbours, then every second.
    __m128i pairs[2];
    INVAR_UNROLL for (int h = 0; h < 2; ++h) {
      const __m256i sums = _mm256_madd_epi16(words[h], _mm256_set1_epi16(1));  // int32, 8 pairs
      const __m128i packed =
          _mm_packs_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
      pairs[h] = pair_sums(packed);
    }
    put_sums(tile.sums[g], slot, scale, pairs);
  }
  return finite;
}

}  // namespace invar::cpu::avx2
