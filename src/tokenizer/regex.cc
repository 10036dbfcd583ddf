// PCRE2 wrapper: translation of the few escapes that differ, limits, no JIT (its code pages cost
// more than these rare patterns win, and hardened systems refuse them).
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/regex.h"

#include <pcre2.h>

#include "tokenizer/unicode.h"

namespace invar {
namespace {

constexpr uint32_t kMatchLimit = 1'000'000, kDepthLimit = 10'000, kHeapLimitKib = 64 * 1024;
constexpr size_t kMaxPatternBytes = 16 * 1024;

// \s and \S as explicit properties (PCRE2's own also hold U+180E); refuses Oniguruma-only syntax.
Result<std::string> translate(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 's') {
        out += "\\p{White_Space}";
      } else if (escaped == 'S') {
        out += "\\P{White_Space}";
      } else if (escaped == 'h' || escaped == 'H') {
        return unsupported("the escape \\%c means different things to different regex engines",
                           escaped);
      } else {
        out += c;
        out += escaped;
      }
      continue;
    }
    if (in_class && pattern.substr(i).starts_with("&&"))
      return unsupported("intersection of character classes (&&)");
    if (in_class && c == '[' && !pattern.substr(i).starts_with("[:"))
      return unsupported("a character class inside a character class");
    if (c == '[') {
      if (in_class) {  // [:name:]
        const size_t close = pattern.find(":]", i);
        if (close == std::string_view::npos) return unsupported("'[:' without ':]'");
        out += pattern.substr(i, close + 2 - i);
        i = close + 1;
        continue;
      }
      in_class = true;
    } else if (c == ']') {
      in_class = false;
    }
    out += c;
  }
  return out;
}

}  // namespace

struct Regex::State {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
  ~State() {
    pcre2_match_context_free(context);
    pcre2_code_free(code);
  }
};

Regex::Regex(std::unique_ptr<State> state) : state_(std::move(state)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes)
    return unsupported("regex of %zu bytes, at most %zu are read", pattern.size(),
                       kMaxPatternBytes);
  INVAR_TRY(const std::string translated, translate(pattern));
  auto state = std::make_unique<State>();
  int error = 0;
  PCRE2_SIZE offset = 0;
  state->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (state->code == nullptr) {
    PCRE2_UCHAR message[200];
    pcre2_get_error_message(error, message, sizeof message);
    return invalid_argument("regex does not compile: %s (near byte %zu)",
                            reinterpret_cast<const char*>(message), static_cast<size_t>(offset));
  }
  state->context = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(state->context, kMatchLimit);
  pcre2_set_depth_limit(state->context, kDepthLimit);
  pcre2_set_heap_limit(state->context, kHeapLimitKib);
  return Regex(std::move(state));
}

Regex::Subject::Subject(std::string_view text) : text_(text) {
  if (is_valid_utf8(text)) return;
  replaced_ = text;
  for (size_t pos = 0; pos < text.size();) {
    const DecodedChar c = decode_char(text, pos);
    if (c.code_point == kInvalidCodePoint) replaced_[pos] = '\x1A';
    pos += c.num_bytes;
  }
  text_ = replaced_;
}

bool Regex::find(const Subject& subject, size_t from, size_t& begin, size_t& end) const {
  const std::string_view text = subject.text();
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  const int rc = pcre2_match(state_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                             from, PCRE2_NO_UTF_CHECK, data, state_->context);
  const bool found = rc >= 0;
  if (found) {
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data);
    begin = range[0];
    end = range[1];
  }
  pcre2_match_data_free(data);
  // \K can move the begin behind the end or before `from`.
  return found && begin >= from && end >= begin;
}

}  // namespace invar
