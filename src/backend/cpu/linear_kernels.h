// The table of linear kernels that each instruction set fills in; linear.cc calls through it and
// knows no instruction set. All sets compute the same bits (the sequence is written out in
// linear_portable.cc).
#pragma once

#include "backend/cpu/isa.h"
#include "backend/cpu/panels.h"

namespace invar::cpu {

// One panel against 1 to max_rows rows of one tile. Results: out[row * 16 + lane].
struct PanelRun {
  const uint8_t* panel = nullptr;      // or
  const GroupBlock* blocks = nullptr;  // the same, unpacked
  PanelKind kind = PanelKind::kF32;
  int rows = 0;
  int64_t num_groups = 0;
  int groups_per_step = 0;
  DType scale_dtype = DType::kF16;
  const int8_t* bytes = nullptr;  // values of the first row used
  const int16_t* quads = nullptr;
  const GroupSums* sums = nullptr;  // of the tile; rows are slots first_slot, ...
  int first_slot = 0;
  float* out = nullptr;
};

// The same for weights in floating point; no activation tile.
struct FloatRun {
  const uint8_t* panel = nullptr;
  PanelKind kind = PanelKind::kF32;
  int rows = 0;
  int64_t num_cols = 0;
  const float* x = nullptr;
  int64_t row_stride = 0;
  float* out = nullptr;
};

struct LinearKernels {
  using PanelFn = void (*)(const PanelRun& run);
  using FloatFn = void (*)(const FloatRun& run);

  int max_rows;  // of a tile: 1 .. 8

  // Quantizes one row into slot `slot` of a tile: a group's scale is amax / limit with limit 127
  // (bits 8) or 2047 (12). Groups too small for a finite limit / amax count as zero. False if some
  // value is not finite; such groups count as zero too. Null members of the tile are not written. A
  // set may keep 12-bit values in a form of its own in the memory of `quads`, and leave out sums
  // that its kernels do not read.
  bool (*quantize_row)(const float* x, int64_t num_groups, int bits, const ActivationTile& tile,
                       int slot);

  // Does this kind read `quads` (else `bytes`)?
  bool (*reads_quads)(PanelKind kind, int bits);

  // 1 <= rows <= max_rows.
  PanelFn (*panel_fn)(PanelKind kind, int bits, int rows);
  FloatFn (*float_fn)(PanelKind kind, int rows);

  // Rows of a block from which unpacking once pays. 0: never, then the two below are null.
  int min_block_rows;
  void (*unpack_panel)(const PanelRun& run, GroupBlock* out);
  PanelFn (*block_fn)(PanelKind kind, int bits, int rows);
};

// X(kind) for every quantized kind: the cases of a set's switch from kind to instance.
#define INVAR_QUANTIZED_KINDS(X) \
  X(kQ4_0)                       \
  X(kQ4_1)                       \
  X(kQ5_0)                       \
  X(kQ5_1)                       \
  X(kQ8_0)                       \
  X(kQ2_K)                       \
  X(kQ3_K)                       \
  X(kQ4_K)                       \
  X(kQ5_K)                       \
  X(kQ6_K)                       \
  X(kIQ4_NL)                     \
  X(kIQ4_XS)                     \
  X(kMXFP4)                      \
  X(kMlx2)                       \
  X(kMlx3)                       \
  X(kMlx4)                       \
  X(kMlx5)                       \
  X(kMlx6)                       \
  X(kMlx8)

const LinearKernels& linear_kernels_portable();
const LinearKernels& linear_kernels_avx2();
const LinearKernels& linear_kernels_avxvnni();
const LinearKernels& linear_kernels_avx512();
const LinearKernels& linear_kernels_neon();
const LinearKernels& linear_kernels_i8mm();

// One group of a panel, plain C++; used by the portable kernels and by the embedding lookup.
void unpack_group(PanelKind kind, DType scale_dtype, int groups_per_step, const uint8_t* step,
                  int group, GroupBlock& out);

}  // namespace invar::cpu
