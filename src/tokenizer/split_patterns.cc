// Matchers for gpt-2, llama3, qwen2, qwen35 and tekken. They share their parts: contractions, runs
// of a class, white space. An invalid byte has no class, so it counts as a symbol.
#include "tokenizer/split_patterns.h"

#include "tokenizer/unicode.h"

namespace invar {
namespace {

// One text with its class table: all matchers look at characters through this.
struct Cursor {
  std::string_view text;
  const CharClasses& classes = CharClasses::get();

  struct Char {
    uint8_t bits;
    uint32_t size;
  };
  Char at(size_t pos) const {
    const DecodedChar c = decode_char(text, pos);
    return {classes(c.code_point), c.num_bytes};
  }
  bool at_end(size_t pos) const { return pos >= text.size(); }
  bool is(size_t pos, uint8_t mask) const { return !at_end(pos) && at(pos).bits & mask; }
  bool is_newline(size_t pos) const {
    return !at_end(pos) && (text[pos] == '\n' || text[pos] == '\r');
  }
  // Past the run of characters that have one of the bits of `mask`.
  size_t skip(size_t pos, uint8_t mask) const {
    while (!at_end(pos)) {
      const Char c = at(pos);
      if (!(c.bits & mask)) break;
      pos += c.size;
    }
    return pos;
  }
  // Past the run of characters that have none of the bits.
  size_t skip_other(size_t pos, uint8_t mask) const {
    while (!at_end(pos)) {
      const Char c = at(pos);
      if (c.bits & mask) break;
      pos += c.size;
    }
    return pos;
  }
};

// 's|'t|'re|'ve|'m|'ll|'d at pos; 0: none. Without case, U+017F (long s) is an s as well.
size_t contraction(const Cursor& in, size_t pos, bool ignore_case) {
  if (in.text[pos] != '\'') return 0;
  const auto letter = [&](size_t i) -> char {
    if (in.at_end(i)) return 0;
    const char c = in.text[i];
    return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  switch (letter(pos + 1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return pos + 2;
    case 'r':
    case 'v':
      return letter(pos + 2) == 'e' ? pos + 3 : 0;
    case 'l':
      return letter(pos + 2) == 'l' ? pos + 3 : 0;
    default:
      return ignore_case && in.text.substr(pos + 1).starts_with("\xC5\xBF") ? pos + 3 : 0;
  }
}

// \s+(?!\S)|\s+ at a white-space character: the run, without its last character when text follows.
size_t space_run(const Cursor& in, size_t pos, size_t run_end) {
  if (in.at_end(run_end)) return run_end;
  const size_t last = previous_char(in.text, run_end);
  return last > pos ? last : run_end;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ : up to the last newline of the run comes first.
size_t newlines_or_spaces(const Cursor& in, size_t pos) {
  const size_t run_end = in.skip(pos, kSpace);
  for (size_t end = run_end; end > pos; --end)
    if (in.is_newline(end - 1)) return end;
  return space_run(in, pos, run_end);
}

// The end of ` ?[^\s L N ...]+` followed by any of `trailing`; 0: no match. `word` is what the
// class excludes besides white space.
size_t symbols(const Cursor& in, size_t pos, uint8_t word, std::string_view trailing) {
  const size_t begin = in.text[pos] == ' ' ? pos + 1 : pos;
  size_t end = in.skip_other(begin, word | kSpace);
  if (end == begin) return 0;
  while (!in.at_end(end) && trailing.find(in.text[end]) != std::string_view::npos) ++end;
  return end;
}

size_t match_gpt2(std::string_view text, size_t pos) {
  const Cursor in{text};
  if (const size_t end = contraction(in, pos, false)) return end;
  const size_t begin = text[pos] == ' ' ? pos + 1 : pos;
  for (const uint8_t mask : {kLetter, kNumber})
    if (const size_t end = in.skip(begin, mask); end > begin) return end;
  if (const size_t end = symbols(in, pos, kLetter | kNumber, "")) return end;
  return space_run(in, pos, in.skip(pos, kSpace));
}

// [^\r\n\p{L}\p{N}]? and a run of `letters`; 0: no match.
size_t word_with_prefix(const Cursor& in, size_t pos, uint8_t letters) {
  const Cursor::Char first = in.at(pos);
  if (!(first.bits & (kLetter | kNumber)) && !in.is_newline(pos)) {
    const size_t begin = pos + first.size;
    if (const size_t end = in.skip(begin, letters); end > begin) return end;
  }
  const size_t end = in.skip(pos, letters);
  return end > pos ? end : 0;
}

// llama3 and its relatives: `letters` make a word, at most `max_digits` digits stand together.
size_t match_llama_like(std::string_view text, size_t pos, uint8_t letters, int max_digits) {
  const Cursor in{text};
  if (const size_t end = contraction(in, pos, true)) return end;
  if (const size_t end = word_with_prefix(in, pos, letters)) return end;
  size_t end = pos;
  for (int i = 0; i < max_digits && in.is(end, kNumber); ++i) end += in.at(end).size;
  if (end > pos) return end;
  if ((end = symbols(in, pos, letters | kNumber, "\r\n"))) return end;
  return newlines_or_spaces(in, pos);
}

size_t match_llama3(std::string_view text, size_t pos) {
  return match_llama_like(text, pos, kLetter, 3);
}
size_t match_qwen2(std::string_view text, size_t pos) {
  return match_llama_like(text, pos, kLetter, 1);
}
size_t match_qwen35(std::string_view text, size_t pos) {
  return match_llama_like(text, pos, kLetter | kMark, 1);
}

// [Lu Lt Lm Lo M]*[Ll Lm Lo M]+ at pos; 0: no match.
size_t tekken_lower(const Cursor& in, size_t pos) {
  constexpr uint8_t kBoth = kOtherLetter | kMark;
  const size_t upper_end = in.skip(pos, kUpper | kBoth);
  const size_t lower_end = in.skip(upper_end, kLower | kBoth);
  if (lower_end > upper_end) return lower_end;
  // Nothing for the second class: the first gives back up to its last character that is in both.
  for (size_t end = upper_end; end > pos;) {
    const size_t begin = previous_char(in.text, end);
    if (in.is(begin, kBoth)) return end;
    end = begin;
  }
  return 0;
}

// [Lu Lt Lm Lo M]+[Ll Lm Lo M]* at pos; 0: no match.
size_t tekken_upper(const Cursor& in, size_t pos) {
  const size_t upper_end = in.skip(pos, kUpper | kOtherLetter | kMark);
  return upper_end > pos ? in.skip(upper_end, kLower | kOtherLetter | kMark) : 0;
}

size_t match_tekken(std::string_view text, size_t pos) {
  const Cursor in{text};
  const Cursor::Char first = in.at(pos);
  const bool prefix = !(first.bits & (kLetter | kNumber)) && !in.is_newline(pos);
  for (const auto word : {tekken_lower, tekken_upper}) {
    if (prefix && !in.at_end(pos + first.size))
      if (const size_t end = word(in, pos + first.size)) return end;
    if (const size_t end = word(in, pos)) return end;
  }
  if (first.bits & kNumber) return pos + first.size;
  if (const size_t end = symbols(in, pos, kLetter | kNumber, "\r\n/")) return end;
  return newlines_or_spaces(in, pos);
}

#define INVAR_LLAMA_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
#define INVAR_LLAMA_SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

constexpr SplitPattern kPatterns[] = {
    {"gpt-2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
     match_gpt2},
    {"llama-bpe",
     INVAR_LLAMA_CONTRACTIONS
     R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" INVAR_LLAMA_SPACES,
     match_llama3},
    {"qwen2",
     INVAR_LLAMA_CONTRACTIONS
     R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" INVAR_LLAMA_SPACES,
     match_qwen2},
    {"qwen35",
     INVAR_LLAMA_CONTRACTIONS R"([^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
                              R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" INVAR_LLAMA_SPACES,
     match_qwen35},
    {"tekken",
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
     R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" INVAR_LLAMA_SPACES,
     match_tekken},
};

}  // namespace

const SplitPattern* split_pattern_by_name(std::string_view name) {
  for (const SplitPattern& pattern : kPatterns)
    if (pattern.name == name) return &pattern;
  return nullptr;
}

const SplitPattern* split_pattern_by_regex(std::string_view regex) {
  for (const SplitPattern& pattern : kPatterns)
    if (pattern.regex == regex) return &pattern;
  return nullptr;
}

}  // namespace invar
