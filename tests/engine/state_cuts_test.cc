#include "engine/state_cuts.h"

#include <gtest/gtest.h>

#include "engine/fakes.h"

namespace invar {
namespace {

constexpr int32_t kStart = 256;  // <bos>, a special token
constexpr int32_t kThink = 257;  // <end>, another

std::vector<int32_t> text(size_t length) { return std::vector<int32_t>(length, 'x'); }

std::vector<int32_t> conversation(std::initializer_list<size_t> turns) {
  std::vector<int32_t> ids;
  for (const size_t length : turns) {
    ids.push_back(kStart);
    ids.insert(ids.end(), length, 'x');
  }
  return ids;
}

using Cuts = std::vector<int64_t>;

TEST(StateCuts, BeforeTheReplyAndBehindTheSystemMessage) {
  const testing::ByteTokenizer tokenizer;
  EXPECT_EQ(choose_state_cuts(conversation({99, 199, 3}), tokenizer), (Cuts{100, 300}));
  EXPECT_EQ(choose_state_cuts(conversation({99, 3}), tokenizer), (Cuts{100}));
  // Too short to be worth it.
  EXPECT_EQ(choose_state_cuts(conversation({9, 199, 3}), tokenizer), (Cuts{210}));
  EXPECT_EQ(choose_state_cuts(conversation({9, 3}), tokenizer), (Cuts{}));
  auto thinking = conversation({99, 199, 3});
  thinking.push_back(kThink);
  EXPECT_EQ(choose_state_cuts(thinking, tokenizer), (Cuts{100, 304}));
}

TEST(StateCuts, PlainTextAtAPage) {
  const testing::ByteTokenizer tokenizer;
  EXPECT_EQ(choose_state_cuts(text(255), tokenizer), (Cuts{}));
  EXPECT_EQ(choose_state_cuts(text(256), tokenizer), (Cuts{}));
  EXPECT_EQ(choose_state_cuts(text(257), tokenizer), (Cuts{256}));
  EXPECT_EQ(choose_state_cuts(text(1000), tokenizer), (Cuts{768}));
  EXPECT_EQ(choose_state_cuts({}, tokenizer), (Cuts{}));
  EXPECT_EQ(choose_state_cuts(conversation({999}), tokenizer), (Cuts{768}));  // behind <bos> alone
}

TEST(StateCuts, LongTextsNowAndThen) {
  const testing::ByteTokenizer tokenizer;
  EXPECT_EQ(choose_state_cuts(text(10000), tokenizer), (Cuts{4096, 8192, 9984}));
  // At most four in between, and the last page.
  EXPECT_EQ(choose_state_cuts(text(25700), tokenizer), (Cuts{5376, 10752, 16128, 21504, 25600}));
  EXPECT_EQ(choose_state_cuts(text(200000), tokenizer),
            (Cuts{40192, 80384, 120576, 160768, 199936}));
}

}  // namespace
}  // namespace invar
