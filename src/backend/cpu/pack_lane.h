// One row of a checkpoint matrix into one lane of its panel, a step at a time.
#pragma once

#include "backend/cpu/panels.h"

namespace invar::cpu {

// The panel format of a part, or kUnsupported / kInvalidArgument for what panels cannot hold.
Result<PanelFormat> panel_format(const MatrixView& matrix);

// Writes lane `lane` of a step: inputs [step_index * step_k, + step_k) of row `row`, as far as the
// row goes. `step` (step_bytes) is zero in that lane before.
void pack_lane(const MatrixView& matrix, const PanelFormat& format, int64_t row, int64_t step_index,
               int lane, uint8_t* step);

}  // namespace invar::cpu
