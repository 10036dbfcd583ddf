// The AArch64 tables of linear kernels, and the kernels of floating point weights.
#include "backend/cpu/linear_neon.h"

#include "backend/cpu/linear_operands_arm.h"

namespace invar::cpu {
namespace neon {
namespace {

constexpr int kMaxRows = 8;

template <PanelKind kKind>
INVAR_INLINE float32x4_t weights(const uint8_t* at, int v) {
  if constexpr (kKind == PanelKind::kF32) return vreinterpretq_f32_u8(vld1q_u8(at + v * 16));
  if constexpr (kKind == PanelKind::kF16) return halves(at, v);
  return bf16(at, v);
}

// Up to four rows against all 16 lanes, more against 8 at a time: the sums stay in registers.
template <PanelKind kKind, int kRows>
void float_panel(const FloatRun& run) {
  constexpr int kRegisters = kRows <= 4 ? 4 : 2;
  constexpr int kBytes = kKind == PanelKind::kF32 ? 64 : 32;
  for (int first = 0; first < 4; first += kRegisters) {
    float32x4_t acc[kRows][kRegisters];
    INVAR_UNROLL for (int m = 0; m < kRows; ++m) INVAR_UNROLL for (int r = 0; r < kRegisters; ++r)
        acc[m][r] = vdupq_n_f32(0);
    const uint8_t* at = run.panel;
    for (int64_t k = 0; k < run.num_cols; ++k, at += kBytes) {
      float32x4_t w[kRegisters];
      INVAR_UNROLL for (int r = 0; r < kRegisters; ++r) w[r] = weights<kKind>(at, first + r);
      INVAR_UNROLL for (int m = 0; m < kRows; ++m) {
        const float x = run.x[m * run.row_stride + k];
        INVAR_UNROLL for (int r = 0; r < kRegisters; ++r) acc[m][r] =
            vfmaq_n_f32(acc[m][r], w[r], x);
      }
    }
    INVAR_UNROLL for (int m = 0; m < kRows; ++m) INVAR_UNROLL for (int r = 0; r < kRegisters; ++r)
        vst1q_f32(run.out + m * kPanelRows + (first + r) * 4, acc[m][r]);
  }
}

template <PanelKind kKind>
constexpr LinearKernels::FloatFn kFloat[kMaxRows] = {
    float_panel<kKind, 1>, float_panel<kKind, 2>, float_panel<kKind, 3>, float_panel<kKind, 4>,
    float_panel<kKind, 5>, float_panel<kKind, 6>, float_panel<kKind, 7>, float_panel<kKind, 8>};

// From two tiles on, codes are unpacked (and, for i8mm, zipped) once for all of them.
constexpr int kMinBlockRows = 16;

}  // namespace

LinearKernels::FloatFn float_fn(PanelKind kind, int rows) {
  if (kind == PanelKind::kF32) return kFloat<PanelKind::kF32>[rows - 1];
  if (kind == PanelKind::kF16) return kFloat<PanelKind::kF16>[rows - 1];
  return kFloat<PanelKind::kBF16>[rows - 1];
}

}  // namespace neon

const LinearKernels& linear_kernels_neon() {
  static constexpr LinearKernels kKernels = {
      neon::kMaxRows,
      neon::quantize_row,
      [](PanelKind, int bits) { return bits != 8; },
      [](PanelKind kind, int bits, int rows) {
        return bits == 8 ? neon::narrow_fn(kind, rows) : neon::wide_fn(kind, rows);
      },
      neon::float_fn,
      neon::kMinBlockRows,
      neon::unpack_panel,
      neon::block_fn,
  };
  return kKernels;
}

const LinearKernels& linear_kernels_i8mm() {
  static constexpr LinearKernels kKernels = {
      neon::kMaxRows,
      neon::quantize_row,
      [](PanelKind, int bits) { return bits != 8; },
      [](PanelKind kind, int bits, int rows) {
        return bits == 8 ? i8mm::narrow_fn(kind, rows) : i8mm::wide_fn(kind, rows);
      },
      neon::float_fn,
      neon::kMinBlockRows,
      i8mm::unpack_panel,
      i8mm::block_fn,
  };
  return kKernels;
}

}  // namespace invar::cpu
