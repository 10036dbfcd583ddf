#include "models/needed_ops.h"

#include <string>

namespace invar {

Result<void> check_needed_ops(const NeededOps& needed, std::string_view family, Backend& backend) {
  const char* missing = nullptr;
  if (needed.recurrent != nullptr && backend.recurrent_ops() == nullptr) missing = needed.recurrent;
  if (missing == nullptr && needed.moe && backend.moe_ops() == nullptr) missing = "moe";
  if (missing == nullptr) return {};
  const std::string& name = backend.info().name;
  return unsupported("models of family %s need the op %s, which backend %s does not have; use %s",
                     std::string(family).c_str(), missing, name.c_str(),
                     name == "cpu" ? "another backend or another model" : "--backend cpu");
}

}  // namespace invar
