// The AVX2 (with FMA and F16C) table of linear kernels, and the kernels of floating point weights.
#include "backend/cpu/linear_avx2.h"

#include <immintrin.h>

namespace invar::cpu {
namespace avx2 {
namespace {

template <PanelKind kKind>
inline __attribute__((always_inline)) __m256 weights(const uint8_t* panel, int64_t k, int h) {
  const int64_t at = k * kPanelRows + h * 8;
  if constexpr (kKind == PanelKind::kF32)
    return _mm256_load_ps(reinterpret_cast<const float*>(panel) + at);
  const __m128i bits = _mm_load_si128(reinterpret_cast<const __m128i*>(panel + at * 2));
  if constexpr (kKind == PanelKind::kF16) return _mm256_cvtph_ps(bits);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

template <PanelKind kKind, int kRows>
void float_panel(const FloatRun& run) {
  __m256 acc[kRows][2];
  for (int m = 0; m < kRows; ++m) acc[m][0] = acc[m][1] = _mm256_setzero_ps();
  constexpr int kBytes = kKind == PanelKind::kF32 ? 64 : 32;
  for (int64_t k = 0; k < run.num_cols; ++k) {
    _mm_prefetch(reinterpret_cast<const char*>(run.panel) + k * kBytes + 1024, _MM_HINT_T0);
    const __m256 w0 = weights<kKind>(run.panel, k, 0), w1 = weights<kKind>(run.panel, k, 1);
    for (int m = 0; m < kRows; ++m) {
      const __m256 x = _mm256_broadcast_ss(run.x + m * run.row_stride + k);
      acc[m][0] = _mm256_fmadd_ps(w0, x, acc[m][0]);
      acc[m][1] = _mm256_fmadd_ps(w1, x, acc[m][1]);
    }
  }
  for (int m = 0; m < kRows; ++m) {
    _mm256_storeu_ps(run.out + m * kPanelRows, acc[m][0]);
    _mm256_storeu_ps(run.out + m * kPanelRows + 8, acc[m][1]);
  }
}

template <PanelKind kKind>
constexpr LinearKernels::FloatFn kFloat[kMaxRows] = {float_panel<kKind, 1>, float_panel<kKind, 2>,
                                                     float_panel<kKind, 3>, float_panel<kKind, 4>,
                                                     float_panel<kKind, 5>, float_panel<kKind, 6>};

}  // namespace

LinearKernels::FloatFn float_fn(PanelKind kind, int rows) {
  if (kind == PanelKind::kF32) return kFloat<PanelKind::kF32>[rows - 1];
  if (kind == PanelKind::kF16) return kFloat<PanelKind::kF16>[rows - 1];
  return kFloat<PanelKind::kBF16>[rows - 1];
}

}  // namespace avx2

namespace {

using PanelFn = LinearKernels::PanelFn;

// Rows of a tile: what the narrow kernels take at once. Others take up to avx2::kMaxRows, and more
// in two calls.
constexpr int kTileRows = 7;

template <PanelFn (*kFn)(PanelKind kind, int rows)>
void in_halves(const PanelRun& run) {
  PanelRun half = run;
  half.rows = (run.rows + 1) / 2;
  kFn(run.kind, half.rows)(half);
  if (half.bytes != nullptr) half.bytes += half.rows * kGroup;
  if (half.quads != nullptr) half.quads += half.rows * kGroup;
  half.first_slot += half.rows;
  half.out += half.rows * kPanelRows;
  half.rows = run.rows - half.rows;
  kFn(run.kind, half.rows)(half);
}

template <PanelFn (*kFn)(PanelKind kind, int rows)>
PanelFn up_to_a_tile(PanelKind kind, int rows) {
  return rows <= avx2::kMaxRows ? kFn(kind, rows) : in_halves<kFn>;
}

PanelFn narrow_blocks(PanelKind kind, int rows) { return avx2::block_fn(kind, 8, rows); }
PanelFn wide_blocks(PanelKind kind, int rows) { return avx2::block_fn(kind, 12, rows); }

void floats_in_halves(const FloatRun& run) {
  FloatRun half = run;
  half.rows = (run.rows + 1) / 2;
  avx2::float_fn(run.kind, half.rows)(half);
  half.x += half.rows * run.row_stride;
  half.out += half.rows * kPanelRows;
  half.rows = run.rows - half.rows;
  avx2::float_fn(run.kind, half.rows)(half);
}

}  // namespace

const LinearKernels& linear_kernels_avx2() {
  static constexpr LinearKernels kKernels = {
      kTileRows,
      avx2::quantize_row,
      [](PanelKind kind, int bits) { return !avx2::is_narrow(kind, bits); },
      [](PanelKind kind, int bits, int rows) {
        return avx2::is_narrow(kind, bits) ? avx2::narrow_fn(kind, rows)
                                           : up_to_a_tile<avx2::wide_fn>(kind, rows);
      },
      [](PanelKind kind, int rows) -> LinearKernels::FloatFn {
        return rows <= avx2::kMaxRows ? avx2::float_fn(kind, rows) : floats_in_halves;
      },
      16,
      avx2::unpack_panel,
      [](PanelKind kind, int bits, int rows) {
        return avx2::is_narrow(kind, bits) ? up_to_a_tile<narrow_blocks>(kind, rows)
                                           : up_to_a_tile<wide_blocks>(kind, rows);
      },
  };
  return kKernels;
}

}  // namespace invar::cpu
