// Random texts of many kinds with a fixed seed: prose of several scripts, code, emoji, white space,
// combining marks, any assigned-looking code point, and strings that are special to some model.
#pragma once

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/unicode.h"

namespace invar {

class RandomText {
 public:
  explicit RandomText(uint32_t seed) : random_(seed) {}

  // 1 to max_chunks chunks, each of one kind.
  std::string next(int max_chunks = 12) {
    std::string out;
    for (int i = below(max_chunks) + 1; i > 0; --i) out += chunk();
    return out;
  }

  int below(int limit) { return static_cast<int>(random_() % static_cast<uint32_t>(limit)); }

  std::string any_bytes(int max_bytes) {
    std::string out;
    for (int i = below(max_bytes) + 1; i > 0; --i)
      out += below(3) == 0 ? static_cast<char>(below(256)) : static_cast<char>('a' + below(6));
    return out;
  }

 private:
  std::string_view pick(const std::vector<std::string_view>& list) {
    return list[static_cast<size_t>(below(static_cast<int>(list.size())))];
  }

  std::string run(uint32_t first, uint32_t last, int max_length, bool spaces = true) {
    std::string out;
    for (int i = below(max_length) + 1; i > 0; --i) {
      append_utf8(out, first + random_() % (last - first + 1));
      if (spaces && below(7) == 0) out += ' ';
    }
    return out;
  }

  std::string chunk() {
    switch (below(22)) {
      case 0:
      case 1:
      case 2:
        return std::string(pick({"the ",        "Hello, ",
                                 "world",       " capital of France is ",
                                 "don't ",      "I'LL ",
                                 "it's",        "we've",
                                 "they'RE ",    "o'\xC5\xBF",
                                 "HTTPServer ", "camelCaseWord",
                                 "x_y_z ",      "naïve café ",
                                 "Zürich ",     "ŒUVRE ",
                                 "don’t",       "…",
                                 "—",           "\"quoted\" ",
                                 "e.g. ",       "unbelievably "}));
      case 3:
        return std::string(pick(
            {"def f(x):\n    return x**2  # square\n", "for (int i=0;i<n;++i) {\n\t", "}\r\n\r\n",
             "#include <vector>\n", "{\"a\": [1, 2.5e-3, null]}", "SELECT * FROM t WHERE id=42;\n",
             "a->b::c<d>()", "// comment\n\n\n", "https://example.org/a?b=c&d=%20", "\\frac{1}{2}",
             "&nbsp;</html>", "/path/to/file.txt\n/", "!!!///\n\n"}));
      case 4:
        return std::string(pick({" ",
                                 "  ",
                                 "   ",
                                 "\n",
                                 "\r\n",
                                 "\n\n",
                                 "\t",
                                 " \n ",
                                 "\t\t\t",
                                 "     ",
                                 "\v",
                                 "\f",
                                 " \r",
                                 "\xC2\xA0",
                                 "\xE3\x80\x80",
                                 "\xC2\x85",
                                 "\xE2\x80\x83 ",
                                 "\xE2\x80\xA8",
                                 "\n   \n  ",
                                 " \t \n\t x"}));
      case 5:
        return std::to_string(random_());
      case 6:
        return std::string(pick({"3.14159 ", "1,000,000", "½ ² Ⅷ ", "٣٤٥", "१२३", "12:30", "007 ",
                                 "x1y2", "①②", "𝟙𝟚"}));
      case 7:
        return std::string(pick({"👩‍👩‍👧‍👦", "🚀", "🇮🇷", "👍🏽 ", "❤️",
                                 "🧑‍🚀 ", "😀😀😀", "☃", "🏳️‍🌈"}));
      case 8:
        return run(0x4E00, 0x9FFF, 12);
      case 9:
        return std::string(
            pick({"你好，世界！", "日本語のテキスト", "東京タワー", "한국어 텍스트", "機械学習"}));
      case 10:
        return run(0x621, 0x64A, 14);
      case 11:
        return std::string(
            pick({"السلام عليكم ", "مرحباً بالعالم", "سلام دنیا ", "می‌خواهم ",
                  "کتاب‌ها", "گفت‌وگو ", "بِسْمِ ٱللَّهِ"}));
      case 12:
        return run(0x905, 0x94D, 14);
      case 13:
        return std::string(pick({"नमस्ते दुनिया ", "हिन्दी भाषा", "क़िला ज़रूर", "मराठी भाषा ", "ज्ञानेश्वर ",
                                 "ऱ्हस्व", "हे पुस्तक आहे. "}));
      case 14:
        return run(0xAC00, 0xD7A3, 8) + run(0x1100, 0x11FF, 4, false);
      case 15:
        return run(0xE01, 0xE5B, 12);
      case 16: {  // letters with marks in any order
        std::string out;
        for (int i = below(4) + 1; i > 0; --i) {
          append_utf8(out, "aeioucnsAEOZ"[below(12)]);
          for (int j = below(4); j > 0; --j) append_utf8(out, 0x300 + random_() % 0x70);
        }
        return out;
      }
      case 17: {  // anything but surrogates, mostly of the first planes
        std::string out;
        for (int i = below(6) + 1; i > 0; --i) {
          uint32_t c = random_() % (below(3) == 0 ? 0x110000 : below(2) == 0 ? 0x20000 : 0x3000);
          if (c >= 0xD800 && c < 0xE000) c = 0x2581;
          append_utf8(out, c);
        }
        return out;
      }
      case 18:
        return run(0x370, 0x52F, 12);
      case 19: {  // runs
        const std::string_view unit =
            pick({"a", " ", "\n", "=", "-", "é", "中", "😀", "▁", "\t", "ab", "."});
        std::string out;
        for (int i = below(70) + 1; i > 0; --i) out += unit;
        return out;
      }
      case 20:
        return std::string(
            pick({"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tool_call>", "<bos>",
                  "<start_of_turn>", "<end_of_turn>", "</s>", "<h1>", "<|im_", "[multimodal]",
                  "<0x41>", "<unused5>", "<|fim_pad|>", "▁", "<|", "[PAD151700]"}));
      default:
        return std::string(
            pick({"\xEF\xBB\xBF", std::string_view("\0", 1), "\x01", "\x7F", "\xE2\x80\x8D"}));
    }
  }

  std::mt19937 random_;
};

}  // namespace invar
