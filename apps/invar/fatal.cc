#include "fatal.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>

#include "base/check_handler.h"
#include "base/log.h"
#include "exit_codes.h"
#include "terminal.h"

namespace invar::cli {
namespace {

constexpr size_t kMaxTerminationLog = 4096;

const char* exit_name(int code) {
  switch (code) {
    case kExitUsage:
      return "usage";
    case kExitModel:
      return "model";
    case kExitUnsupported:
      return "unsupported";
    case kExitMemory:
      return "memory";
    case kExitAddress:
      return "address";
    case kExitInternal:
      return "internal";
    case kExitStuck:
      return "stuck";
    case kExitDeviceLost:
      return "device_lost";
    default:
      return "failed";
  }
}

}  // namespace

int fatal(const std::string& termination_log, const std::string& cause, int code) {
  std::string line = format("fatal: %s: %s", exit_name(code), escape_control(cause).c_str());
  std::replace(line.begin(), line.end(), '\n', ' ');
  print_error(line + "\n");
  if (!termination_log.empty() && ::access(termination_log.c_str(), W_OK) == 0) {
    if (std::FILE* file = std::fopen(termination_log.c_str(), "w")) {
      std::fputs(line.substr(0, kMaxTerminationLog).c_str(), file);
      std::fclose(file);
    }
  }
  return code;
}

namespace {

std::string g_termination_log;  // for handlers, which get no arguments of ours

[[noreturn]] void end_now(const char* cause, int code) {
  // Nothing is destroyed: other threads run.
  ::_exit(fatal(g_termination_log, cause, code));
}

[[noreturn]] void end_internal(const char* cause) { end_now(cause, kExitInternal); }

}  // namespace

void end_mistakes_as_fatal(const std::string& termination_log) {
  g_termination_log = termination_log;
  static_assert(kCheckFailedCode == kExitInternal && kDeviceLostCode == kExitDeviceLost);
  on_fault(end_now);
  std::set_terminate([] {
    const std::exception_ptr thrown = std::current_exception();
    if (!thrown) end_internal("terminated");
    try {
      std::rethrow_exception(thrown);
    } catch (const std::exception& error) {
      end_internal(error.what());
    } catch (...) {
      end_internal("an exception of unknown type");
    }
  });
}

}  // namespace invar::cli
