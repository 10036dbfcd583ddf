// NFC (Unicode Standard Annex 15): decompose, order the marks of each run, compose. Text is split
// at characters that NFC can never touch, and only what stands between them takes the slow path.
#include "tokenizer/nfc.h"

#include <algorithm>
#include <span>
#include <unordered_map>
#include <vector>

#include "tokenizer/unicode.h"
#include "tokenizer/unicode_tables.h"

namespace invar {
namespace {

constexpr uint32_t kHangulBase = 0xAC00, kLBase = 0x1100, kVBase = 0x1161, kTBase = 0x11A7;
constexpr uint32_t kLCount = 19, kVCount = 21, kTCount = 28;
constexpr uint32_t kHangulCount = kLCount * kVCount * kTCount;

// An invalid byte travels through the code point array above the Unicode range.
constexpr uint32_t kRawByte = 0x200000;

struct NfcData {
  std::unordered_map<uint32_t, uint8_t> combining;
  std::unordered_map<uint32_t, unicode::Decomposition> decomposition;
  std::unordered_map<uint64_t, uint32_t> composition;
  // Characters that may change or be changed by a neighbour: those that decompose for good, have a
  // combining class, or are the second of a composing pair.
  std::vector<bool> suspicious = std::vector<bool>(0x110000);

  NfcData() {
    for (const auto& range : unicode::combining_ranges())
      for (uint32_t c = range.first; c <= range.last; ++c) {
        combining[c] = static_cast<uint8_t>(range.value);
        suspicious[c] = true;
      }
    for (const auto& pair : unicode::compositions()) {
      composition[key(pair.first, pair.second)] = pair.composed;
      suspicious[pair.second] = true;
      composed.push_back(pair.composed);
    }
    std::sort(composed.begin(), composed.end());
    for (const auto& d : unicode::decompositions()) {
      decomposition[d.composed] = d;
      // A character that composes back from its parts is stable when nothing combining follows.
      if (!std::binary_search(composed.begin(), composed.end(), d.composed))
        suspicious[d.composed] = true;
    }
    for (uint32_t c = kVBase; c < kVBase + kVCount; ++c) suspicious[c] = true;
    for (uint32_t c = kTBase + 1; c < kTBase + kTCount; ++c) suspicious[c] = true;
  }

  static uint64_t key(uint32_t first, uint32_t second) { return uint64_t{first} << 32 | second; }

  static const NfcData& get() {
    static const NfcData data;
    return data;
  }

  uint8_t combining_class(uint32_t c) const {
    const auto found = combining.find(c);
    return found == combining.end() ? 0 : found->second;
  }

 private:
  std::vector<uint32_t> composed;
};

bool is_suspicious(const NfcData& data, uint32_t c) {
  return c >= 0x300 && c < 0x110000 && data.suspicious[c];
}

struct Mark {
  uint32_t code_point;
  uint8_t combining_class;
};

void decompose(const NfcData& data, uint32_t c, std::vector<Mark>& out) {
  if (c >= kHangulBase && c < kHangulBase + kHangulCount) {
    const uint32_t s = c - kHangulBase;
    out.push_back({kLBase + s / (kVCount * kTCount), 0});
    out.push_back({kVBase + s % (kVCount * kTCount) / kTCount, 0});
    if (s % kTCount != 0) out.push_back({kTBase + s % kTCount, 0});
    return;
  }
  const auto found = c < 0xC0 ? data.decomposition.end() : data.decomposition.find(c);
  if (found == data.decomposition.end()) {
    out.push_back({c, data.combining_class(c)});
    return;
  }
  decompose(data, found->second.first, out);  // at most four levels deep in the data
  if (found->second.second != 0) decompose(data, found->second.second, out);
}

// 0: the two do not compose.
uint32_t compose(const NfcData& data, uint32_t first, uint32_t second) {
  if (first >= kLBase && first < kLBase + kLCount && second >= kVBase && second < kVBase + kVCount)
    return kHangulBase + ((first - kLBase) * kVCount + (second - kVBase)) * kTCount;
  if (first >= kHangulBase && first < kHangulBase + kHangulCount &&
      (first - kHangulBase) % kTCount == 0 && second > kTBase && second < kTBase + kTCount)
    return first + (second - kTBase);
  const auto found = data.composition.find(NfcData::key(first, second));
  return found == data.composition.end() ? 0 : found->second;
}

// Canonical order: by combining class, equal ones stay as they are. Counting, so that a long run of
// marks takes linear time.
void order_marks(std::span<Mark> marks) {
  const auto lower = [](const Mark& a, const Mark& b) {
    return a.combining_class < b.combining_class;
  };
  if (std::is_sorted(marks.begin(), marks.end(), lower)) return;
  size_t place[257] = {};
  for (const Mark& mark : marks) ++place[mark.combining_class + 1];
  for (size_t i = 1; i < std::size(place); ++i) place[i] += place[i - 1];
  const std::vector<Mark> unordered(marks.begin(), marks.end());
  for (const Mark& mark : unordered) marks[place[mark.combining_class]++] = mark;
}

// Normalizes one stretch; nothing outside it can interact with it.
void append_stretch(const NfcData& data, std::string_view text, std::vector<Mark>& marks,
                    std::string& out) {
  marks.clear();
  for (size_t pos = 0; pos < text.size();) {
    const DecodedChar c = decode_char(text, pos);
    if (c.code_point == kInvalidCodePoint)
      marks.push_back({kRawByte | static_cast<uint8_t>(text[pos]), 0});
    else
      decompose(data, c.code_point, marks);
    pos += c.num_bytes;
  }
  for (size_t i = 0; i < marks.size();) {
    if (marks[i].combining_class == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < marks.size() && marks[end].combining_class != 0) ++end;
    order_marks(std::span(marks).subspan(i, end - i));
    i = end;
  }
  // Compose in place: `starter` is the last starter written, `last_class` the class of what was
  // kept after it (a mark is blocked by one of its own class or higher between it and the starter).
  size_t written = 0;
  ptrdiff_t starter = -1;
  int last_class = -1;
  for (const Mark mark : marks) {
    if (starter >= 0 && last_class < mark.combining_class) {
      if (const uint32_t joined =
              compose(data, marks[static_cast<size_t>(starter)].code_point, mark.code_point)) {
        marks[static_cast<size_t>(starter)].code_point = joined;
        continue;
      }
    }
    if (mark.combining_class == 0) {
      starter = static_cast<ptrdiff_t>(written);
      last_class = -1;
    } else {
      last_class = mark.combining_class;
    }
    marks[written++] = mark;
  }
  for (size_t i = 0; i < written; ++i) {
    if (marks[i].code_point & kRawByte)
      out += static_cast<char>(marks[i].code_point & 0xFF);
    else
      append_utf8(out, marks[i].code_point);
  }
}

}  // namespace

bool nfc_quick_check(std::string_view text) {
  if (is_ascii(text)) return true;
  const NfcData& data = NfcData::get();
  for (size_t pos = 0; pos < text.size();) {
    const DecodedChar c = decode_char(text, pos);
    if (is_suspicious(data, c.code_point)) return false;
    pos += c.num_bytes;
  }
  return true;
}

std::string nfc(std::string_view text) {
  if (nfc_quick_check(text)) return std::string(text);
  const NfcData& data = NfcData::get();
  std::string out;
  out.reserve(text.size());
  // A stretch is one character that is not suspicious and all suspicious ones behind it.
  std::vector<Mark> marks;
  size_t begin = 0;
  bool any = false;
  const auto flush = [&](size_t end) {
    if (any)
      append_stretch(data, text.substr(begin, end - begin), marks, out);
    else
      out += text.substr(begin, end - begin);
  };
  for (size_t pos = 0; pos < text.size();) {
    const DecodedChar c = decode_char(text, pos);
    if (is_suspicious(data, c.code_point)) {
      any = true;
    } else {
      flush(pos);
      begin = pos;
      any = false;
    }
    pos += c.num_bytes;
  }
  flush(text.size());
  return out;
}

}  // namespace invar
