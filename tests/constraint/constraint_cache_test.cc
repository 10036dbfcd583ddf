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

}  // namespace
}  // namespace invar
