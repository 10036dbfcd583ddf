// Random schemas: whatever the masks let through validates, and every valid text passes.
#include <gtest/gtest.h>

#include <random>

#include "constraint/byte_vocabulary.h"
#include "constraint/schema_oracle.h"

namespace invar {
namespace {

using testing::is_valid;
using testing::SchemaMaker;

// A reply drawn at random; it ends when it may once it is long. Empty: not within the steps.
std::string random_reply(const std::shared_ptr<const CompiledConstraint>& compiled,
                         std::mt19937& rng, int max_steps) {
  Constraint constraint(compiled);
  const std::vector<std::string> tokens = byte_vocabulary();
  std::vector<uint64_t> bits(constraint.num_mask_words());
  std::string text;
  for (int step = 0; step < max_steps; ++step) {
    const auto masked = constraint.mask(bits);
    EXPECT_TRUE(masked.ok());
    std::vector<int32_t> allowed, closing;
    for (int32_t id = 0; id < static_cast<int32_t>(tokens.size()); ++id) {
      if ((bits[static_cast<size_t>(id) / 64] >> (id % 64) & 1) == 0) continue;
      allowed.push_back(id);
      if (tokens[static_cast<size_t>(id)].find_first_of("\"}]") != std::string::npos)
        closing.push_back(id);
    }
    EXPECT_FALSE(allowed.empty()) << text;
    if (allowed.empty()) return {};
    const bool may_end = (bits[kEndId / 64] >> (kEndId % 64) & 1) != 0;
    if (may_end && rng() % 2 == 0) return text;
    // Random bytes alone would rarely leave a string.
    const bool hurry = !closing.empty() && rng() % 100 < (step > 40 ? 70u : 20u);
    const auto& from = hurry ? closing : allowed;
    const int32_t id = from[rng() % from.size()];
    EXPECT_TRUE(constraint.accept(id));
    if (id == kEndId) return text;
    text += tokens[static_cast<size_t>(id)];
  }
  return {};
}

TEST(RandomSchemas, WhatMasksLetThroughValidatesAndWhatIsValidPasses) {
  int num_replies = 0, num_values = 0, num_refused = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    SchemaMaker maker(seed);
    const Json schema = maker.document();
    SCOPED_TRACE(schema.dump());
    const auto compiled = compile_schema(schema.dump());
    if (!compiled.ok()) {  // without a value, or a definition that is an alternative of itself
      ++num_refused;
      ASSERT_TRUE(compiled.error().message.find("no value") != std::string::npos ||
                  compiled.error().message.find("in a circle") != std::string::npos)
          << compiled.error().message;
      continue;
    }
    std::mt19937 rng(seed);
    for (int i = 0; i < 4; ++i) {
      const std::string text = random_reply(*compiled, rng, 400);
      if (text.empty()) continue;
      const auto value = Json::parse(text, JsonLimits{.max_depth = 64});
      // A key may come twice among the extra ones; nothing else is wrong with such a text.
      if (!value.ok() && value.error().message.find("twice") != std::string::npos) continue;
      ASSERT_TRUE(value.ok()) << value.error().message << "\n" << text;
      ASSERT_TRUE(is_valid(*value, schema, schema)) << text;
      ++num_replies;
    }
    for (int i = 0; i < 8; ++i) {
      const std::string text = maker.value(schema);
      if (text.empty()) continue;
      const auto value = Json::parse(text);
      if (!value.ok()) continue;  // an extra key came twice
      ASSERT_TRUE(is_valid(*value, schema, schema)) << "the test's own value: " << text;
      ASSERT_TRUE(accepts_text(*compiled, text)) << text;
      ++num_values;
    }
  }
  EXPECT_GT(num_replies, 800);
  EXPECT_GT(num_values, 1500);
  EXPECT_LT(num_refused, 40);
}

// Spoiled texts: one byte changed. Whatever passes must still validate.
TEST(RandomSchemas, SpoiledTextsPassOnlyWhenTheyValidate) {
  int num_passed = 0, num_stopped = 0;
  for (uint32_t seed = 1000; seed < 1150; ++seed) {
    SchemaMaker maker(seed);
    const Json schema = maker.document();
    const auto compiled = compile_schema(schema.dump());
    if (!compiled.ok()) continue;
    for (int i = 0; i < 20; ++i) {
      std::string text = maker.value(schema);
      if (text.empty()) continue;
      static constexpr char kBytes[] = "\"{}[],:0123456789-+.eE\\ntrufals \n\x80\xC3";
      text[maker.pick(text.size())] = kBytes[maker.pick(sizeof kBytes - 1)];
      if (!accepts_text(*compiled, text)) {
        ++num_stopped;
        continue;
      }
      ++num_passed;
      const auto value = Json::parse(text);
      if (!value.ok() && value.error().message.find("twice") != std::string::npos) continue;
      ASSERT_TRUE(value.ok()) << value.error().message << "\n" << text;
      ASSERT_TRUE(is_valid(*value, schema, schema)) << schema.dump() << "\n" << text;
    }
  }
  EXPECT_GT(num_passed, 100);
  EXPECT_GT(num_stopped, 500);
}

}  // namespace
}  // namespace invar
