// The AVX-VNNI table of linear kernels. Only the dot products of quantized weights change against
// AVX2: rows are quantized, panels unpacked and floating point weights multiplied by the AVX2 code,
// as attention and the row ops are (simd_kernels.cc).
#include "backend/cpu/linear_avxvnni.h"

#include "backend/cpu/linear_avx2.h"

namespace invar::cpu {

const LinearKernels& linear_kernels_avxvnni() {
  static_assert(avxvnni::kMaxRows <= avx2::kMaxRows, "float_fn is AVX2's");
  static constexpr LinearKernels kKernels = {
      avxvnni::kMaxRows,
      avx2::quantize_row,
      [](PanelKind, int bits) { return bits != 8; },
      [](PanelKind kind, int bits, int rows) {
        return bits == 8 ? avxvnni::bytes_fn(kind, rows) : avxvnni::quads_fn(kind, rows);
      },
      avx2::float_fn,
      16,
      avx2::unpack_panel,
      [](PanelKind kind, int bits, int rows) {
        return bits == 8 ? avxvnni::bytes_block_fn(kind, rows)
                         : avxvnni::quads_block_fn(kind, rows);
      },
  };
  return kKernels;
}

}  // namespace invar::cpu
