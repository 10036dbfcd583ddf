// The AVX-512 (VNNI) table of linear kernels, and the kernels of floating point weights. Rows are
// quantized by the AVX2 code: it takes a percent of a call and is the same arithmetic.
#include "backend/cpu/linear_avx512.h"

#include <immintrin.h>

#include "backend/cpu/linear_avx2.h"

namespace invar::cpu {
namespace avx512 {
namespace {

template <PanelKind kKind>
inline __attribute__((always_inline)) __m512 weights(const uint8_t* panel, int64_t k) {
  if constexpr (kKind == PanelKind::kF32)
    return _mm512_load_ps(reinterpret_cast<const float*>(panel) + k * kPanelRows);
  const __m256i bits =
      _mm256_load_si256(reinterpret_cast<const __m256i*>(panel + k * kPanelRows * 2));
  if constexpr (kKind == PanelKind::kF16) return _mm512_cvtph_ps(bits);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

template <PanelKind kKind, int kRows>
void float_panel(const FloatRun& run) {
  __m512 acc[kRows];
  for (int m = 0; m < kRows; ++m) acc[m] = _mm512_setzero_ps();
  for (int64_t k = 0; k < run.num_cols; ++k) {
    const __m512 w = weights<kKind>(run.panel, k);
    for (int m = 0; m < kRows; ++m)
      acc[m] = _mm512_fmadd_ps(w, _mm512_set1_ps(run.x[m * run.row_stride + k]), acc[m]);
  }
  for (int m = 0; m < kRows; ++m) _mm512_storeu_ps(run.out + m * kPanelRows, acc[m]);
}

template <PanelKind kKind>
constexpr LinearKernels::FloatFn kFloat[kMaxRows] = {
    float_panel<kKind, 1>, float_panel<kKind, 2>, float_panel<kKind, 3>, float_panel<kKind, 4>,
    float_panel<kKind, 5>, float_panel<kKind, 6>, float_panel<kKind, 7>, float_panel<kKind, 8>};

LinearKernels::FloatFn float_fn(PanelKind kind, int rows) {
  if (kind == PanelKind::kF32) return kFloat<PanelKind::kF32>[rows - 1];
  if (kind == PanelKind::kF16) return kFloat<PanelKind::kF16>[rows - 1];
  return kFloat<PanelKind::kBF16>[rows - 1];
}

}  // namespace
}  // namespace avx512

const LinearKernels& linear_kernels_avx512() {
  static constexpr LinearKernels kKernels = {
      avx512::kMaxRows,
      avx2::quantize_row,
      [](PanelKind, int bits) { return bits != 8; },
      [](PanelKind kind, int bits, int rows) {
        return bits == 8 ? avx512::narrow_fn(kind, rows) : avx512::wide_fn(kind, rows);
      },
      avx512::float_fn,
      0,  // eight rows a tile pay for reading the codes from the panel
      nullptr,
      nullptr,
  };
  return kKernels;
}

}  // namespace invar::cpu
