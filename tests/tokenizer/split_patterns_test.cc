// The hand-written matchers against PCRE2 on the same patterns, and the cutting of single cases.
#include "tokenizer/split_patterns.h"

#include <gmock/gmock.h>

#include "random_text.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/regex.h"

namespace invar {
namespace {

using testing::ElementsAre;

std::vector<std::string> words(const SplitPattern& pattern, std::string_view text) {
  std::vector<std::string> out;
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = pattern.match(text, pos);
    if (end <= pos || end > text.size()) {
      ADD_FAILURE() << pattern.name << " matches " << pos << ".." << end;
      break;
    }
    out.emplace_back(text.substr(pos, end - pos));
    pos = end;
  }
  return out;
}

std::vector<std::string> words(const Regex& regex, std::string_view text) {
  std::vector<std::string> out;
  size_t pos = 0, begin = 0, end = 0;
  while (pos < text.size() && regex.find(text, pos, begin, end)) {
    if (begin > pos) out.emplace_back(text.substr(pos, begin - pos));
    out.emplace_back(text.substr(begin, end - begin));
    pos = end;
  }
  if (pos < text.size()) out.emplace_back(text.substr(pos));
  return out;
}

// Characters that PCRE2's older Unicode tables may class differently are left out of the
// comparison.
bool in_old_unicode(std::string_view text) {
  for (size_t pos = 0; pos < text.size();) {
    const DecodedChar c = decode_char(text, pos);
    if (c.code_point >= 0x870 && !(c.code_point >= 0x900 && c.code_point < 0xA7C0) &&
        !(c.code_point >= 0xAC00 && c.code_point < 0xD800) &&
        !(c.code_point >= 0x1F300 && c.code_point < 0x1F650))
      return false;
    pos += c.num_bytes;
  }
  return true;
}

class SplitPatternTest : public testing::TestWithParam<const char*> {};

TEST_P(SplitPatternTest, AgreesWithPcre2) {
  const SplitPattern* pattern = split_pattern_by_name(GetParam());
  ASSERT_NE(pattern, nullptr);
  EXPECT_EQ(split_pattern_by_regex(pattern->regex), pattern);
  const auto regex = Regex::compile(pattern->regex);
  ASSERT_TRUE(regex.ok()) << regex.error().message;
  RandomText random(7);
  int num_compared = 0;
  for (int i = 0; i < 6000; ++i) {
    const std::string text = random.next(5);
    if (!in_old_unicode(text)) continue;
    ++num_compared;
    ASSERT_EQ(words(*pattern, text), words(*regex, text)) << json_quote(text);
  }
  EXPECT_GT(num_compared, 1000);
  // Short texts over few characters find the orders of backtracking.
  const std::string_view alphabet[] = {"a",  "A", "中", "\xCC\x81", "7", " ", "\n", "\r",
                                       "\t", "'", "s",  "/",        "!", "ǅ", "l",  "\xE3\x80\x80"};
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (int j = random.below(8) + 1; j > 0; --j)
      text += alphabet[random.below(static_cast<int>(std::size(alphabet)))];
    ASSERT_EQ(words(*pattern, text), words(*regex, text)) << json_quote(text);
  }
}

TEST_P(SplitPatternTest, CoversAnyBytes) {
  const SplitPattern* pattern = split_pattern_by_name(GetParam());
  RandomText random(8);
  for (int i = 0; i < 3000; ++i) {
    const std::string bytes = random.any_bytes(20);
    std::string joined;
    for (const std::string& word : words(*pattern, bytes)) joined += word;
    ASSERT_EQ(joined, bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SplitPatternTest,
                         testing::Values("gpt-2", "llama-bpe", "qwen2", "qwen35", "tekken"),
                         [](const auto& param) {
                           std::string name = param.param;
                           for (char& c : name)
                             if (c == '-') c = '_';
                           return name;
                         });

std::vector<std::string> cut(const char* name, std::string_view text) {
  return words(*split_pattern_by_name(name), text);
}

TEST(SplitPatterns, WhiteSpaceGivesBackItsLastCharacter) {
  EXPECT_THAT(cut("gpt-2", "a   b"), ElementsAre("a", "  ", " b"));
  EXPECT_THAT(cut("gpt-2", "a   "), ElementsAre("a", "   "));
  EXPECT_THAT(cut("gpt-2", "\xC2\xA0x"), ElementsAre("\xC2\xA0", "x"));
  EXPECT_THAT(cut("qwen2", "\xC2\xA0x"), ElementsAre("\xC2\xA0x"));
  EXPECT_THAT(cut("qwen2", "x   \n  y"), ElementsAre("x", "   \n", " ", " y"));
  EXPECT_THAT(cut("qwen2", "a\r\n\r\nb"), ElementsAre("a", "\r\n\r\n", "b"));
}

TEST(SplitPatterns, Numbers) {
  EXPECT_THAT(cut("llama-bpe", "1234567890"), ElementsAre("123", "456", "789", "0"));
  EXPECT_THAT(cut("qwen2", "123"), ElementsAre("1", "2", "3"));
  EXPECT_THAT(cut("gpt-2", " 1234½"), ElementsAre(" 1234½"));
}

TEST(SplitPatterns, Contractions) {
  EXPECT_THAT(cut("gpt-2", "don't DON'T"), ElementsAre("don", "'t", " DON", "'", "T"));
  EXPECT_THAT(cut("qwen2", "don't DON'T it’s"),
              ElementsAre("don", "'t", " DON", "'T", " it", "’s"));
}

TEST(SplitPatterns, MarksBelongToTheWordOnlyInQwen35) {
  EXPECT_THAT(cut("qwen35", "हिन्दी"), ElementsAre("हिन्दी"));
  EXPECT_GT(cut("qwen2", "हिन्दी").size(), 1u);
}

TEST(SplitPatterns, TekkenCutsCamelCase) {
  EXPECT_THAT(cut("tekken", "camelCaseHTTPServer"), ElementsAre("camel", "Case", "HTTPServer"));
}

TEST(Regex, RefusesWhatEnginesReadDifferently) {
  EXPECT_FALSE(Regex::compile("[a-z&&[^b]]").ok());
  EXPECT_FALSE(Regex::compile("\\h+").ok());
  const auto broken = Regex::compile("a(b");
  ASSERT_FALSE(broken.ok());
  EXPECT_THAT(broken.error().message, testing::HasSubstr("does not compile"));
}

TEST(Regex, GivesUpOnEndlessBacktracking) {
  const auto regex = Regex::compile("(a+)+b");
  ASSERT_TRUE(regex.ok());
  size_t begin = 0, end = 0;
  EXPECT_FALSE(regex->find(std::string(200, 'a'), 0, begin, end));
}

TEST(Regex, WhiteSpaceIsUnicode) {
  const auto regex = Regex::compile("\\s+");
  ASSERT_TRUE(regex.ok());
  size_t begin = 0, end = 0;
  ASSERT_TRUE(regex->find("x\xC2\x85\xE3\x80\x80y", 0, begin, end));
  EXPECT_EQ(end - begin, 5u);
  EXPECT_FALSE(regex->find("x\xE1\xA0\x8Ey", 0, begin, end)) << "U+180E is no white space";
}

}  // namespace
}  // namespace invar
