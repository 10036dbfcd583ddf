// BpeModel against the definition of BPE, written naively here: random small vocabularies, words of
// every length, so that all three merging paths are tried. Ranks tie and are not monotone.
#include "tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <map>

#include "random_text.h"
#include "tokenizer/bpe_symbols.h"

namespace invar {
namespace {

constexpr int kNumLetters = 3;

struct RandomModel {
  Vocabulary vocabulary;
  BpeModel model{vocabulary};
  std::map<std::pair<std::string, std::string>, uint32_t> ranks;  // by texts

  // Tokens are the letters and random joins of earlier tokens.
  RandomModel(uint32_t seed, bool by_score) {
    RandomText random(seed);
    std::vector<std::string> texts;
    for (int i = 0; i < kNumLetters; ++i) texts.emplace_back(1, static_cast<char>('a' + i));
    while (texts.size() < 40) {
      const auto pick = [&] {
        return texts[static_cast<size_t>(random.below(static_cast<int>(texts.size())))];
      };
      const std::string text = pick() + pick();
      if (text.size() <= 9 && std::find(texts.begin(), texts.end(), text) == texts.end())
        texts.push_back(text);
    }
    vocabulary.resize(texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto id = static_cast<int32_t>(i);
      vocabulary.set(id, texts[i], texts[i], TokenKind::kNormal);
      vocabulary.by_text.insert(vocabulary[id].text, id);
    }
    model.byte_level = !by_score;
    model.by_score = by_score;
    std::vector<uint32_t> rank_of(texts.size());
    for (uint32_t& rank : rank_of)
      rank = static_cast<uint32_t>(random.below(by_score ? 6 : 1000000));
    if (by_score) model.rank_of_id = rank_of;
    uint32_t next_rank = 0;
    for (const std::string& left : texts)
      for (const std::string& right : texts) {
        const int32_t id = vocabulary.by_text.find(left + right);
        if (id < 0 || (!by_score && random.below(5) == 0)) continue;
        // Pairs: a shuffled rank of their own. Scores: that of the token they spell.
        const uint32_t rank =
            by_score ? rank_of[static_cast<size_t>(id)] : (next_rank++ * 7919u + seed) % 100003u;
        ranks[{left, right}] = rank;
        if (!by_score)
          model.merges.assign(vocabulary.by_text.find(left), vocabulary.by_text.find(right),
                              {rank, id});
      }
    model.finish();
  }

  std::vector<int32_t> naive(const std::string& word) const {
    std::vector<std::string> symbols;
    for (const char c : word) symbols.emplace_back(1, c);
    for (;;) {
      uint32_t best_rank = Merge::kNone;
      size_t best = 0;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto found = ranks.find({symbols[i], symbols[i + 1]});
        if (found != ranks.end() && found->second < best_rank) {
          best_rank = found->second;
          best = i;
        }
      }
      if (best_rank == Merge::kNone) break;
      symbols[best] += symbols[best + 1];
      symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    }
    std::vector<int32_t> ids;
    for (const std::string& symbol : symbols) ids.push_back(vocabulary.by_text.find(symbol));
    return ids;
  }

  std::vector<int32_t> encode(const std::string& word) const {
    BpeScratch scratch;
    std::vector<int32_t> ids, again;
    model.encode_word(word, scratch, ids);
    model.encode_word(word, scratch, again);  // from the cache, where it is used
    EXPECT_EQ(ids, again);
    return ids;
  }
};

std::string random_word(RandomText& random, int size) {
  std::string word;
  const int num_letters = 1 + random.below(kNumLetters);
  while (static_cast<int>(word.size()) < size) {
    // Mostly runs, where ties and overlaps are.
    const char letter = static_cast<char>('a' + random.below(num_letters));
    word.append(static_cast<size_t>(1 + random.below(6)), letter);
  }
  return word;
}

class BpePaths : public testing::TestWithParam<bool> {};

TEST_P(BpePaths, ShortWords) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    const RandomModel model(seed, GetParam());
    RandomText random(seed);
    for (int i = 0; i < 40; ++i) {
      const std::string word = random_word(random, 1 + random.below(24));
      ASSERT_EQ(model.encode(word), model.naive(word)) << word << " seed " << seed;
    }
  }
}

TEST_P(BpePaths, LongerWords) {
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    const RandomModel model(seed, GetParam());
    RandomText random(seed);
    for (int i = 0; i < 6; ++i) {
      const std::string word = random_word(random, 40 + random.below(200));
      ASSERT_EQ(model.encode(word), model.naive(word)) << word << " seed " << seed;
    }
  }
}

// The path of very long words, called directly so that the naive merge stays affordable.
TEST_P(BpePaths, LongWordPath) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    const RandomModel model(seed, GetParam());
    RandomText random(seed + 1000);
    const std::string word = random_word(random, 300);
    std::vector<uint32_t> sizes(word.size(), 1);
    std::vector<int32_t> ids;
    for (const char c : word) ids.push_back(c - 'a');
    merge_long_word(
        [&](uint32_t begin, uint32_t left_size, int32_t, uint32_t right_size, int32_t) {
          const auto found = model.ranks.find(
              {word.substr(begin, left_size), word.substr(begin + left_size, right_size)});
          if (found == model.ranks.end()) return Merge{};
          return Merge{found->second,
                       model.vocabulary.by_text.find(word.substr(begin, left_size + right_size))};
        },
        sizes, ids);
    std::vector<int32_t> merged;
    for (size_t pos = 0; pos < word.size(); pos += sizes[pos]) merged.push_back(ids[pos]);
    ASSERT_EQ(merged, model.naive(word)) << word << " seed " << seed;
  }
}

// Through encode_word, a word of more than 4096 bytes; the naive merge affords only one.
TEST_P(BpePaths, VeryLongWords) {
  const RandomModel model(1, GetParam());
  RandomText random(1);
  const std::string word = random_word(random, 4200);
  ASSERT_EQ(model.encode(word), model.naive(word));
}

INSTANTIATE_TEST_SUITE_P(All, BpePaths, testing::Bool(),
                         [](const auto& param) { return param.param ? "by_score" : "by_pairs"; });

TEST(ByteAlphabet, IsGpt2s) {
  EXPECT_EQ(byte_alphabet::code_point_of(' '), 0x120u);
  EXPECT_EQ(byte_alphabet::code_point_of('\n'), 0x10Au);
  EXPECT_EQ(byte_alphabet::code_point_of('!'), uint32_t{'!'});
  EXPECT_EQ(byte_alphabet::code_point_of(0xAD), 0x143u);
  for (int byte = 0; byte < 256; ++byte) {
    std::string text, back;
    append_utf8(text, byte_alphabet::code_point_of(static_cast<uint8_t>(byte)));
    ASSERT_TRUE(byte_alphabet::to_bytes(text, back));
    EXPECT_EQ(back, std::string(1, static_cast<char>(byte)));
  }
  std::string bytes;
  EXPECT_FALSE(byte_alphabet::to_bytes("a b", bytes));
  EXPECT_FALSE(byte_alphabet::to_bytes("中", bytes));
}

TEST(ByteTokens, AreReadStrictly) {
  EXPECT_EQ(byte_of_byte_token("<0x00>"), 0);
  EXPECT_EQ(byte_of_byte_token("<0xEF>"), 0xEF);
  for (const char* text : {"<0x-1>", "<0xef>", "<0x1>", "<0x123>", "<0x 1>", "0x12", "<0xG0>", ""})
    EXPECT_EQ(byte_of_byte_token(text), -1) << text;
}

}  // namespace
}  // namespace invar
