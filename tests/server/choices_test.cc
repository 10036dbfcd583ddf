// Several replies read as one, over an engine whose replies are written down.
#include "server/choices.h"

#include <gtest/gtest.h>

#include "scripted_streams.h"
#include "server/chat_reply.h"

namespace invar::server {
namespace {

using invar::testing::ScriptedEngine;
using invar::testing::ScriptedReply;

TokenEvent token(int32_t id) {
  TokenEvent event;
  event.id = id;
  return event;
}

TokenEvent progress(int64_t num_computed) {
  TokenEvent event;
  event.progress = PromptProgress{.num_computed_tokens = num_computed};
  return event;
}

TEST(Choices, AllEventsOfEachInItsOrder) {
  ScriptedEngine engine({{{token(1), token(2)}}, {{token(3)}}, {{}}});
  const auto choices = *Choices::start(engine, std::vector<GenerationRequest>(3));
  std::vector<std::vector<int32_t>> ids(3);
  int num_ended = 0;
  while (const std::optional<Choices::Event> event = choices->next()) {
    if (event->token)
      ids[static_cast<size_t>(event->index)].push_back(event->token->id);
    else
      ++num_ended;
  }
  EXPECT_EQ(ids, (std::vector<std::vector<int32_t>>{{1, 2}, {3}, {}}));
  EXPECT_EQ(num_ended, 3);
}

// A thread of ours reads each choice: what it throws must reach the one who asks, not end the
// process; and the other choices are given up.
TEST(Choices, MemoryThatRunsOutIsTheReadersToHear) {
  ScriptedEngine engine(
      {{.events = {}, .never_ends = true}, {.events = {token(1)}, .runs_out_of_memory = true}});
  auto choices = *Choices::start(engine, std::vector<GenerationRequest>(2));
  EXPECT_THROW(while (choices->next()){}, std::bad_alloc);
  choices.reset();  // ends the one that never does
}

TEST(ChatReply, OneChoiceTellsOfThePromptThatAllShare) {
  ScriptedEngine engine(
      {{{progress(1), progress(2), token(1)}}, {{progress(1), progress(2), token(2)}}});
  ChatRequest request;
  request.generation.num_choices = 2;
  request.prompt_ids = {7, 7};
  ChatReply reply(engine, std::move(request), "call_");
  ASSERT_FALSE(reply.start());
  std::vector<int64_t> told;
  int num_tokens = 0;
  while (const std::optional<ChatReply::Event> event = reply.next()) {
    if (event->progress) told.push_back(event->progress->num_computed_tokens);
    if (event->token_id) ++num_tokens;
  }
  EXPECT_EQ(told, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(num_tokens, 2);
}

}  // namespace
}  // namespace invar::server
