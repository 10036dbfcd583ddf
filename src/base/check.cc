#include "base/check.h"

#include <cstdio>
#include <cstdlib>

#include "base/check_handler.h"

namespace invar {
namespace {
CheckFailedHandler g_handler = nullptr;
}

void on_check_failed(CheckFailedHandler handler) { g_handler = handler; }

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  const std::string text = format("%s:%d: %s: %s", file, line, condition, message.c_str());
  if (g_handler != nullptr) g_handler(text.c_str());
  std::fprintf(stderr, "invar: internal error at %s\n", text.c_str());
  std::abort();
}

}  // namespace invar
