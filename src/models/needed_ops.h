// Whether a backend has the kernels that only some families need: asked at load, so that no step
// finds out.
#pragma once

#include <string_view>

#include "backend/backend.h"
#include "base/result.h"

namespace invar {

struct NeededOps {
  const char* recurrent = nullptr;  // an op of RecurrentOps that the family runs; null: none
  bool moe = false;
};

// kUnsupported: names family, op, backend and remedy.
Result<void> check_needed_ops(const NeededOps& needed, std::string_view family, Backend& backend);

}  // namespace invar
