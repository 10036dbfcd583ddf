// Panels: how the CPU backend stores weights, and how it stores the activation rows that meet them.
// Data only; pack.cc fills panels, the kernels of each instruction set (linear_*.cc) read them.
//
// A panel is 16 consecutive output rows ("lanes") over the whole input dimension, stored as steps
// of step_k inputs. The unit of arithmetic is a group of 32 inputs, g = 0, 1, ... in ascending k. A
// group's weights are eight "operands": operand t holds the codes of k = 4t .. 4t + 3 as 64 bytes,
// byte 4 * lane + k % 4, which is what a 4-way byte dot product takes. Integers and scales are the
// file's, bit for bit. A step is, in this order:
//
//   scale section   see the table; lanes are neighbours, [group][16]
//   main codes      a group: 2 and 3 bits  two planes of 64 bytes (16 inputs each): operand t in
//   plane
//                                          t / 4 at bit 2 (t % 4)
//                            4 to 6 bits   four vectors of 64 bytes: operand 2j low, 2j + 1 high
//                            nibble 8 bits        eight vectors of 64 bytes
//   extra bits      a group: 3 bits        one plane of third bits: operand t at bit (2 - t) mod 8
//                            5 bits        one plane of fifth bits: operand t at bit (4 - t) mod 8
//                            6 bits        two planes of 64 bytes (16 inputs each): the upper pair
//                            of
//                                          operand t at bit (4 - 2 t) mod 8
//
//   format   step  scale section (bytes)                                                bits a
//   weight Q4_0       64  2 x 16 fp16 scales                                          (64)     4.50
//   Q4_1       64  2 x 16 fp16 scales, 2 x 16 fp16 mins                        (128)    5.00
//   Q5_0       64  as Q4_0                                                     (64)     5.50
//   Q5_1       64  as Q4_1                                                     (128)    6.00
//   Q8_0       64  as Q4_0; codes are the file's + 128                         (64)     8.50
//   IQ4_NL     64  as Q4_0; codes index a table of 128 + value                 (64)     4.50
//   MXFP4     128  4 x 16 E8M0 bytes; codes index a table of 12 + 2 x value    (64)     4.25
//   Q2_K      256  16 D, 16 Dmin (fp16), 16 x 16 bytes sub-scale + 16 sub-min  (320)    2.63
//   Q3_K      256  16 D (fp16), 32 unused, 16 x 16 int8 sub-scales             (320)    3.63
//   Q4_K Q5_K 256  16 D, 16 Dmin, 8 x (16 sub-scales, 16 sub-mins) bytes       (320)    4.63 5.63
//   Q6_K      256  16 D (fp16), 32 unused, 16 x 16 int8 sub-scales             (320)    6.63
//   IQ4_XS    256  16 D (fp16), 32 unused, 8 x 16 int8 sub-scales              (192)    4.38
//   MLX b, g    g  16 scales, 16 biases as in the file: 2 or 4 bytes each      (64, 128)  b + 32 /
//   g F32         1  none; 16 floats F16 BF16    2  none; 2 x 16 halves
//
// Rows are padded to 16 and inputs to the step with zeros; the kernels stop at the last real group,
// and pad lanes are never stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/pack_memory.h"

namespace invar::cpu {

// Names everything above this line. Whoever changes what bytes pack() makes counts it up, so that
// panels on disk (cache/packed_cache.h) are made again; tests/backend/cpu_pack_test.cc freezes it.
inline constexpr const char* kPanelLayout = "cpu-panels-1";

inline constexpr int kPanelRows = 16;
inline constexpr int kGroup = 32;

enum class PanelKind : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  kMlx2,
  kMlx3,
  kMlx4,
  kMlx5,
  kMlx6,
  kMlx8,
  kCount
};

enum class CodeTable : uint8_t { kNone, kIq4, kMxfp4 };

// What a kernel has to know at compile time. weight = s * (code - zero) for symmetric kinds, s *
// code + b for affine ones; `code` after the table.
struct PanelLayout {
  int code_bits;  // 0: floats
  CodeTable table;
  int zero;
  int subs;  // scales a group of 32: 1, or 2 (one for each 16 inputs)
  bool affine;
  int step_k;       // 0: the tensor's own group size (MLX)
  int scale_bytes;  // of a step; 0: follows the tensor's scale type (MLX)
};

inline constexpr PanelLayout kPanelLayouts[static_cast<int>(PanelKind::kCount)] = {
    {0, CodeTable::kNone, 0, 0, false, 1, 0},       // F32
    {0, CodeTable::kNone, 0, 0, false, 2, 0},       // F16
    {0, CodeTable::kNone, 0, 0, false, 2, 0},       // BF16
    {4, CodeTable::kNone, 8, 1, false, 64, 64},     // Q4_0
    {4, CodeTable::kNone, 0, 1, true, 64, 128},     // Q4_1
    {5, CodeTable::kNone, 16, 1, false, 64, 64},    // Q5_0
    {5, CodeTable::kNone, 0, 1, true, 64, 128},     // Q5_1
    {8, CodeTable::kNone, 128, 1, false, 64, 64},   // Q8_0
    {2, CodeTable::kNone, 0, 2, true, 256, 320},    // Q2_K
    {3, CodeTable::kNone, 4, 2, false, 256, 320},   // Q3_K
    {4, CodeTable::kNone, 0, 1, true, 256, 320},    // Q4_K
    {5, CodeTable::kNone, 0, 1, true, 256, 320},    // Q5_K
    {6, CodeTable::kNone, 32, 2, false, 256, 320},  // Q6_K
    {4, CodeTable::kIq4, 128, 1, false, 64, 64},    // IQ4_NL
    {4, CodeTable::kIq4, 128, 1, false, 256, 192},  // IQ4_XS
    {4, CodeTable::kMxfp4, 12, 1, false, 128, 64},  // MXFP4
    {2, CodeTable::kNone, 0, 1, true, 0, 0},        // MLX 2 bits
    {3, CodeTable::kNone, 0, 1, true, 0, 0},        // MLX 3 bits
    {4, CodeTable::kNone, 0, 1, true, 0, 0},        // MLX 4 bits
    {5, CodeTable::kNone, 0, 1, true, 0, 0},        // MLX 5 bits
    {6, CodeTable::kNone, 0, 1, true, 0, 0},        // MLX 6 bits
    {8, CodeTable::kNone, 0, 1, true, 0, 0},        // MLX 8 bits
};

// Bytes of a group's main codes and extra bits, by code_bits.
inline constexpr int kMainBytes[9] = {0, 0, 128, 128, 256, 256, 256, 0, 512};
inline constexpr int kExtraBytes[9] = {0, 0, 0, 64, 0, 64, 128, 0, 0};

// 128 + the IQ4 values; 12 + the doubled MXFP4 values.
inline constexpr uint8_t kIq4Codes[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                          129, 141, 153, 166, 181, 197, 217, 241};
inline constexpr uint8_t kMxfp4Codes[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                            12, 11, 10, 9,  8,  6,  4,  0};

// The panels of one matrix part.
struct PanelFormat {
  PanelKind kind = PanelKind::kF32;
  DType scale_dtype = DType::kF16;  // MLX: type of scales and biases
  int step_k = 0;
  int step_bytes = 0;
  int scale_bytes = 0;
  int64_t panel_bytes = 0;  // over all of K
};

// A run of panels of one format, or (gate and up) of pairs of panels: gate panel, up panel, ...
struct PanelSegment {
  PanelFormat format;
  PanelFormat up;          // gate and up only
  int64_t first_unit = 0;  // a unit is a panel or a pair
  int64_t num_units = 0;
  int64_t unit_bytes = 0;
  int64_t first_row = 0;  // output column of the first lane
  int64_t num_rows = 0;   // real rows
  size_t offset = 0;      // of the first unit in memory
};

class PackedPanels final : public PackedWeight {
 public:
  PartOrder order = PartOrder::kStacked;
  MatrixRole role = MatrixRole::kInner;
  int activation_bits = 8;  // 8 or 12
  int64_t num_units = 0;
  std::vector<PanelSegment> segments;  // in order of first_unit, without gaps
  PanelMemory memory;
};

// ---- Activation rows
// -----------------------------------------------------------------------------

inline constexpr int kTileSlots = 8;

// What the kernels need of one group of eight rows beside the values; [slot]. `sum` is the sum of
// the group's integers, `half` that of its first and second 16 inputs. start: two int16, the
// negated sums over k % 4 in {0, 1} and {2, 3}, from which an int16 accumulator begins when weights
// have a zero point.
struct alignas(64) GroupSums {
  float scale[kTileSlots];
  float scaled_sum[kTileSlots];  // scale * float(sum)
  int32_t sum[kTileSlots];
  uint32_t start[kTileSlots];
  float scaled_sum_half[2][kTileSlots];
  int32_t sum_half[2][kTileSlots];
  uint32_t start_half[2][kTileSlots];
};

// Eight rows as the kernels read them: [group][slot][32], `quads` with every four values stored in
// the order 0 2 1 3 (so that the even and the odd bytes of an operand, widened to 16 bits, meet
// their own). 12-bit activations have `quads` only.
struct ActivationTile {
  int8_t* bytes = nullptr;
  int16_t* quads = nullptr;
  GroupSums* sums = nullptr;
};

// A group unpacked once for many rows. scales and biases: [sub][lane].
struct alignas(64) GroupBlock {
  uint8_t operands[8][64];
  float scales[2][kPanelRows];
  float biases[2][kPanelRows];
};

}  // namespace invar::cpu
