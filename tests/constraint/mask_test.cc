// Masks against the definition: a token is allowed exactly when its bytes, one by one, are.
#include <gtest/gtest.h>

#include <random>

#include "constraint/byte_vocabulary.h"

namespace invar {
namespace {

// Fails at the first place of a random reply where a mask and accept() disagree, or nothing is
// allowed.
void walk_and_compare(const std::shared_ptr<const CompiledConstraint>& compiled,
                      const std::vector<std::string>& tokens, uint32_t seed, int max_steps) {
  std::mt19937 rng(seed);
  Constraint constraint(compiled);
  std::vector<uint64_t> bits(constraint.num_mask_words());
  std::string text;
  for (int step = 0; step < max_steps; ++step) {
    const auto masked = constraint.mask(bits);
    ASSERT_TRUE(masked.ok()) << masked.error().message;
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < static_cast<int32_t>(tokens.size()); ++id) {
      const bool in_mask = (bits[static_cast<size_t>(id) / 64] >> (id % 64) & 1) != 0;
      bool by_bytes = true;
      if (id == kEndId) {
        by_bytes = constraint.is_complete();
      } else {
        Constraint copy = constraint;
        for (const char c : tokens[static_cast<size_t>(id)])
          by_bytes = by_bytes && copy.accept(static_cast<uint8_t>(c));
      }
      ASSERT_EQ(in_mask, by_bytes)
          << "token " << id << " '" << tokens[static_cast<size_t>(id)] << "' after " << text;
      if (in_mask) allowed.push_back(id);
    }
    ASSERT_FALSE(allowed.empty()) << "after " << text;
    ASSERT_EQ(constraint.is_finished(), allowed == std::vector<int32_t>{kEndId}) << text;
    const int32_t id = allowed[rng() % allowed.size()];
    ASSERT_TRUE(constraint.accept(id));
    if (id == kEndId) return;
    text += tokens[static_cast<size_t>(id)];
  }
}

constexpr const char* kSchemas[] = {
    R"({})",
    R"({"type":"object"})",
    R"({"type":"string","minLength":3,"maxLength":9})",
    R"({"anyOf":[{"type":"string","maxLength":2},{"type":"string","minLength":5,"maxLength":6}]})",
    R"({"type":"object","properties":{"a":{"type":"integer"},"ab":{"type":"string"},"é":{}},
        "additionalProperties":{"type":"boolean"}})",
    R"({"type":"array","items":{"type":"array","items":{"type":"integer","minimum":0},"maxItems":3},
        "minItems":2})",
    R"({"type":"array","prefixItems":[{"const":"x"},{"type":"number"}],"items":false,"minItems":1})",
    R"({"enum":["a","ab\"c\n",12,{"a":[1,null]},[]]})",
    R"({"type":"string","pattern":"^(ab|é|[0-9]{2,3})*$","maxLength":12})",
    R"({"type":"string","format":"date"})",
    R"({"type":"number","minimum":-1.25,"exclusiveMaximum":10})",
    R"({"type":["integer","null"],"multipleOf":7})",
    R"({"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"v":{"type":"string"},
        "kids":{"type":"array","items":{"$ref":"#/$defs/t"}}},"required":["v"]}}})",
    R"({"type":"object","properties":{"kind":{"const":"b"},"a":{"type":"string"}},
        "anyOf":[{"required":["kind"]},{"required":["a"]}]})",
};

TEST(Mask, HoldsExactlyTheTokensWhoseBytesAreAllowed) {
  for (const char* schema : kSchemas) {
    SCOPED_TRACE(schema);
    const auto compiled = compile_schema(schema);
    ASSERT_TRUE(compiled.ok()) << compiled.error().message;
    for (uint32_t seed = 0; seed < 12; ++seed) {
      walk_and_compare(*compiled, byte_vocabulary(), seed, 60);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Mask, HoldsExactlyTheTokensOfToolCalls) {
  for (const auto kind : {ToolSyntax::Kind::kJson, ToolSyntax::Kind::kXml})
    for (const auto use : {ConstraintSpec::ToolUse::kAuto, ConstraintSpec::ToolUse::kRequired}) {
      ConstraintSpec spec;
      spec.tool_use = use;
      spec.reasoning = ConstraintSpec::Reasoning::kOptional;
      spec.tool_syntax.kind = kind;
      spec.tools = {{"f", R"({"type":"object","properties":{"a":{"type":"string"},
                             "n":{"type":"integer"}},"required":["n"]})"},
                    {"g"}};
      const auto compiled = compile_constraint(spec, byte_trie());
      ASSERT_TRUE(compiled.ok()) << compiled.error().message;
      for (uint32_t seed = 0; seed < 8; ++seed) {
        walk_and_compare(*compiled, byte_vocabulary(), seed, 80);
        if (HasFatalFailure()) return;
      }
    }
}

}  // namespace
}  // namespace invar
