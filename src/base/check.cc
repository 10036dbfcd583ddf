#include "base/check.h"

#include <cstdio>
#include <cstdlib>

#include "base/check_handler.h"

namespace invar {
namespace {
FaultHandler g_handler = nullptr;
}

void on_fault(FaultHandler handler) { g_handler = handler; }

void handle_fault(const char* line, int exit_code) {
  if (g_handler != nullptr) g_handler(line, exit_code);
}

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  const std::string text = format("%s:%d: %s: %s", file, line, condition, message.c_str());
  handle_fault(text.c_str(), kCheckFailedCode);
  std::fprintf(stderr, "invar: internal error at %s\n", text.c_str());
  std::abort();
}

}  // namespace invar
