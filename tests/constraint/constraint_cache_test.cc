#include "constraint/constraint_cache.h"

#include <gtest/gtest.h>

#include "constraint/compile.h"
#include "engine/fakes.h"

namespace invar {
namespace {

TEST(ConstraintCache, CompilesWhatIsNewAndKeepsTheLastUsed) {
  testing::ByteTokenizer tokenizer;
  const auto trie = TokenTrie::make(tokenizer, std::vector<int32_t>{257});
  ConstraintCache cache(2);
  int num_compiled = 0;
  const auto get = [&](const ConstraintSpec& spec) {
    return *cache.get(spec, [&] {
      ++num_compiled;
      return compile_constraint(spec, trie);
    });
  };
  ConstraintSpec a, b, c;
  a.choices = {"xy", "z"};
  b.choices = {"x", "yz"};  // the same letters, cut elsewhere
  c.any_json_object = true;
  const auto first = get(a);
  EXPECT_EQ(get(a), first);
  EXPECT_NE(get(b), first);
  EXPECT_EQ(num_compiled, 2);
  EXPECT_EQ(get(a), first);
  get(c);  // b goes
  EXPECT_EQ(get(a), first);
  EXPECT_EQ(num_compiled, 3);
  get(b);
  EXPECT_EQ(num_compiled, 4);
  ConstraintSpec wrong;
  wrong.json_schema = "{\"not\": {}}";
  for (int i = 0; i < 2; ++i)
    EXPECT_FALSE(cache
                     .get(wrong,
                          [&] {
                            ++num_compiled;
                            return compile_constraint(wrong, trie);
                          })
                     .ok());
  EXPECT_EQ(num_compiled, 6);
}

TEST(ConstraintCache, IsBoundByBytesAsConstraintsGrow) {
  testing::ByteTokenizer tokenizer;
  const auto trie = TokenTrie::make(tokenizer, std::vector<int32_t>{257});
  ConstraintSpec spec;
  spec.any_json_object = true;
  const auto compile = [&] { return compile_constraint(spec, trie); };
  ConstraintSpec other = spec;
  other.reasoning_begin = "<other>";
  const size_t num_bytes = (*compile())->num_bytes();
  ConstraintCache cache(8, 2 * num_bytes + 5000);
  const auto first = *cache.get(spec, compile), second = *cache.get(other, compile);
  EXPECT_EQ(*cache.get(spec, compile), first);
  EXPECT_EQ(*cache.get(other, compile), second);
  Constraint user(second);
  std::vector<uint64_t> bits(user.num_mask_words());
  for (const char c : std::string_view(R"({"a": [1, {"b": "c"}], "d": {"e": [true, [[2.5e3]]]})")) {
    ASSERT_TRUE(user.mask(bits).ok());
    ASSERT_TRUE(user.accept(c));
  }
  ASSERT_GT(second->num_bytes(), num_bytes + 5000);
  EXPECT_EQ(*cache.get(other, compile), second);  // the last used stays whatever it takes
  EXPECT_NE(*cache.get(spec, compile), first);
}

}  // namespace
}  // namespace invar
