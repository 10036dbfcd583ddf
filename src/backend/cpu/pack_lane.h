// One row of a checkpoint matrix into one lane of its panel.
#pragma once

#include "backend/cpu/panels.h"

namespace invar::cpu {

// The panel format of a part, or kUnsupported / kInvalidArgument for what panels cannot hold.
Result<PanelFormat> panel_format(const MatrixView& matrix);

// Writes row `row` of the matrix as lane `lane` of `panel` (panel_bytes, zero in that lane before).
void pack_lane(const MatrixView& matrix, const PanelFormat& format, int64_t row, int lane,
               uint8_t* panel);

}  // namespace invar::cpu
