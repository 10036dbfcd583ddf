// Constrained replies through the engine: they are what the schema says, end by themselves, and do
// not depend on company; requests without a constraint are as before.
#include <gtest/gtest.h>

#include "base/json.h"
#include "engine/fakes.h"

namespace invar {
namespace {

using namespace testing;

std::shared_ptr<const CompiledConstraint> compile(const Engine& engine, const char* schema) {
  ConstraintSpec spec;
  spec.json_schema = schema;
  auto compiled = engine.compile_constraint(spec);
  EXPECT_TRUE(compiled.ok()) << compiled.error().message;
  return *compiled;
}

constexpr const char* kSchema =
    R"({"type":"object","properties":{"id":{"type":"integer","minimum":1,"maximum":999},
        "name":{"type":"string","maxLength":12},"on":{"type":"boolean"}},
        "required":["id","name","on"]})";

GenerationRequest request(const std::shared_ptr<const CompiledConstraint>& constraint,
                          uint64_t seed) {
  GenerationRequest asked;
  asked.prompt = "a prompt";
  asked.max_tokens = 600;
  asked.sampling.temperature = 2;
  asked.sampling.seed = seed;
  asked.constraint = constraint;
  return asked;
}

TEST(ConstrainedReply, IsWhatTheSchemaSaysAndEnds) {
  const auto engine = fake_engine();
  const auto constraint = compile(*engine, kSchema);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const GenerationResult result = generate(*engine, request(constraint, seed));
    ASSERT_EQ(result.finish_reason, FinishReason::kStop) << result.error.message;
    const auto value = Json::parse(result.text);
    ASSERT_TRUE(value.ok()) << result.text;
    const Json* id = value->find("id");
    ASSERT_TRUE(id && id->is_int() && id->as_int() >= 1 && id->as_int() <= 999) << result.text;
    ASSERT_TRUE(value->find("name") && value->find("name")->is_string()) << result.text;
    ASSERT_TRUE(value->find("on") && value->find("on")->is_bool()) << result.text;
    ASSERT_EQ(value->members().size(), 3u);
  }
}

TEST(ConstrainedReply, DoesNotDependOnCompany) {
  const auto engine = fake_engine();
  const auto constraint = compile(*engine, kSchema);
  std::vector<std::string> alone;
  for (uint64_t seed = 0; seed < 4; ++seed)
    alone.push_back(generate(*engine, request(constraint, seed)).token_sha);
  GenerationRequest free = request(nullptr, 1);
  free.max_tokens = 40;
  const std::string free_alone = generate(*engine, free).token_sha;
  std::vector<std::unique_ptr<TokenStream>> streams;
  for (uint64_t seed = 0; seed < 4; ++seed)
    streams.push_back(*engine->submit(request(constraint, seed)));
  streams.push_back(*engine->submit(free));
  for (uint64_t seed = 0; seed < 4; ++seed)
    EXPECT_EQ(testing::finish(*streams[seed]).token_sha, alone[seed]);
  EXPECT_EQ(testing::finish(*streams[4]).token_sha, free_alone);
}

TEST(ConstrainedReply, NeedsItsOwnEngine) {
  const auto engine = fake_engine(), other = fake_engine();
  const auto refused = engine->submit(request(compile(*other, kSchema), 0));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace invar
