// The algorithms behind string methods and filters; each pays for the bytes it reads and makes.
#include "tokenizer/jinja_text.h"

#include <string.h>

#include <charconv>

#include "base/result.h"

namespace invar::jinja {

// A string of its own takes memory and time far beyond its bytes.
constexpr int64_t kPieceSteps = 10;

// memmem of glibc is linear (two-way); std::string::find is not.
size_t find_text(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return kNotFound;
  if (part.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found == nullptr ? kNotFound
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t rfind_text(Budget& budget, std::string_view text, std::string_view part) {
  // Not linear, so paid for by its worst case.
  if (part.size() > text.size()) return kNotFound;
  budget.spend(static_cast<int64_t>(text.size() / 16 * (part.size() / 16 + 1)));
  return budget.failed() ? kNotFound : text.rfind(part);
}

namespace {

bool in_set(const Str* chars, std::string_view text, size_t at) {
  if (chars == nullptr) return is_space(decode_char(text, at));
  const std::string_view one = text.substr(at, char_size(text, at));
  return find_text(chars->text(), one) != kNotFound;
}

size_t char_before(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

}  // namespace

Str strip(const Str& str, const Str* chars, bool left, bool right) {
  const std::string_view text = str.text();
  size_t begin = 0, end = text.size();
  while (left && begin < end && in_set(chars, text, begin)) begin += char_size(text, begin);
  while (right && end > begin) {
    const size_t at = char_before(text, end);
    if (at < begin || !in_set(chars, text.substr(0, end), at)) break;
    end = at;
  }
  return str.bytes(begin, end);
}

Str replace_text(Budget& budget, const Str& str, const Str& from, const Str& to,
                 int64_t max_count) {
  const std::string& text = str.text();
  if (!budget.spend_bytes(text.size())) return str;
  StrBuilder out;
  size_t at = 0;
  if (from.empty()) {  // before every character and at the end
    for (; max_count != 0 && !budget.failed(); --max_count) {
      out.append(to);
      if (!budget.spend_bytes(out.num_bytes() > budget.limits.max_output_bytes ? out.num_bytes()
                                                                               : to.num_bytes()))
        break;
      if (at >= text.size()) return out.build();
      const size_t end = at + char_size(text, at);
      out.append(str, at, end);
      at = end;
    }
    out.append(str, at, text.size());
    return out.build();
  }
  while (max_count != 0) {
    const size_t found = find_text(text, from.text(), at);
    if (found == kNotFound) break;
    if (!budget.spend_bytes(to.num_bytes())) break;
    if (out.num_bytes() > budget.limits.max_output_bytes && !budget.spend_bytes(out.num_bytes()))
      break;
    out.append(str, at, found);
    out.append(to);
    at = found + from.num_bytes();
    --max_count;
  }
  if (at == 0) return str;
  out.append(str, at, text.size());
  return out.build();
}

Value split(Budget& budget, const Str& str, const Str* separator, int64_t max_splits) {
  const std::string& text = str.text();
  List parts;
  if (!budget.spend_bytes(text.size())) return {};
  size_t at = 0;
  if (separator == nullptr) {
    at = skip_space(text, 0);
    while (at < text.size() && budget.spend(kPieceSteps)) {
      if (max_splits >= 0 && static_cast<int64_t>(parts.size()) >= max_splits) {
        parts.push_back(str.bytes(at, text.size()));
        return make_list(budget, std::move(parts));
      }
      size_t end = at;
      while (end < text.size() && !is_space(decode_char(text, end))) end += char_size(text, end);
      parts.push_back(str.bytes(at, end));
      at = skip_space(text, end);
    }
    return make_list(budget, std::move(parts));
  }
  if (separator->empty()) {
    budget.fail("split: empty separator");
    return {};
  }
  while (max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits) {
    const size_t found = find_text(text, separator->text(), at);
    if (found == kNotFound || !budget.spend(kPieceSteps)) break;
    parts.push_back(str.bytes(at, found));
    at = found + separator->num_bytes();
  }
  parts.push_back(str.bytes(at, text.size()));
  return make_list(budget, std::move(parts));
}

Value rsplit(Budget& budget, const Str& str, const Str* separator, int64_t max_splits) {
  if (max_splits < 0) return split(budget, str, separator, -1);
  const std::string_view text = str.text();
  List parts;
  if (!budget.spend_bytes(text.size())) return {};
  size_t end = text.size();
  if (separator == nullptr) {
    end = rskip_space(text, end);
    while (end > 0 && static_cast<int64_t>(parts.size()) < max_splits &&
           budget.spend(kPieceSteps)) {
      size_t at = end;
      while (at > 0) {
        const size_t before = char_before(text, at);
        if (is_space(decode_char(text.substr(0, at), before))) break;
        at = before;
      }
      parts.push_back(str.bytes(at, end));
      end = rskip_space(text, at);
    }
    if (end > 0) parts.push_back(str.bytes(0, end));
  } else {
    if (separator->empty()) {
      budget.fail("rsplit: empty separator");
      return {};
    }
    while (static_cast<int64_t>(parts.size()) < max_splits) {
      const size_t found = rfind_text(budget, text.substr(0, end), separator->text());
      if (found == kNotFound || !budget.spend(kPieceSteps)) break;
      parts.push_back(str.bytes(found + separator->num_bytes(), end));
      end = found;
    }
    parts.push_back(str.bytes(0, end));
  }
  std::reverse(parts.begin(), parts.end());
  return make_list(budget, std::move(parts));
}

List split_lines(Budget& budget, const Str& str, bool keep_ends) {
  const std::string& text = str.text();
  List lines;
  if (!budget.spend_bytes(text.size())) return lines;
  for (size_t begin = 0; begin < text.size() && budget.spend(kPieceSteps);) {
    size_t at = begin, end = text.size(), next = text.size();
    for (; at < text.size(); at += char_size(text, at)) {
      const uint32_t c = decode_char(text, at);
      const bool breaks = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                          c == 0x2028 || c == 0x2029;
      if (!breaks) continue;
      end = at;
      next = at + char_size(text, at);
      if (c == '\r' && next < text.size() && text[next] == '\n') ++next;
      break;
    }
    lines.push_back(str.bytes(begin, keep_ends ? next : end));
    begin = next;
  }
  return lines;
}

Value join(Budget& budget, const Str& separator, const List& items) {
  StrBuilder out;
  for (size_t i = 0; i < items.size() && !budget.failed(); ++i) {
    if (i > 0) append_str(budget, out, separator);
    append_str(budget, out, items[i]);
  }
  return out.build();
}

Str repeat(Budget& budget, const Str& str, int64_t count) {
  if (count <= 0 || str.empty()) return {};
  const auto size = static_cast<__int128>(str.num_bytes()) * count;
  const bool huge = size > static_cast<__int128>(budget.limits.max_output_bytes);
  if (!budget.spend_bytes(huge ? budget.limits.max_output_bytes + 1 : static_cast<size_t>(size)))
    return {};
  if (str.data()->cuts.empty()) {
    std::string text = str.text();
    text.reserve(static_cast<size_t>(size));
    while (text.size() * 2 <= static_cast<size_t>(size)) text += text;
    text += text.substr(0, static_cast<size_t>(size) - text.size());
    return Str(std::move(text), str.all_trusted());
  }
  StrBuilder out;
  for (; count > 0; --count) out.append(str);
  return out.build();
}

Str change_case(Budget& budget, const Str& str, Case how) {
  if (!budget.spend_bytes(4 * str.num_bytes())) return str;
  StrBuilder out;
  bool first = true, after_letter = false;
  str.for_each_run(0, str.num_bytes(), [&](std::string_view run, bool trusted) {
    std::string part;
    for (size_t at = 0; at < run.size(); at += char_size(run, at)) {
      const uint32_t c = decode_char(run, at);
      const uint32_t upper = to_upper(c), lower = to_lower(c);
      // The one common character that becomes two; others that do stay as they are.
      const bool sharp_s = c == 0xDF;
      const bool is_letter = upper != lower || sharp_s;
      bool up = false;
      switch (how) {
        case Case::kUpper:
          up = true;
          break;
        case Case::kLower:
          break;
        case Case::kCapitalize:
          up = first;
          break;
        case Case::kTitle:
          up = !after_letter;
          break;
        case Case::kTitleFilter:
          up = first;
          break;
        case Case::kSwap:
          up = c == lower;
          break;
      }
      if (sharp_s && up) {
        part += how == Case::kUpper || how == Case::kSwap ? "SS" : "Ss";
      } else {
        append_utf8(part, up ? upper : lower);
      }
      after_letter = is_letter;
      // The title filter begins words after these characters only.
      first = how == Case::kTitleFilter &&
              (is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<');
    }
    out.append(part, trusted);
  });
  return out.build();
}

std::optional<int64_t> parse_int(std::string_view text, int base) {
  text = text.substr(skip_space(text));
  text = text.substr(0, rskip_space(text, text.size()));
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (text.size() > 2 && text[0] == '0') {
    const char mark = static_cast<char>(text[1] | 0x20);
    const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == marked || base == 0)) {
      text.remove_prefix(2);
      base = marked;
    }
  }
  if (base == 0) base = 10;
  if (base < 2 || base > 36 || text.size() > 400) return {};
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' && i > 0 && i + 1 < text.size() && text[i - 1] != '_') continue;
    digits += text[i];
  }
  if (digits.empty() || digits[0] == '-') return {};
  int64_t value = 0;
  const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (ec != std::errc() || end != digits.data() + digits.size()) return {};
  return negative ? -value : value;
}

std::optional<double> parse_float(std::string_view text) {
  text = text.substr(skip_space(text));
  text = text.substr(0, rskip_space(text, text.size()));
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (text.empty() || text.size() > 400 || text[0] == '-') return {};
  double value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || text.find('(') != std::string_view::npos) return {};
  if (ec == std::errc::result_out_of_range) {
    // from_chars leaves the value alone; strtod would give infinity or a tiny number.
    value = std::strtod(std::string(text).c_str(), nullptr);
  } else if (ec != std::errc()) {
    return {};
  }
  return negative ? -value : value;
}

}  // namespace invar::jinja
