// Embedding lookup: one lane of a panel back to the fp32 row that the checkpoint's formulas give
// (dequantize_row), times a scale.
#include <cstring>

#include "backend/cpu/linear.h"
#include "backend/cpu/linear_kernels.h"
#include "tensor/quant.h"

namespace invar::cpu {
namespace {

void float_lane(const PanelFormat& format, const uint8_t* panel, int lane, int64_t num_cols,
                float* out) {
  for (int64_t k = 0; k < num_cols; ++k) {
    const int64_t entry = k * kPanelRows + lane;
    if (format.kind == PanelKind::kF32) {
      std::memcpy(out + k, panel + entry * 4, 4);
      continue;
    }
    uint16_t bits;
    std::memcpy(&bits, panel + entry * 2, 2);
    out[k] = format.kind == PanelKind::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  }
}

void quantized_lane(const PanelFormat& format, const uint8_t* panel, int lane, int64_t num_cols,
                    float* out) {
  const PanelLayout& layout = kPanelLayouts[static_cast<int>(format.kind)];
  const int groups_per_step = format.step_k / kGroup;
  GroupBlock block;
  for (int64_t g = 0; g < num_cols / kGroup; ++g) {
    unpack_group(format.kind, format.scale_dtype, groups_per_step,
                 panel + g / groups_per_step * format.step_bytes,
                 static_cast<int>(g % groups_per_step), block);
    for (int i = 0; i < kGroup; ++i) {
      const int sub = i * layout.subs / kGroup;
      const int code = block.operands[i / 4][lane * 4 + i % 4] - layout.zero;
      float value = block.scales[sub][lane] * static_cast<float>(code);
      if (layout.affine) value += block.biases[sub][lane];
      out[g * kGroup + i] = value;
    }
  }
}

}  // namespace

void embed(ThreadPool& pool, Isa, Tensor y, std::span<const int32_t> ids, const PackedWeight& table,
           float scale) {
  const auto& w = static_cast<const PackedPanels&>(table);
  INVAR_CHECK(w.order == PartOrder::kStacked, "a table of gate and up");
  const auto lookup = [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t id = ids[static_cast<size_t>(t)];
      INVAR_CHECK(id >= 0 && id < w.num_rows, "row %ld of %ld", long{id}, long{w.num_rows});
      size_t s = 0;
      while (id >= w.segments[s].first_row + w.segments[s].num_rows) ++s;
      const PanelSegment& segment = w.segments[s];
      const int64_t row = id - segment.first_row;
      const uint8_t* panel = w.memory.get() + segment.offset +
                             static_cast<size_t>(row / kPanelRows * segment.unit_bytes);
      const auto lane = static_cast<int>(row % kPanelRows);
      const bool floats = kPanelLayouts[static_cast<int>(segment.format.kind)].code_bits == 0;
      (floats ? float_lane : quantized_lane)(segment.format, panel, lane, w.num_cols, y.row(t));
      if (scale != 1.f)
        for (int64_t k = 0; k < w.num_cols; ++k) y.at(t, k) *= scale;
    }
  };
  const auto num_tokens = static_cast<int64_t>(ids.size());
  if (num_tokens > 8) {
    pool.run(num_tokens, lookup);
  } else {
    lookup(0, num_tokens, 0);
  }
}

}  // namespace invar::cpu
