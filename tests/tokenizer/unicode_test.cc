// UTF-8 decoding, character classes and NFC. NFC is checked against its own laws and known strings;
// oracle_test.cc compares it with Hugging Face's through Qwen's tokenizer.
#include "tokenizer/unicode.h"

#include <gtest/gtest.h>

#include "random_text.h"
#include "tokenizer/nfc.h"

namespace invar {
namespace {

TEST(Unicode, DecodesEveryCodePoint) {
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    const DecodedChar decoded = decode_char(text, 0);
    ASSERT_EQ(decoded.code_point, c);
    ASSERT_EQ(decoded.num_bytes, text.size());
    ASSERT_EQ(previous_char("x" + text, 1 + text.size()), 1u) << c;
  }
}

TEST(Unicode, InvalidBytesStandAlone) {
  for (const std::string_view text :
       {"\x80", "\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
        "\xE2\x82", "\xF0\x9F\x98", "\xFF"}) {
    EXPECT_EQ(decode_char(text, 0).code_point, kInvalidCodePoint);
    EXPECT_EQ(decode_char(text, 0).num_bytes, 1u);
    EXPECT_FALSE(is_valid_utf8(text));
    EXPECT_EQ(previous_char(text, text.size()), text.size() - 1);
  }
}

TEST(Unicode, Classes) {
  const CharClasses& classes = CharClasses::get();
  EXPECT_TRUE(classes('A') & kUpper);
  EXPECT_TRUE(classes('z') & kLower);
  EXPECT_TRUE(classes(0x4E2D) & kOtherLetter);
  EXPECT_TRUE(classes(0x94D) & kMark);
  EXPECT_TRUE(classes(0xBD) & kNumber);
  EXPECT_TRUE(classes(0x3000) & kSpace);
  EXPECT_TRUE(classes(0x85) & kSpace);
  EXPECT_FALSE(classes(0x180E) & kSpace);
  EXPECT_EQ(classes(0x11DE0), kNumeric) << "a number only since Unicode 17";
  EXPECT_EQ(classes(kInvalidCodePoint), 0);
  EXPECT_EQ(classes(0x1F600), 0);
}

TEST(Nfc, KnownStrings) {
  EXPECT_EQ(nfc("plain"), "plain");
  EXPECT_EQ(nfc("e\xCC\x81"), "é");
  EXPECT_EQ(nfc("é"), "é");
  EXPECT_EQ(nfc("\xE2\x84\xAB"), "Å") << "singleton: the angstrom sign";
  EXPECT_EQ(nfc("q\xCC\x87\xCC\xA3"), "q\xCC\xA3\xCC\x87") << "marks in canonical order";
  EXPECT_EQ(nfc("\xE1\xB8\x8B\xCC\xA3"), "\xE1\xB8\x8D\xCC\x87") << "recomposed differently";
  EXPECT_EQ(nfc("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8"), "각");
  EXPECT_EQ(nfc("가\xE1\x86\xA8"), "각");
  EXPECT_EQ(nfc("\xE0\xA4\x95\xE0\xA4\xBC"), "\xE0\xA4\x95\xE0\xA4\xBC")
      << "excluded from composition";
  EXPECT_EQ(nfc("\xE0\xA5\x98"), "\xE0\xA4\x95\xE0\xA4\xBC");
  EXPECT_EQ(nfc("e\xFF\xCC\x81"), "e\xFF\xCC\x81") << "an invalid byte parts what stands around it";
  EXPECT_EQ(nfc("\xFF"), "\xFF");
}

TEST(Nfc, IsIdempotentAndLocal) {
  RandomText random(11);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = random.next(6);
    const std::string once = nfc(text);
    ASSERT_EQ(nfc(once), once) << text;
    // An ASCII letter parts the text.
    ASSERT_EQ(nfc(text + "x" + text), once + "x" + once);
    if (nfc_quick_check(text)) {
      ASSERT_EQ(once, text);
    }
  }
}

TEST(Nfc, LongRunsOfMarksAreSorted) {
  std::string text = "a", expected = "ạ";
  for (int i = 0; i < 20000; ++i) text += "\xCC\x81\xCC\xA3";  // classes 230 and 220
  for (int i = 0; i < 19999; ++i) expected += "\xCC\xA3";
  for (int i = 0; i < 20000; ++i) expected += "\xCC\x81";
  EXPECT_EQ(nfc(text), expected);
}

}  // namespace
}  // namespace invar
