// An engine without work costs nothing: no thread of it, of its pool or of its backend polls.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "engine/fakes.h"
#include "weights/checkpoint.h"

namespace invar {
namespace {

using namespace testing;

double cpu_seconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(IdleEngine, UsesNoCpuAfterAReply) {
  EngineParts parts = fake_parts({});
  BackendOptions options;
  options.num_threads = 4;
  parts.backend = *make_backend("cpu", options);
  auto checkpoint = Checkpoint::open(std::string(INVAR_TEST_DATA) + "/golden/models/llama");
  ASSERT_TRUE(checkpoint.ok());
  parts.model = *load_model(**checkpoint, *parts.backend);
  const auto engine = *make_engine(std::move(parts));

  GenerationRequest request;
  request.prompt_ids.assign(70, 5);
  request.max_tokens = 20;
  request.ignore_end = true;
  for (int round = 0; round < 2; ++round) {  // also after it was woken again
    generate(*engine, request);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    // The least of some windows: what polls does so in each, while a busy machine may charge us a
    // tick of somebody else's, or let a thread park late.
    double least = 1;
    for (int window = 0; window < 5 && least >= 0.001; ++window) {
      const double before = cpu_seconds();
      std::this_thread::sleep_for(std::chrono::milliseconds(400));
      least = std::min(least, cpu_seconds() - before);
    }
    EXPECT_LT(least, 0.001);  // 0.25 % of a core
  }
}

}  // namespace
}  // namespace invar
