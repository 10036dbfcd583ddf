// Who gets a place, who is refused and why, and that places come back.
#include "server/admission.h"

#include <gtest/gtest.h>

namespace invar::server {
namespace {

std::string code_of(const std::optional<ApiError>& error) { return error ? error->code : ""; }

TEST(Admission, QueueIsFullWhenItIs) {
  Admission admission({.max_running = 1, .max_waiting = 2});
  Admission::Place places[4];
  for (int i = 0; i < 3; ++i) EXPECT_EQ(code_of(admission.enter("", 10, places[i])), "");
  const std::optional<ApiError> error = admission.enter("", 10, places[3]);
  EXPECT_EQ(code_of(error), "queue_full");
  EXPECT_GT(error->retry_after_ms, 0);
  places[1] = {};
  EXPECT_EQ(code_of(admission.enter("", 10, places[3])), "");
}

TEST(Admission, BytesCountForThoseThatWait) {
  Admission admission({.max_running = 1, .max_waiting = 10, .max_waiting_bytes = 100});
  Admission::Place first, second, third;
  EXPECT_EQ(code_of(admission.enter("", 500, first)), "");  // runs at once, whatever its size
  EXPECT_EQ(code_of(admission.enter("", 60, second)), "queue_full");
  first = {};
  EXPECT_EQ(code_of(admission.enter("", 60, second)), "");
  EXPECT_EQ(code_of(admission.enter("", 40, third)), "");
}

TEST(Admission, KeysHaveLimitsOfTheirOwn) {
  Admission admission({.max_running = 4, .max_waiting = 10, .max_of_key = 2});
  Admission::Place places[4];
  EXPECT_EQ(code_of(admission.enter("a", 1, places[0])), "");
  EXPECT_EQ(code_of(admission.enter("a", 1, places[1])), "");
  EXPECT_EQ(code_of(admission.enter("a", 1, places[2])), "key_limit");
  EXPECT_EQ(code_of(admission.enter("b", 1, places[2])), "");
  places[0] = std::move(places[1]);  // one of a's two is given back
  EXPECT_EQ(code_of(admission.enter("a", 1, places[3])), "");
}

TEST(Admission, AHandlerKeepsItsPlaceUntilItReturns) {
  Admission admission({.max_running = 1, .max_waiting = 0});
  int num_runs = 0;
  const Handler handler = admission.guard([&](Request, std::shared_ptr<ResponseWriter>) {
    ++num_runs;
    Admission::Place other;
    EXPECT_EQ(code_of(admission.enter("", 1, other)), "queue_full");
  });
  handler({}, nullptr);
  handler({}, nullptr);
  EXPECT_EQ(num_runs, 2);
}

}  // namespace
}  // namespace invar::server
