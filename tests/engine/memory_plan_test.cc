// What memory is free and how it is divided.
#include "engine/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/open.h"

namespace invar {
namespace {

using ::testing::HasSubstr;

TEST(FreeMemory, ReadsMeminfoAndCgroups) {
  EXPECT_EQ(parse_mem_available("MemTotal: 10 kB\nMemAvailable:    2048 kB\n"), 2048u * 1024);
  EXPECT_EQ(parse_mem_available("nothing"), 0u);
  EXPECT_EQ(cgroup_headroom("max\n", "5\n", ""), UINT64_MAX);
  EXPECT_EQ(cgroup_headroom("", "", ""), UINT64_MAX);
  EXPECT_EQ(cgroup_headroom("9223372036854771712\n", "5\n", ""), UINT64_MAX);
  EXPECT_EQ(cgroup_headroom("1000\n", "700\n", "anon 10\ninactive_file 300\n"), 600u);
  EXPECT_EQ(cgroup_headroom("1000\n", "1700\n", ""), 0u);
  EXPECT_GT(free_memory().bytes, 1u << 20);
}

MemoryQuestion question() {
  MemoryQuestion q;
  q.max_positions = 8192;
  q.page_bytes = 1 << 20;
  q.weight_bytes = 100 << 20;
  q.free_bytes = 1 << 30;
  q.max_sequences = 4;
  return q;
}

TEST(MemoryPlan, TakesTheFullWindowWhenItFits) {
  const auto plan = plan_memory(question());
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->context, 8192);
  EXPECT_EQ(plan->num_pages, 32);
  EXPECT_EQ(plan->kv_bytes, 32u << 20);
  MemoryQuestion small = question();
  small.context = 257;
  EXPECT_EQ(plan_memory(small)->num_pages, 2);
}

TEST(MemoryPlan, StatesOfRecurrentLayers) {
  const auto plan = [](uint64_t slot_bytes, int64_t cache_bytes, StateQuestion q = {}) {
    q.slot_bytes = slot_bytes;
    q.max_sequences = 4;
    q.cache_bytes = cache_bytes;
    q.weight_bytes = 1 << 30;
    q.free_bytes = uint64_t{2} << 30;
    return plan_states(q);
  };
  EXPECT_EQ(plan(0, -1)->bytes, 0u);
  EXPECT_EQ(plan(10 << 20, -1)->num_snapshots, 8);
  EXPECT_EQ(plan(10 << 20, -1)->bytes, 12u * (10 << 20));
  EXPECT_EQ(plan(60 << 20, -1)->num_snapshots, 2);  // an eighth of what the weights leave
  EXPECT_EQ(plan(60 << 20, 0)->num_snapshots, 0);
  EXPECT_EQ(plan(60 << 20, 600 << 20)->num_snapshots, 10);
  EXPECT_THAT(plan(60 << 20, 59 << 20).error().message, HasSubstr("one takes 62914560"));
  // Nothing is kept where no page is.
  EXPECT_EQ(plan(10 << 20, -1, {.prefix_cache_bytes = 0, .page_bytes = 1000})->num_snapshots, 0);
  EXPECT_EQ(plan(10 << 20, -1, {.prefix_cache_bytes = 999, .page_bytes = 1000})->num_snapshots, 0);
  EXPECT_EQ(plan(10 << 20, -1, {.prefix_cache_bytes = 1000, .page_bytes = 1000})->num_snapshots, 8);

  MemoryQuestion q = question();
  q.state_bytes = (1 << 30) - q.weight_bytes - (20 << 20);
  EXPECT_EQ(largest_context(q), 2560);
  q.state_bytes += 21 << 20;
  EXPECT_EQ(largest_context(q), 0);
  EXPECT_THAT(plan_memory(q).error().message,
              HasSubstr("lower max_sequences (--parallel) or state_cache_bytes"));
}

TEST(MemoryPlan, SaysWhatFits) {
  MemoryQuestion q = question();
  q.free_bytes = q.weight_bytes + (20 << 20);
  auto plan = plan_memory(q);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(plan.error().message, HasSubstr("a context of 2560 fits"));
  EXPECT_EQ(largest_context(q), 2560);
  q.context = largest_context(q);
  EXPECT_TRUE(plan_memory(q).ok());
  q.context += 1;
  EXPECT_FALSE(plan_memory(q).ok());
  q.context = 8192;
  q.kv_bytes = 32 << 20;  // the user knows better
  EXPECT_TRUE(plan_memory(q).ok());
  q.kv_bytes = 1000;
  EXPECT_THAT(plan_memory(q).error().message, HasSubstr("raise kv_bytes"));
  q.free_bytes = 1;
  EXPECT_THAT(plan_memory(q).error().message, HasSubstr("the weights take 100.0 MiB"));
  EXPECT_EQ(largest_context(q), 0);
}

TEST(MemoryPlan, RefusesMoreThanTheWindow) {
  MemoryQuestion q = question();
  q.context = 8193;
  EXPECT_EQ(plan_memory(q).error().code, ErrorCode::kInvalidArgument);
}

TEST(MemoryPlan, MorePagesForMoreSequencesWhenGiven) {
  MemoryQuestion q = question();
  q.kv_bytes = 100 << 20;
  EXPECT_EQ(plan_memory(q)->num_pages, 100);
  q.kv_bytes = 1000 << 20;
  EXPECT_EQ(plan_memory(q)->num_pages, 4 * 32);
}

TEST(MemoryPlan, WhatWasAskedForIsHeldAgainstWhatIsFree) {
  MemoryQuestion q = question();
  q.kv_bytes = 32 << 20;
  const auto plan = plan_memory(q);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(check_kv_room(*plan, q.page_bytes, {32 << 20, "MemAvailable"}).ok());
  const auto checked = check_kv_room(*plan, q.page_bytes, {20 << 20, "MemAvailable"});
  ASSERT_FALSE(checked.ok());
  EXPECT_EQ(checked.error().code, ErrorCode::kResourceExhausted);
  for (const char* part : {"kv_bytes", "context", "5120 positions fit", "MemAvailable"})
    EXPECT_THAT(checked.error().message, HasSubstr(part));
}

TEST(DefaultSampling, FollowsGenerationConfig) {
  const auto of = [](const char* text) { return default_sampling(*Json::parse(text), 100); };
  const SamplingParams params =
      of(R"({"temperature":0.7,"top_p":0.8,"top_k":20,"repetition_penalty":1.1,"do_sample":true})");
  EXPECT_FLOAT_EQ(params.temperature, 0.7f);
  EXPECT_FLOAT_EQ(params.top_p, 0.8f);
  EXPECT_EQ(params.top_k, 20);
  EXPECT_FLOAT_EQ(params.repetition_penalty, 1.1f);
  EXPECT_EQ(of(R"({"temperature":0.7,"do_sample":false})").temperature, 0);
  EXPECT_EQ(of(R"({"do_sample":true})").temperature, 1);
  EXPECT_EQ(of("{}").temperature, 0);
  EXPECT_EQ(default_sampling(Json(), 100).temperature, 0);
  EXPECT_EQ(of(R"({"temperature":-4,"top_k":3})").top_k, 0);  // nonsense is ignored whole
}

}  // namespace
}  // namespace invar
