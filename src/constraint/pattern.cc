// Pattern text -> syntax tree -> nondeterministic automaton -> CharDfa.
#include "constraint/pattern.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/utf8.h"

namespace invar {
namespace {

constexpr size_t kMaxNfaStates = 20'000;

struct Node {
  enum Kind { kSet, kSequence, kChoice, kRepeat } kind = kSequence;
  uint32_t set = 0;             // kSet
  std::vector<uint32_t> parts;  // kSequence, kChoice; kRepeat has one
  int min = 0, max = -1;        // kRepeat; -1: without end
};

CharSet digits() { return CharSet::of({{'0', '9'}}); }
CharSet word() { return CharSet::of({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}); }
CharSet space() {
  return CharSet::of({{9, 13},
                      {32, 32},
                      {0xA0, 0xA0},
                      {0x1680, 0x1680},
                      {0x2000, 0x200A},
                      {0x2028, 0x2029},
                      {0x202F, 0x202F},
                      {0x205F, 0x205F},
                      {0x3000, 0x3000}});
}
// Engines disagree about characters beyond ASCII: is an Arabic digit a \d, a Chinese character a
// \w? What any of them may take for a digit, a word or a space is in none of these, so that every
// string we write matches for all of them. (Parts of Unicode without digits; punctuation, symbols.)
CharSet not_digits() {
  return CharSet::of({{0, '0' - 1},
                      {'9' + 1, 0x65F},
                      {0x1E00, 0xA61F},
                      {0xAC00, 0xD7A3},
                      {0xE000, 0xFF0F},
                      {0xFF1A, 0xFFFD},
                      {0x1F000, 0x1FAFF},
                      {0x20000, 0x3FFFD}});
}
CharSet not_word() {
  return CharSet::of({{0, '0' - 1},      {'9' + 1, 'A' - 1}, {'Z' + 1, '_' - 1}, {'`', '`'},
                      {'z' + 1, 0xA9},   {0xAB, 0xB1},       {0xB4, 0xB4},       {0xB6, 0xB8},
                      {0xBB, 0xBB},      {0xBF, 0xBF},       {0xD7, 0xD7},       {0xF7, 0xF7},
                      {0x2010, 0x2027},  {0x2030, 0x203E},   {0x2041, 0x2053},   {0x2190, 0x245F},
                      {0x2500, 0x2767},  {0x27C0, 0x2BFF},   {0x3001, 0x3003},   {0x3008, 0x3011},
                      {0x1F300, 0x1FAFF}});
}
CharSet not_space() {
  CharSet set = space();
  set.add(0x1C, 0x1F);
  set.add(0x85, 0x85);
  set.add(0xFEFF, 0xFEFF);
  set.normalise();
  return set.complement();
}
CharSet any_but_line_ends() {
  return CharSet::of({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).complement();
}

class Parser {
 public:
  explicit Parser(std::string_view pattern) : text_(pattern) {}

  // Alternatives at the top, each with its own anchors.
  Result<CharNfa> parse() {
    std::vector<uint32_t> choices;
    do {
      const bool at_start = take('^');
      INVAR_TRY(const uint32_t body, parse_sequence(0));
      const bool at_end = take('$');
      if (!at_end_of_text() && peek() != '|') return unexpected();
      const uint32_t anything = add_repeat(add_set(CharSet::all()), 0, -1);
      std::vector<uint32_t> parts;
      if (!at_start) parts.push_back(anything);
      parts.push_back(body);
      if (!at_end) parts.push_back(anything);
      choices.push_back(add_group(Node::kSequence, std::move(parts)));
    } while (take('|'));
    const uint32_t root = add_group(Node::kChoice, std::move(choices));
    CharNfa nfa;
    nfa.sets = std::move(sets_);
    nfa.states.resize(2);
    nfa.start = 0;
    nfa.end = 1;
    if (!build(root, 0, 1, nfa))
      return resource_exhausted("it needs more than %zu states", kMaxNfaStates);
    return nfa;
  }

 private:
  bool at_end_of_text() const { return pos_ == text_.size(); }
  char peek(size_t ahead = 0) const {
    return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0';
  }
  bool take(char c) {
    if (at_end_of_text() || text_[pos_] != c) return false;
    ++pos_;
    return true;
  }
  bool take(std::string_view literal) {
    if (!text_.substr(pos_).starts_with(literal)) return false;
    pos_ += literal.size();
    return true;
  }

  Error unexpected() const {
    switch (peek()) {
      case '^':
      case '$':
        return invalid_argument("the anchor '%c' at byte %zu is not at an end of the pattern",
                                peek(), pos_);
      case ')':
        return invalid_argument("')' at byte %zu closes no group", pos_);
      default:
        return invalid_argument("'%c' at byte %zu has nothing to repeat", peek(), pos_);
    }
  }

  uint32_t add(Node node) {
    nodes_.push_back(std::move(node));
    return static_cast<uint32_t>(nodes_.size() - 1);
  }
  uint32_t add_set(CharSet set) {
    sets_.push_back(std::move(set));
    return add({.kind = Node::kSet, .set = static_cast<uint32_t>(sets_.size() - 1), .parts = {}});
  }
  uint32_t add_group(Node::Kind kind, std::vector<uint32_t> parts) {
    return parts.size() == 1 ? parts[0] : add({.kind = kind, .parts = std::move(parts)});
  }
  uint32_t add_repeat(uint32_t part, int min, int max) {
    return add({.kind = Node::kRepeat, .parts = {part}, .min = min, .max = max});
  }

  Result<uint32_t> parse_choice(int depth) {
    std::vector<uint32_t> choices;
    do {
      INVAR_TRY(const uint32_t choice, parse_sequence(depth));
      choices.push_back(choice);
    } while (take('|'));
    return add_group(Node::kChoice, std::move(choices));
  }

  // Up to '|', ')', '$' or the end.
  Result<uint32_t> parse_sequence(int depth) {
    std::vector<uint32_t> parts;
    while (!at_end_of_text() && peek() != '|' && peek() != ')' && peek() != '$' && peek() != '^') {
      INVAR_TRY(uint32_t part, parse_atom(depth));
      INVAR_TRY(part, parse_repeat(part));
      parts.push_back(part);
    }
    return add_group(Node::kSequence, std::move(parts));
  }

  Result<uint32_t> parse_repeat(uint32_t part) {
    int min = 0, max = -1;
    if (take('*')) {
    } else if (take('+')) {
      min = 1;
    } else if (take('?')) {
      max = 1;
    } else if (const std::optional<size_t> end = parse_bounds(min, max)) {
      pos_ = *end;
      if (min > kMaxPatternRepeat || max > kMaxPatternRepeat)
        return resource_exhausted("a repetition is above %d", kMaxPatternRepeat);
      if (max >= 0 && min > max)
        return invalid_argument("the repetition {%d,%d} has its bounds the wrong way round", min,
                                max);
    } else {
      return part;
    }
    take('?');  // lazy: the same strings
    if (peek() == '*' || peek() == '+' || peek() == '?') return unexpected();
    return add_repeat(part, min, max);
  }

  // {m}, {m,} or {m,n}: where it ends. Any other brace stands for itself.
  std::optional<size_t> parse_bounds(int& min, int& max) const {
    if (peek() != '{') return std::nullopt;
    size_t at = pos_ + 1;
    const auto number = [&](int& value) {
      const size_t first = at;
      value = 0;
      for (; at < text_.size() && text_[at] >= '0' && text_[at] <= '9'; ++at)
        value = std::min(value * 10 + (text_[at] - '0'), 1'000'000);
      return at > first;
    };
    int low = 0, high = 0;
    if (!number(low)) return std::nullopt;
    high = low;
    if (at < text_.size() && text_[at] == ',') {
      ++at;
      if (!number(high)) high = -1;
    }
    if (at >= text_.size() || text_[at] != '}') return std::nullopt;
    min = low;
    max = high;
    return at + 1;
  }

  Result<uint32_t> parse_atom(int depth) {
    if (take('(')) {
      if (depth >= kMaxPatternDepth)
        return resource_exhausted("its groups are nested more than %d deep", kMaxPatternDepth);
      if (take("?:")) {
      } else if (peek() == '?') {
        const char kind = peek(1), next = peek(2);
        if (kind == '=' || kind == '!' || (kind == '<' && (next == '=' || next == '!')))
          return invalid_argument("look-around at byte %zu is not supported", pos_ - 1);
        return invalid_argument("the group at byte %zu is not supported", pos_ - 1);
      }
      INVAR_TRY(const uint32_t group, parse_choice(depth + 1));
      if (peek() == '^' || peek() == '$') return unexpected();
      if (!take(')')) return invalid_argument("a group is not closed");
      return group;
    }
    if (take('[')) return parse_class();
    if (take('.')) return add_set(any_but_line_ends());
    if (peek() == '*' || peek() == '+' || peek() == '?') return unexpected();
    if (take('\\')) {
      CharSet set;
      INVAR_TRY_VOID(parse_escape(set, false, false));
      return add_set(std::move(set));
    }
    INVAR_TRY(const uint32_t c, parse_char());
    return add_set(CharSet::of({{c, c}}));
  }

  Result<uint32_t> parse_char() {
    const Utf8Prefix prefix = utf8_prefix(text_.substr(pos_));
    if (prefix.state != Utf8Prefix::kCharacter) return invalid_argument("it is not UTF-8");
    const auto byte = [&](size_t i) {
      return static_cast<uint32_t>(static_cast<uint8_t>(text_[pos_ + i]));
    };
    uint32_t c = prefix.num_bytes == 1 ? byte(0) : byte(0) & (0xFFu >> (prefix.num_bytes + 1));
    for (size_t i = 1; i < prefix.num_bytes; ++i) c = c << 6 | (byte(i) & 0x3F);
    pos_ += prefix.num_bytes;
    return c;
  }

  Result<uint32_t> parse_hex(int num_digits) {
    uint32_t value = 0;
    for (int i = 0; i < num_digits; ++i, ++pos_) {
      const char c = peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return invalid_argument("a hex escape has no %d digits", num_digits);
      value = value * 16 + static_cast<uint32_t>(digit);
    }
    return value;
  }

  // After the backslash. `negated`: the set will be left out, so that it holds what any engine may
  // take for a digit, a word or a space.
  Result<void> parse_escape(CharSet& set, bool in_class, bool negated) {
    if (at_end_of_text()) return invalid_argument("it ends in a backslash");
    const size_t at = pos_ - 1;
    const char c = text_[pos_++];
    const auto one = [&](uint32_t code_point) { set = CharSet::of({{code_point, code_point}}); };
    switch (c) {
      case 'd':
        set = negated ? not_digits().complement() : digits();
        return {};
      case 'D':
        set = negated ? digits().complement() : not_digits();
        return {};
      case 'w':
        set = negated ? not_word().complement() : word();
        return {};
      case 'W':
        set = negated ? word().complement() : not_word();
        return {};
      case 's':
        set = negated ? not_space().complement() : space();
        return {};
      case 'S':
        set = negated ? space().complement() : not_space();
        return {};
      case 't':
        return one('\t'), Result<void>();
      case 'n':
        return one('\n'), Result<void>();
      case 'r':
        return one('\r'), Result<void>();
      case 'f':
        return one('\f'), Result<void>();
      case 'v':
        return one('\v'), Result<void>();
      case 'x': {
        INVAR_TRY(const uint32_t value, parse_hex(2));
        return one(value), Result<void>();
      }
      case 'u': {
        INVAR_TRY(uint32_t value, parse_hex(4));
        if (value >= 0xD800 && value < 0xDC00 && take("\\u")) {
          INVAR_TRY(const uint32_t low, parse_hex(4));
          if (low < 0xDC00 || low > 0xDFFF) return invalid_argument("a surrogate stands alone");
          value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
        }
        if (value >= 0xD800 && value <= 0xDFFF) return invalid_argument("a surrogate stands alone");
        return one(value), Result<void>();
      }
      case 'p':
      case 'P':
        return invalid_argument("the Unicode property class at byte %zu is not supported", at);
      case 'b':
        if (in_class) return one('\b'), Result<void>();
        [[fallthrough]];
      case 'B':
        return invalid_argument("the word boundary '\\%c' at byte %zu is not supported", c, at);
      case 'k':
        return invalid_argument("the back reference at byte %zu is not supported", at);
      case '0':
        if (peek() < '0' || peek() > '9') return one(0), Result<void>();
        break;
      default:
        if (c >= '1' && c <= '9')
          return invalid_argument("the back reference at byte %zu is not supported", at);
        if (static_cast<uint8_t>(c) < 0x80 && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z'))
          return one(static_cast<uint8_t>(c)), Result<void>();
    }
    return invalid_argument("the escape at byte %zu is not supported", at);
  }

  Result<uint32_t> parse_class() {
    CharSet set;
    const bool negated = take('^');
    while (!take(']')) {
      if (at_end_of_text()) return invalid_argument("a character class is not closed");
      CharSet low;
      INVAR_TRY_VOID(parse_class_member(low, negated));
      if (peek() != '-' || peek(1) == ']' || pos_ + 1 >= text_.size()) {
        set.add(low);
        continue;
      }
      ++pos_;
      CharSet high;
      INVAR_TRY_VOID(parse_class_member(high, negated));
      const auto single = [](const CharSet& s) {
        return s.ranges().size() == 1 && s.ranges()[0].low == s.ranges()[0].high;
      };
      if (!single(low) || !single(high) || low.ranges()[0].low > high.ranges()[0].low)
        return invalid_argument("a character class has a range that is none");
      set.add(low.ranges()[0].low, high.ranges()[0].low);
    }
    set.normalise();
    return add_set(negated ? set.complement() : std::move(set));
  }

  Result<void> parse_class_member(CharSet& set, bool negated) {
    if (take('\\')) return parse_escape(set, true, negated);
    INVAR_TRY(const uint32_t c, parse_char());
    set = CharSet::of({{c, c}});
    return {};
  }

  // False: too many states. Depth is bounded by that of the groups.
  bool build(uint32_t index, uint32_t from, uint32_t to, CharNfa& nfa) const {
    const auto new_state = [&] {
      nfa.states.emplace_back();
      return static_cast<uint32_t>(nfa.states.size() - 1);
    };
    if (nfa.states.size() > kMaxNfaStates) return false;
    const Node& node = nodes_[index];
    switch (node.kind) {
      case Node::kSet:
        nfa.states[from].edges.push_back({node.set, to});
        return true;
      case Node::kChoice:
        for (const uint32_t part : node.parts) {
          const uint32_t begin = new_state();
          nfa.states[from].empties.push_back(begin);
          if (!build(part, begin, to, nfa)) return false;
        }
        return true;
      case Node::kSequence:
        for (const uint32_t part : node.parts) {
          const uint32_t next = new_state();
          if (!build(part, from, next, nfa)) return false;
          from = next;
        }
        nfa.states[from].empties.push_back(to);
        return true;
      case Node::kRepeat:
        break;
    }
    const int copies = node.max < 0 ? node.min : node.max;
    for (int i = 0; i < copies; ++i) {
      if (i >= node.min) nfa.states[from].empties.push_back(to);
      const uint32_t next = new_state();
      if (!build(node.parts[0], from, next, nfa)) return false;
      from = next;
    }
    if (node.max < 0) {
      const uint32_t loop = new_state();
      nfa.states[from].empties.push_back(loop);
      const uint32_t next = new_state();
      if (!build(node.parts[0], loop, next, nfa)) return false;
      nfa.states[next].empties.push_back(loop);
      from = loop;
    }
    nfa.states[from].empties.push_back(to);
    return true;
  }

  std::string_view text_;
  size_t pos_ = 0;
  std::vector<Node> nodes_;
  std::vector<CharSet> sets_;
};

// RFC 3339 without leap seconds and without year 0.
std::string date_pattern() {
  const std::string year = "([1-9]\\d{3}|0[1-9]\\d{2}|00[1-9]\\d|000[1-9])";
  const std::string fourth = "(0[48]|[2468][048]|[13579][26])";
  return "(" + year +
         "-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|"
         "02-(0[1-9]|1\\d|2[0-8]))|(\\d\\d" +
         fourth + "|" + fourth + "00)-02-29)";
}

std::string time_pattern() {
  const std::string hour = "([01]\\d|2[0-3])";
  return hour + ":[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]" + hour + ":[0-5]\\d)";
}

std::string duration_pattern() {
  const std::string n = "\\d{1,9}";
  const std::string date =
      "(" + n + "Y(" + n + "M(" + n + "D)?)?|" + n + "M(" + n + "D)?|" + n + "D)";
  const std::string time =
      "T(" + n + "H(" + n + "M(" + n + "S)?)?|" + n + "M(" + n + "S)?|" + n + "S)";
  return "P(" + n + "W|" + date + "(" + time + ")?|" + time + ")";
}

std::string hostname_pattern(int max_label, int max_labels) {
  const std::string label =
      "[A-Za-z0-9]([A-Za-z0-9-]{0," + std::to_string(max_label - 2) + "}[A-Za-z0-9])?";
  return label + "(\\." + label + "){0," + std::to_string(max_labels - 1) + "}";
}

std::string email_pattern() {
  const std::string atom = "[A-Za-z0-9_+'-]{1,20}";
  return atom + "(\\." + atom + "){0,2}@" + hostname_pattern(32, 4);
}

std::string ipv4_pattern() {
  const std::string byte = "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
  return byte + "(\\." + byte + "){3}";
}

std::string ipv6_pattern() {
  const std::string group = "[0-9a-fA-F]{1,4}";
  std::string pattern = "((" + group + ":){7}" + group;
  for (int before = 0; before <= 7; ++before) {  // groups before the gap
    const std::string head = before == 0 ? ":" : "(" + group + ":){" + std::to_string(before) + "}";
    pattern += "|" + head;
    pattern += before == 7 ? ":" : "(:|(:" + group + "){1," + std::to_string(7 - before) + "})";
  }
  return pattern + ")";
}

}  // namespace

Result<CharDfa> compile_pattern(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes)
    return resource_exhausted("it has %zu bytes, the limit is %zu", pattern.size(),
                              kMaxPatternBytes);
  INVAR_TRY(const CharNfa nfa, Parser(pattern).parse());
  return determinise(nfa);
}

Result<CharDfa> compile_format(std::string_view name) {
  std::string pattern;
  if (name == "date") {
    pattern = date_pattern();
  } else if (name == "time") {
    pattern = time_pattern();
  } else if (name == "date-time") {
    pattern = date_pattern() + "T" + time_pattern();
  } else if (name == "duration") {
    pattern = duration_pattern();
  } else if (name == "uuid") {
    pattern = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}";
  } else if (name == "email") {
    pattern = email_pattern();
  } else if (name == "hostname") {
    pattern = hostname_pattern(62, 4);
  } else if (name == "ipv4") {
    pattern = ipv4_pattern();
  } else if (name == "ipv6") {
    pattern = ipv6_pattern();
  } else {
    return invalid_argument(
        "supported are date, time, date-time, duration, uuid, email, hostname, ipv4 and ipv6");
  }
  return compile_pattern("^(" + pattern + ")$");
}

}  // namespace invar
