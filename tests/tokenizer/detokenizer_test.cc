// The streaming detokenizer over script pieces: case D1 of the reported cases, every cut of a text,
// and Unicode's rule for what one U+FFFD stands for.
#include <gtest/gtest.h>

#include "random_text.h"
#include "tokenizer/tokenizer.h"

namespace invar {
namespace {

// Token i adds pieces[i]; nothing is encoded.
class PieceTokenizer final : public Tokenizer {
 public:
  explicit PieceTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}
  std::vector<int32_t> encode(std::span<const TextSegment>, bool) const override { return {}; }
  std::string_view token_bytes(int32_t id, bool) const override {
    return pieces_[static_cast<size_t>(id)];
  }
  std::string_view token_text(int32_t id) const override { return token_bytes(id, true); }
  TokenKind token_kind(int32_t) const override { return TokenKind::kNormal; }
  int32_t find(std::string_view) const override { return -1; }
  int32_t vocab_size() const override { return static_cast<int32_t>(pieces_.size()); }
  std::string_view model_name() const override { return "pieces"; }

 private:
  std::vector<std::string> pieces_;
};

std::vector<std::string> stream(std::vector<std::string> pieces, bool strip = false) {
  PieceTokenizer tokenizer(std::move(pieces));
  tokenizer.strip_leading_space = strip;
  Detokenizer detokenizer(tokenizer);
  std::vector<std::string> texts;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) texts.push_back(detokenizer.push(id));
  texts.push_back(detokenizer.finish());
  return texts;
}

std::string joined(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) out += text;
  return out;
}

TEST(Detokenizer, CharactersCutOverTokens) {  // D1
  const std::vector<std::string> texts =
      stream({"\xE4", "\xB8", "\xAD", "\xF0\x9F\x98", "\x8A", "\xFF", "A", "\xE2\x82"});
  const std::vector<std::string> expected = {"",  "", "中",          "", "😊", "\xEF\xBF\xBD",
                                             "A", "", "\xEF\xBF\xBD"};
  EXPECT_EQ(texts, expected);
}

TEST(Detokenizer, MaximalSubparts) {
  // Unicode Standard, table 3-8 and 3-11: what one U+FFFD stands for.
  EXPECT_EQ(joined(stream({"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"})),
            "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
            "b\xEF\xBF\xBD"
            "c\xEF\xBF\xBD\xEF\xBF\xBD"
            "d");
  EXPECT_EQ(joined(stream({"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"})),
            "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
            "A");
  EXPECT_EQ(joined(stream({"\xED\xA0\x80"})), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(joined(stream({"\xE0\x9F\xBF"})), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(Detokenizer, EveryCutGivesTheSameText) {
  RandomText random(31);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = i % 2 ? random.next(4) : random.any_bytes(30);
    if (i % 2)
      bytes.insert(static_cast<size_t>(random.below(static_cast<int>(bytes.size()))), "\xE2\x82");
    std::vector<std::string> pieces;
    for (size_t pos = 0; pos < bytes.size();) {
      const size_t size = static_cast<size_t>(random.below(4) + (i % 5 == 0 ? 1 : 0));
      pieces.push_back(bytes.substr(pos, size));
      pos += size;
    }
    const std::vector<std::string> texts = stream(pieces);
    for (const std::string& text : texts) ASSERT_TRUE(is_valid_utf8(text));
    ASSERT_EQ(joined(texts), joined(stream({bytes})));
    if (is_valid_utf8(bytes)) {
      ASSERT_EQ(joined(texts), bytes);
    }
  }
}

TEST(Detokenizer, HoldsBackNothingThatIsComplete) {
  const std::vector<std::string> texts = stream({"ab\xF0", "\x9F", "\x98", "\x8A!"});
  const std::vector<std::string> expected = {"ab", "", "", "😊!", ""};
  EXPECT_EQ(texts, expected);
}

TEST(Detokenizer, LeadingSpace) {
  EXPECT_EQ(joined(stream({" Hello", " world"}, true)), "Hello world");
  EXPECT_EQ(joined(stream({"", "  Hello"}, true)), " Hello")
      << "one space only, empty tokens aside";
  EXPECT_EQ(joined(stream({" Hello", " world"}, false)), " Hello world");
}

}  // namespace
}  // namespace invar
