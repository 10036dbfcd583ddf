// What operators read of warnings: each kind once.
#include "server/warning_log.h"

#include <gtest/gtest.h>

namespace invar::server {
namespace {

TEST(WarningLog, EachCodeOnceAndEachUnknownField) {
  ::testing::internal::CaptureStderr();
  WarningLog log;
  EXPECT_EQ(log.note({{"ignored_field", "foo", "unknown"}, {"no_drafter", "draft", "none"}}), 2);
  EXPECT_EQ(log.note({{"ignored_field", "foo", "unknown"}, {"no_drafter", "speculative", "n"}}), 0);
  EXPECT_EQ(log.note({{"ignored_field", "bar\x1b", "unknown"}}), 1);
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(lines.find("ignored_field of 'foo'"), std::string::npos) << lines;
  EXPECT_NE(lines.find("'bar\\x1b'"), std::string::npos) << lines;
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3);
}

TEST(WarningLog, InventedNamesDoNotFillTheLog) {
  ::testing::internal::CaptureStderr();
  WarningLog log;
  int num_lines = 0;
  for (int i = 0; i < 1000; ++i) num_lines += log.note({{"ignored_field", std::to_string(i), ""}});
  EXPECT_EQ(num_lines, 256);
  EXPECT_EQ(log.note({{"no_drafter", "", ""}}), 1);  // nor keep others out of it
  ::testing::internal::GetCapturedStderr();
}

}  // namespace
}  // namespace invar::server
