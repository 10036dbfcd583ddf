// Errors of the engine as clients see them.
#include "server/answer_parts.h"

#include <gtest/gtest.h>

namespace invar::server {
namespace {

TEST(AnswerParts, WhatTheModelCannotReadIsTheRequestsFault) {
  const ApiError error = engine_api_error({ErrorCode::kUnsupported, "parts of type 'x'"});
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.code, "unsupported_content");
}

// The same request refused at its start is too large; ended on the way it may come again.
TEST(AnswerParts, MemoryThatRanOutOnTheWay) {
  const Error full{ErrorCode::kResourceExhausted, "full"};
  EXPECT_EQ(engine_api_error(full).code, "request_too_large_for_memory");
  GenerationResult result;
  result.finish_reason = FinishReason::kError;
  result.error = full;
  const std::optional<ApiError> error = reply_error(result);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->status, 503);
  EXPECT_EQ(error->code, "no_memory");
  EXPECT_EQ(error->retry_after_ms, 1000);
  EXPECT_TRUE(error->should_retry);
}

TEST(AnswerParts, FaultsThatWouldComeAgain) {
  const ApiError error = running_error({ErrorCode::kCorrupt, "a logit is no number"});
  EXPECT_EQ(error.code, "nan_logits");
  EXPECT_FALSE(error.should_retry);
  EXPECT_TRUE(running_error({ErrorCode::kUnavailable, "many wait"}).should_retry);
}

}  // namespace
}  // namespace invar::server
