// Memory that runs out, at every allocation that a request makes inside the engine: the request (or
// the newest one) ends with an error, the others with their own tokens, and nothing is left behind.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "base/log.h"
#include "cache/prefix_cache.h"
#include "cache/temporary_folder.h"
#include "engine/fakes.h"

namespace {

// The allocation that fails, counted down by all threads but those that are exempt.
std::atomic<int64_t> countdown = 0;  // 0: none
thread_local bool is_exempt = false;

bool fails_now() {
  if (is_exempt) return false;
  int64_t left = countdown.load(std::memory_order_relaxed);
  while (left > 0 && !countdown.compare_exchange_weak(left, left - 1)) {
  }
  return left == 1;
}

void* allocate(size_t size, size_t alignment) {
  if (fails_now()) throw std::bad_alloc();
  void* memory = alignment > alignof(std::max_align_t)
                     ? std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment)
                     : std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// All of this program's.
void* operator new(size_t size) { return allocate(size, 0); }
void* operator new(size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace invar {
namespace {

using namespace testing;

class LetterParser : public ReplyParser {
 public:
  std::vector<ReplyPart> push(std::string_view text) override {
    std::vector<ReplyPart> parts;
    for (const char c : text) {
      const bool is_low = static_cast<uint8_t>(c) < 128;
      parts.push_back({is_low ? ReplyPart::Kind::kContent : ReplyPart::Kind::kReasoning,
                       std::string(1, c), num_bytes_++});
    }
    return parts;
  }
  std::vector<ReplyPart> finish() override { return {}; }
  bool in_reasoning() const override { return false; }

 private:
  size_t num_bytes_ = 0;
};

GenerationRequest request_of(uint64_t seed, const std::string& salt = {}) {
  GenerationRequest request;
  request.prompt = std::string(300, 'x') + std::to_string(seed);
  request.max_tokens = 6;
  request.ignore_end = true;
  request.sampling.temperature = 1;
  request.sampling.repetition_penalty = 1.1f;
  request.sampling.seed = seed;
  request.stop = {"no such text"};
  request.top_logprobs = 2;
  request.report_progress = true;
  request.cache_salt = salt;
  request.min_tokens = seed == 0 ? 3 : 0;
  if (seed == 1) request.make_parser = [] { return std::make_unique<LetterParser>(); };
  return request;
}

void check_failing_allocations(bool is_recurrent) {
  set_log_level(LogLevel::kError);
  is_exempt = true;
  // Pages for two and a half: preemption, eviction and the prefix cache take part.
  EngineParts parts = fake_parts({.context = 512,
                                  .num_pages = 5,
                                  .prefill_chunk = 64,
                                  .is_recurrent = is_recurrent,
                                  .num_state_snapshots = 2});
  parts.backend = std::make_unique<FakePagesBackend>();
  const TemporaryFolder folder;
  PageStoreOptions store;
  store.folder = folder.path() + "/pages";
  store.max_bytes = 8 * FakePagesBackend::kPageBytes;
  store.page_bytes = FakePagesBackend::kPageBytes;
  if (!is_recurrent) {
    parts.page_store = PageStore::open(store);
    ASSERT_NE(parts.page_store, nullptr);
  }
  auto engine = *make_engine(std::move(parts));
  ConstraintSpec spec;
  spec.any_json_object = true;
  std::vector<GenerationResult> expected;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    GenerationRequest request = request_of(seed);
    if (seed == 2) request.constraint = *engine->compile_constraint(spec);
    expected.push_back(generate(*engine, request));
  }

  const std::vector<int32_t> text(40, 'y');
  int64_t num_failed = 0, n = 0;
  for (bool fired = true; fired; ++n) {
    std::vector<std::unique_ptr<TokenStream>> streams;
    // Every round has pages of its own, under a name that takes memory.
    const std::string salt = std::string(50, 's') + std::to_string(n);
    // Compiled anew, so that masks are made anew as well.
    spec.reasoning_begin = "<" + salt + ">";
    const auto constraint = *engine->compile_constraint(spec);
    countdown = n + 1;
    for (uint64_t seed = 0; seed < 3; ++seed) {
      GenerationRequest request = request_of(seed, salt);
      if (seed == 2) request.constraint = constraint;
      auto stream = engine->submit(request);
      ASSERT_TRUE(stream.ok());
      streams.push_back(*std::move(stream));
    }
    int failed_now = 0;
    int64_t num_scored = 0;
    const Result<void> scored =
        engine->score(text, [&](int64_t, std::span<const float>) { return ++num_scored > 0; });
    if (scored) {
      EXPECT_EQ(num_scored, std::ssize(text));
    } else {
      EXPECT_EQ(scored.error().code, ErrorCode::kResourceExhausted);
      ++failed_now;
    }
    for (size_t i = 0; i < streams.size(); ++i) {
      const GenerationResult result = finish(*streams[i]);
      if (result.finish_reason == FinishReason::kError) {
        EXPECT_EQ(result.error.code, ErrorCode::kResourceExhausted);
        ++failed_now;
        continue;
      }
      ASSERT_EQ(result.finish_reason, expected[i].finish_reason) << "allocation " << n;
      EXPECT_EQ(result.token_ids, expected[i].token_ids) << "allocation " << n;
    }
    fired = countdown.exchange(0) == 0;
    EXPECT_LE(failed_now, 1) << "allocation " << n;
    num_failed += failed_now;
    streams.clear();
    if (n % 16 == 0) {
      EXPECT_EQ(generate(*engine, request_of(1)).token_ids, expected[1].token_ids)
          << "allocation " << n;
    }
    // The engine's thread may still be at the end of the step.
    for (int i = 0; i < 30000 && engine_gauges(*engine).num_requests > 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(engine_gauges(*engine).num_requests, 0);
    EXPECT_EQ(engine_gauges(*engine).num_used_pages, 0) << "allocation " << n;
    EXPECT_EQ(engine_gauges(*engine).num_running_states, 0) << "allocation " << n;
    if (::testing::Test::HasFailure()) break;
  }
  ::testing::Test::RecordProperty("allocations", std::to_string(n));
  EXPECT_GT(n, 100) << "there are many more allocations than that";
  EXPECT_GT(num_failed, 100);
  is_exempt = false;
  set_log_level(LogLevel::kWarning);
}

TEST(Allocation, EachFailureEndsAtMostOneRequest) { check_failing_allocations(false); }
TEST(Allocation, EachFailureEndsAtMostOneRequestWithStates) { check_failing_allocations(true); }

// What gives memory back is called where there is none, and outside of any try as well.
TEST(Allocation, GivingPagesBackTakesNone) {
  const std::string salt(50, 's');
  BlockPool pool(1);
  PrefixCache cache(pool, 1, kPagePositions);
  const std::vector<int32_t> tokens(kPagePositions);
  PrefixCache::Holding kept;
  cache.attach(kept, salt);
  kept.pages.push_back(*cache.allocate());
  cache.publish(kept, tokens, kPagePositions, false);
  PrefixCache::Holding empty;
  cache.attach(empty, salt + "other");
  countdown = 1;
  cache.release(kept);
  cache.release(empty);
  EXPECT_TRUE(cache.allocate().has_value());  // evicts
  EXPECT_EQ(countdown.exchange(0), 1);
  EXPECT_EQ(cache.num_evictions(), 1);
}

}  // namespace
}  // namespace invar
