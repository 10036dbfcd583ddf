// Strings with provenance, and the little Unicode that templates need.
#include "tokenizer/jinja_string.h"

#include <locale.h>
#include <wctype.h>

#include <algorithm>

namespace invar::jinja {

Str::Str() {
  static const std::shared_ptr<const StrData> empty = std::make_shared<StrData>();
  data_ = empty;
}

Str::Str(std::string text, bool trusted) {
  auto data = std::make_shared<StrData>();
  data->length = count_code_points(text);
  data->text = std::move(text);
  data->first_trusted = trusted;
  data_ = std::move(data);
}

Str Str::bytes(size_t begin, size_t end) const {
  if (begin == 0 && end == num_bytes()) return *this;
  StrBuilder builder;
  builder.append(*this, begin, end);
  return builder.build();
}

size_t Str::offset_of(int64_t index) const {
  if (index >= data_->length) return num_bytes();
  if (is_ascii()) return static_cast<size_t>(index);
  size_t at = 0;
  for (; index > 0; --index) at += char_size(data_->text, at);
  return at;
}

void StrBuilder::append(std::string_view text, bool trusted) {
  if (text.empty()) return;
  if (text_.empty()) {
    first_trusted_ = trusted;
  } else if (trusted != last_trusted_) {
    cuts_.push_back(text_.size());
  }
  last_trusted_ = trusted;
  text_ += text;
}

void StrBuilder::append(const Str& str, size_t begin, size_t end) {
  str.for_each_run(begin, end, [&](std::string_view text, bool trusted) { append(text, trusted); });
}

void StrBuilder::truncate(size_t num_bytes) {
  text_.resize(std::min(num_bytes, text_.size()));
  while (!cuts_.empty() && cuts_.back() >= text_.size()) cuts_.pop_back();
  last_trusted_ = first_trusted_ ^ (cuts_.size() % 2 == 1);
}

Str StrBuilder::build() {
  auto data = std::make_shared<StrData>();
  data->length = count_code_points(text_);
  data->text = std::move(text_);
  data->first_trusted = first_trusted_;
  data->cuts = std::move(cuts_);
  text_.clear();
  cuts_.clear();
  return Str(std::move(data));
}

// ---- UTF-8
// ---------------------------------------------------------------------------------------

namespace {

bool continues(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

}  // namespace

// A stray continuation byte counts with the character before it, here and in char_size: the two
// must agree, because slices are computed from both.
int64_t count_code_points(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += !continues(c);
  if (!text.empty() && continues(text[0])) ++count;
  return count;
}

size_t char_size(std::string_view text, size_t at) {
  size_t end = at + 1;
  while (end < text.size() && continues(text[end])) ++end;
  return end - at;
}

uint32_t decode_char(std::string_view text, size_t at) {
  const auto lead = static_cast<uint8_t>(text[at]);
  if (lead < 0x80) return lead;
  const size_t size = char_size(text, at);
  const size_t expected = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 0;
  if (size != expected) return 0xFFFD;
  uint32_t code_point = lead & (0xFFu >> (expected + 1));
  for (size_t i = 1; i < size; ++i)
    code_point = code_point << 6 | (static_cast<uint8_t>(text[at + i]) & 0x3F);
  return code_point;
}

void append_utf8(std::string& out, uint32_t c) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    tail(0);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    tail(6), tail(0);
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    tail(12), tail(6), tail(0);
  }
}

size_t find_invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto lead = static_cast<uint8_t>(text[at]);
    if (lead < 0x80) {
      ++at;
      continue;
    }
    const size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || at + size > text.size()) return at;
    uint32_t code_point = lead & (0xFFu >> (size + 1));
    for (size_t i = 1; i < size; ++i) {
      if (!continues(text[at + i])) return at;
      code_point = code_point << 6 | (static_cast<uint8_t>(text[at + i]) & 0x3F);
    }
    const uint32_t least = size == 2 ? 0x80 : size == 3 ? 0x800 : 0x10000;
    const bool surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
    if (code_point < least || code_point > 0x10FFFF || surrogate) return at;
    at += size;
  }
  return std::string_view::npos;
}

bool is_space(uint32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

size_t skip_space(std::string_view text, size_t begin) {
  while (begin < text.size() && is_space(decode_char(text, begin))) begin += char_size(text, begin);
  return begin;
}

size_t rskip_space(std::string_view text, size_t end) {
  while (end > 0) {
    size_t at = end - 1;
    while (at > 0 && continues(text[at])) --at;
    if (!is_space(decode_char(text.substr(0, end), at))) break;
    end = at;
  }
  return end;
}

namespace {

// glibc's built-in C.UTF-8, whatever the locale of the process; null (ASCII only) without it.
locale_t utf8_locale() {
  static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return locale;
}

}  // namespace

uint32_t to_upper(uint32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 32 : c;
  return utf8_locale() ? static_cast<uint32_t>(towupper_l(c, utf8_locale())) : c;
}

uint32_t to_lower(uint32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  return utf8_locale() ? static_cast<uint32_t>(towlower_l(c, utf8_locale())) : c;
}

}  // namespace invar::jinja
