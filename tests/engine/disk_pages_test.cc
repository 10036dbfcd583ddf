// The disk tier of the prefix cache: an engine that was closed goes on where it was, with the same
// tokens, and files that were changed meanwhile change nothing.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/log.h"
#include "cache/packed_test_util.h"
#include "invar/invar.h"
#include "models/harness.h"

namespace invar {
namespace {

using namespace testing;
namespace fs = std::filesystem;

GenerationResult reply(Engine& engine, const std::string& salt = {}) {
  GenerationRequest request;
  for (int i = 0; i < 480; ++i) request.prompt_ids.push_back(1000 + i * 31 % 1777);
  request.max_tokens = 12;
  request.sampling.temperature = 1;
  request.sampling.seed = 5;
  request.ignore_end = true;
  request.cache_salt = salt;
  auto stream = engine.submit(request);
  INVAR_CHECK(stream.ok(), "%s", stream.error().message.c_str());
  while ((*stream)->next()) {
  }
  return (*stream)->result();
}

TEST(DiskPages, AConversationGoesOnAfterARestart) {
  const TemporaryFolder temporary;
  EngineOptions options;
  options.model = real_model_path("smollm2-135m-instruct-q4_1.gguf");
  options.packed_cache = temporary.path() + "/packed";
  options.packed_cache_wait = true;
  options.context = 512;
  options.num_threads = 1;
  const auto open = [&] {
    auto engine = Engine::open(options);
    INVAR_CHECK(engine.ok(), "%s", engine.error().message.c_str());
    return *std::move(engine);
  };
  const GenerationResult expected = reply(*open());
  EXPECT_EQ(reply(*open()).num_cached_tokens, 0);

  options.prefix_cache_folder = temporary.path() + "/pages";
  EXPECT_EQ(reply(*open()).token_ids, expected.token_ids);  // and writes when it is closed
  const GenerationResult again = reply(*open());
  EXPECT_EQ(again.num_cached_tokens, 256);
  EXPECT_EQ(again.token_ids, expected.token_ids);
  EXPECT_EQ(reply(*open(), "another salt").num_cached_tokens, 0);

  set_log_level(LogLevel::kError);
  for (const auto& entry : fs::directory_iterator(options.prefix_cache_folder)) {
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(2000);
    file.write("damaged", 7);
  }
  const GenerationResult damaged = reply(*open());
  EXPECT_EQ(damaged.num_cached_tokens, 0);
  EXPECT_EQ(damaged.token_ids, expected.token_ids);
  set_log_level(LogLevel::kWarning);

  options.activation_bits = 12;  // another arithmetic: other pages
  EXPECT_EQ(reply(*open()).num_cached_tokens, 0);
  options.backend = "reference";
  const auto refused = Engine::open(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("prefix_cache_folder"), std::string::npos);
}

}  // namespace
}  // namespace invar
