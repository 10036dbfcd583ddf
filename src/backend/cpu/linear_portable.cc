// The linear kernels in plain C++: the arithmetic "cpu-1" written out, the oracle for every other
// set, and what runs where no other set does. One group g of 32 inputs, one row, one lane:
//
//   symmetric   d = sum of (code - zero) * q, exact in int32
//               acc = fma(float(d), s * a, acc)                        a: the row's scale of the
//               group
//   affine      d = sum of code * q; z = sum of q
//               acc = fma(float(d), s * a, acc); acc = fma(b, a * float(z), acc)
//   two scales  the same for each half of 16 inputs, first half first
//
// Groups ascend; acc starts at +0; nothing else is rounded.
#include <cmath>
#include <cstring>

#include "backend/cpu/linear_kernels.h"
#include "tensor/quant.h"

namespace invar::cpu {
namespace {

constexpr int kMaxRows = 8;

// ---- Quantizing a row
// ------------------------------------------------------------------------------

// Round to nearest even for |v| < 2^22, and in a form that compilers vectorise.
float round_even(float v) {
  constexpr float kMagic = 12582912.f;  // 1.5 * 2^23
  return (v + kMagic) - kMagic;
}

bool quantize_row(const float* x, int64_t num_groups, int bits, const ActivationTile& tile,
                  int slot) {
  const float limit = bits == 8 ? 127.f : 2047.f;
  bool finite = true;
  for (int64_t g = 0; g < num_groups; ++g, x += kGroup) {
    // The largest magnitude through its bits: order-free, and NaN and inf stand above all others.
    int32_t amax_bits = 0;
    for (int i = 0; i < kGroup; ++i) {
      int32_t v;
      std::memcpy(&v, x + i, 4);
      v &= 0x7fffffff;
      amax_bits = v > amax_bits ? v : amax_bits;
    }
    float amax;
    std::memcpy(&amax, &amax_bits, 4);
    const bool group_finite = amax_bits < 0x7f800000;
    finite = finite && group_finite;
    float inverse = group_finite && amax > 0 ? limit / amax : 0.f;
    if (!(inverse <= 3.402823466e38f)) inverse = 0.f;  // amax below 6e-36: the group counts as zero
    const float scale = inverse > 0 ? amax / limit : 0.f;

    int32_t q[kGroup];
    for (int i = 0; i < kGroup; ++i)
      q[i] = inverse > 0 ? static_cast<int32_t>(round_even(x[i] * inverse)) : 0;
    int32_t pair[2][2] = {};  // [half][k % 4 in {2, 3}]
    for (int i = 0; i < kGroup; ++i) pair[i / 16][i % 4 / 2] += q[i];

    const int64_t entry = g * kTileSlots + slot;
    if (tile.bytes != nullptr)
      for (int i = 0; i < kGroup; ++i) tile.bytes[entry * kGroup + i] = static_cast<int8_t>(q[i]);
    if (tile.quads != nullptr) {
      int16_t* out = tile.quads + entry * kGroup;
      for (int i = 0; i < kGroup; i += 4) {
        out[i] = static_cast<int16_t>(q[i]);
        out[i + 1] = static_cast<int16_t>(q[i + 2]);
        out[i + 2] = static_cast<int16_t>(q[i + 1]);
        out[i + 3] = static_cast<int16_t>(q[i + 3]);
      }
    }
    const auto negated = [](int32_t even, int32_t odd) {
      return (static_cast<uint32_t>(-even) & 0xffff) | static_cast<uint32_t>(-odd) << 16;
    };
    GroupSums& sums = tile.sums[g];
    int32_t half[2];
    for (int h = 0; h < 2; ++h) {
      half[h] = pair[h][0] + pair[h][1];
      sums.sum_half[h][slot] = half[h];
      sums.scaled_sum_half[h][slot] = scale * static_cast<float>(half[h]);
      sums.start_half[h][slot] = negated(pair[h][0], pair[h][1]);
    }
    sums.scale[slot] = scale;
    sums.sum[slot] = half[0] + half[1];
    sums.scaled_sum[slot] = scale * static_cast<float>(half[0] + half[1]);
    sums.start[slot] = negated(pair[0][0] + pair[1][0], pair[0][1] + pair[1][1]);
  }
  return finite;
}

// ---- One panel
// -------------------------------------------------------------------------------------

// The kernel walks k by k over 16 lanes: codes as [32 inputs][16 lanes]. Integers are held in
// floats, which every compiler vectorises; all sums stay below 2^24 (32 * 255 * 2047), so they are
// exact and their order is free.
void to_input_order(const GroupBlock& block, int zero, float (*codes)[kPanelRows]) {
  const auto centre = static_cast<float>(zero);
  for (int t = 0; t < 8; ++t) {
    uint32_t words[kPanelRows];
    std::memcpy(words, block.operands[t], sizeof words);
    for (int o = 0; o < 4; ++o)
      for (int lane = 0; lane < kPanelRows; ++lane)
        codes[t * 4 + o][lane] =
            static_cast<float>(static_cast<int32_t>((words[lane] >> (8 * o)) & 255)) - centre;
  }
}

// Inputs [first, first + count) of one row against 16 lanes.
void dot(const float (*codes)[kPanelRows], const float* q, int first, int count, float* d) {
  float sum[kPanelRows] = {};
  for (int k = first; k < first + count; ++k)
    for (int lane = 0; lane < kPanelRows; ++lane) sum[lane] += codes[k][lane] * q[k];
  std::memcpy(d, sum, sizeof sum);
}

// A row's 32 values of a group, whichever form it is stored in.
void load_values(const PanelRun& run, bool quads, int64_t entry, float* q) {
  for (int i = 0; i < kGroup; ++i) {
    if (quads) {
      const int from = i % 4 == 1 ? i + 1 : i % 4 == 2 ? i - 1 : i;
      q[i] = static_cast<float>(run.quads[entry * kGroup + from]);
    } else {
      q[i] = static_cast<float>(run.bytes[entry * kGroup + i]);
    }
  }
}

template <bool kQuads>
void panel(const PanelRun& run) {
  const PanelLayout& layout = kPanelLayouts[static_cast<int>(run.kind)];
  const int scale_bytes = layout.scale_bytes != 0          ? layout.scale_bytes
                          : run.scale_dtype == DType::kF32 ? 128
                                                           : 64;
  const int step_bytes = scale_bytes + run.groups_per_step * (kMainBytes[layout.code_bits] +
                                                              kExtraBytes[layout.code_bits]);
  const int inputs = kGroup / layout.subs;
  float acc[kMaxRows][kPanelRows] = {};
  GroupBlock block;
  float codes[kGroup][kPanelRows];
  for (int64_t g = 0; g < run.num_groups; ++g) {
    unpack_group(run.kind, run.scale_dtype, run.groups_per_step,
                 run.panel + g / run.groups_per_step * step_bytes,
                 static_cast<int>(g % run.groups_per_step), block);
    to_input_order(block, layout.zero, codes);
    const GroupSums& sums = run.sums[g];
    for (int m = 0; m < run.rows; ++m) {
      const int slot = run.first_slot + m;
      float q[kGroup];
      load_values(run, kQuads, g * kTileSlots + m, q);
      for (int sub = 0; sub < layout.subs; ++sub) {
        float d[kPanelRows];
        dot(codes, q, sub * inputs, inputs, d);
        const float scaled_sum =
            layout.subs == 1 ? sums.scaled_sum[slot] : sums.scaled_sum_half[sub][slot];
        for (int lane = 0; lane < kPanelRows; ++lane) {
          acc[m][lane] =
              std::fma(d[lane], block.scales[sub][lane] * sums.scale[slot], acc[m][lane]);
          if (layout.affine)
            acc[m][lane] = std::fma(block.biases[sub][lane], scaled_sum, acc[m][lane]);
        }
      }
    }
  }
  std::memcpy(run.out, acc, sizeof acc[0] * static_cast<size_t>(run.rows));
}

// Floating point weights: acc = fma(w, x, acc) in ascending k.
void float_panel(const FloatRun& run) {
  float acc[kMaxRows][kPanelRows] = {};
  for (int64_t k = 0; k < run.num_cols; ++k) {
    float w[kPanelRows];
    for (int lane = 0; lane < kPanelRows; ++lane) {
      if (run.kind == PanelKind::kF32) {
        std::memcpy(&w[lane], run.panel + (k * kPanelRows + lane) * 4, 4);
      } else {
        uint16_t bits;
        std::memcpy(&bits, run.panel + (k * kPanelRows + lane) * 2, 2);
        w[lane] = run.kind == PanelKind::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
      }
    }
    for (int m = 0; m < run.rows; ++m)
      for (int lane = 0; lane < kPanelRows; ++lane)
        acc[m][lane] = std::fma(w[lane], run.x[m * run.row_stride + k], acc[m][lane]);
  }
  std::memcpy(run.out, acc, sizeof acc[0] * static_cast<size_t>(run.rows));
}

}  // namespace

const LinearKernels& linear_kernels_portable() {
  static constexpr LinearKernels kKernels = {
      kMaxRows,
      quantize_row,
      [](PanelKind, int bits) { return bits != 8; },
      [](PanelKind, int bits, int) -> LinearKernels::PanelFn {
        return bits == 8 ? panel<false> : panel<true>;
      },
      [](PanelKind, int) -> LinearKernels::FloatFn { return float_panel; },
      0,
      nullptr,
      nullptr,
  };
  return kKernels;
}

}  // namespace invar::cpu
