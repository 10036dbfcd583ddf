// How a process ends that made a mistake or lost its device: by its handler, with the code.
#include "base/check.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "base/check_handler.h"

namespace invar {
namespace {

[[noreturn]] void end(const char* line, int exit_code) {
  std::fprintf(stderr, "handled: %s\n", line);
  ::_exit(exit_code);
}

TEST(CheckDeathTest, AFailedCheckGoesToTheHandler) {
  EXPECT_EXIT(
      {
        on_fault(end);
        INVAR_CHECK(1 > 2, "%d rows", 3);
      },
      testing::ExitedWithCode(70), "handled: .*check_test.cc:[0-9]+: 1 > 2: 3 rows");
}

TEST(CheckDeathTest, ALostDeviceHasItsOwnCode) {
  EXPECT_EXIT(
      {
        on_fault(end);
        handle_fault("cuda_fault error=x", kDeviceLostCode);
      },
      testing::ExitedWithCode(72), "handled: cuda_fault error=x");
}

TEST(CheckDeathTest, WithoutAHandlerItAborts) {
  handle_fault("nobody listens", kDeviceLostCode);  // returns
  EXPECT_EXIT(INVAR_CHECK(false, "why"), testing::KilledBySignal(SIGABRT), "false: why");
}

}  // namespace
}  // namespace invar
