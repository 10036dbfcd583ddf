// Sweeps have two forms. The short one runs with all tests; `INVAR_SWEEP=full` in the environment
// takes every combination of formats, real shapes, row counts, threads and instruction sets, which
// is for a change of kernels (CONTRIBUTING.md):
//   INVAR_SWEEP=full build/release/tests/backend_tests --gtest_filter='*Sweep*'
#pragma once

#include <cstdlib>
#include <string_view>

namespace invar::test {

inline bool full_sweep() {
  const char* form = std::getenv("INVAR_SWEEP");
  return form != nullptr && std::string_view(form) == "full";
}

}  // namespace invar::test
