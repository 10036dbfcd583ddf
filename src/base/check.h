// INVAR_CHECK: an invariant of our own. On in every build; prints and ends the process. Input from
// outside never reaches one: it is turned away with a Result first.
#pragma once

#include "base/result.h"

namespace invar {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);

}  // namespace invar

// INVAR_CHECK(a == b, "a %d, b %d", a, b);
#define INVAR_CHECK(condition, ...)                                                        \
  do {                                                                                     \
    if (!(condition)) [[unlikely]]                                                         \
      ::invar::check_failed(__FILE__, __LINE__, #condition, ::invar::format(__VA_ARGS__)); \
  } while (false)
