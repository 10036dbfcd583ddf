// Reading script files: every name is checked, so that a typing error is no silent default.
#include "scripted/script.h"

#include <algorithm>
#include <cctype>
#include <unordered_map>

#include "base/json.h"

namespace invar::scripted {
namespace {

constexpr int kFirstSpecial = 256;
constexpr int64_t kMaxId = 1 << 20;
constexpr int64_t kMaxTokens = 1'000'000;  // of all scripts together
constexpr double kMaxDelayMs = 600'000;

constexpr const char* kDefaultTemplate = R"({%- if tools -%}
<|im_start|>system
Call tools as <tool_call>{"name": NAME, "arguments": {...}}</tool_call>. There are:
{% for tool in tools -%}
{{ tool | tojson }}
{% endfor -%}
<|im_end|>
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>
{% endif %}{{ message.content }}
{%- for call in message.tool_calls or [] %}{{ "\n" if message.content or not loop.first }}<tool_call>
{{ {"name": call.function.name, "arguments": call.function.arguments} | tojson }}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%})";

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<std::string> from_hex(std::string_view hex) {
  if (hex.empty() || hex.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = hex_digit(hex[i]), low = hex_digit(hex[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes += static_cast<char>(high << 4 | low);
  }
  return bytes;
}

// Members of `json` must be among `known`.
Result<void> check_names(const Json& json, std::initializer_list<std::string_view> known) {
  for (const auto& [name, value] : json.members())
    if (std::find(known.begin(), known.end(), name) == known.end())
      return invalid_argument("'%s' is not known here", name.c_str());
  return {};
}

Result<double> milliseconds(const Json& json, const char* name, double fallback) {
  INVAR_TRY(const double value, json.optional<double>(name, fallback));
  if (!(value >= 0 && value <= kMaxDelayMs))
    return invalid_argument("%s must be between 0 and %g, got %g", name, kMaxDelayMs, value);
  return value;
}

// -1: absent.
Result<int64_t> index(const Json& json, const char* name) {
  INVAR_TRY(const int64_t value, json.optional<int64_t>(name, -1));
  if (value < 0 && json.find(name) != nullptr)
    return invalid_argument("%s must be at least 0, got %ld", name, long{value});
  return value;
}

class Reader {
 public:
  Result<ScriptFile> read(const Json& json);

 private:
  Result<void> read_specials(const Json* json, const std::string& end);
  Result<void> read_rules(const Json& json);
  Result<void> read_replies(const std::string& key, const Json& json);
  Result<Script> read_script(const Json& json);
  Result<void> read_step(const Json& json, double delay_ms, Script& script);
  Result<void> read_logits(const Json& json, Step& step);
  Result<void> add_step(Step step, Script& script);
  Result<int32_t> piece(const Json& json);
  int32_t piece_id(const std::string& bytes);
  Result<std::vector<std::string>> cut_text(const Json& json) const;

  ScriptFile file_;
  std::unordered_map<std::string, int32_t> piece_ids_;
  int64_t num_tokens_ = 0;
};

Result<ScriptFile> Reader::read(const Json& json) {
  if (!json.is_object()) return invalid_argument("must be an object, got %s", json.kind_name());
  INVAR_TRY(const std::string end, json.optional<std::string>("end", ""));
  INVAR_TRY_VOID(read_specials(json.find("specials"), end));
  INVAR_TRY(file_.chat_template, json.optional<std::string>("template", kDefaultTemplate));
  INVAR_TRY(file_.context_length, json.optional<int64_t>("context_length", file_.context_length));
  if (file_.context_length < 1 || file_.context_length > (1 << 24))
    return invalid_argument("context_length must be between 1 and %d", 1 << 24);
  INVAR_TRY(file_.prefill_chunk, json.optional<int>("prefill_chunk", file_.prefill_chunk));
  if (file_.prefill_chunk < 1) return invalid_argument("prefill_chunk must be at least 1");
  if (const Json* turns = json.find("turns")) {
    if (!turns->is_object()) return invalid_argument("turns must be an object");
    INVAR_TRY_VOID(check_names(*turns, {"user", "tool", "end"}));
    INVAR_TRY(file_.turns.user, turns->optional<std::string>("user", file_.turns.user));
    INVAR_TRY(file_.turns.tool, turns->optional<std::string>("tool", file_.turns.tool));
    INVAR_TRY(file_.turns.end, turns->optional<std::string>("end", file_.turns.end));
  }
  for (const auto& [name, value] : json.members()) {
    static constexpr std::string_view kSettings[] = {"specials", "end",          "template",
                                                     "turns",    "rules",        "context_length",
                                                     "scripts",  "prefill_chunk"};
    if (std::find(std::begin(kSettings), std::end(kSettings), name) != std::end(kSettings))
      continue;
    INVAR_TRY_VOID(read_replies(name, value));
  }
  if (const Json* scripts = json.find("scripts")) {
    if (!scripts->is_object()) return invalid_argument("scripts must be an object");
    for (const auto& [name, value] : scripts->members()) INVAR_TRY_VOID(read_replies(name, value));
  }
  if (const Json* rules = json.find("rules")) INVAR_TRY_VOID(read_rules(*rules));
  return std::move(file_);
}

Result<void> Reader::read_specials(const Json* json, const std::string& end) {
  if (json == nullptr) {
    int32_t id = kFirstSpecial;
    for (const char* text : {"<|im_start|>", "<|im_end|>", "<think>", "</think>"})
      file_.specials.push_back({text, id++});
  } else if (!json->is_object()) {
    return invalid_argument("specials must be an object of texts and ids");
  } else {
    for (const auto& [text, id] : json->members()) {
      if (text.empty() || !id.is_int() || id.as_int() < kFirstSpecial || id.as_int() > kMaxId)
        return invalid_argument("specials: '%s' needs an id from %d to %ld", text.c_str(),
                                kFirstSpecial, long{kMaxId});
      file_.specials.push_back({text, static_cast<int32_t>(id.as_int())});
    }
  }
  auto& specials = file_.specials;
  // The end token: the one that is named, <|im_end|>, or one of our own behind all others.
  const auto find = [&](const std::string& text) {
    return std::find_if(specials.begin(), specials.end(),
                        [&](const SpecialToken& token) { return token.text == text; });
  };
  auto found = find(end.empty() ? "<|im_end|>" : end);
  if (found == specials.end() && !end.empty())
    return invalid_argument("end: '%s' is not among the specials", end.c_str());
  if (found != specials.end()) file_.end_id = found->id;
  std::sort(specials.begin(), specials.end(),
            [](const SpecialToken& a, const SpecialToken& b) { return a.id < b.id; });
  for (size_t i = 1; i < specials.size(); ++i)
    if (specials[i].id == specials[i - 1].id)
      return invalid_argument("specials: '%s' and '%s' have the same id",
                              specials[i - 1].text.c_str(), specials[i].text.c_str());
  if (file_.end_id == 0) {
    file_.end_id = file_.first_piece_id();
    specials.push_back({"<|end|>", file_.end_id});
  }
  return {};
}

Result<void> Reader::read_rules(const Json& json) {
  if (!json.is_array()) return invalid_argument("rules must be an array");
  for (const Json& entry : json.items()) {
    if (!entry.is_object()) return invalid_argument("rules must hold objects");
    INVAR_TRY_VOID(check_names(entry, {"contains", "key"}));
    ScriptFile::Rule rule;
    INVAR_TRY(rule.contains, entry.required<std::string>("contains"));
    INVAR_TRY(rule.key, entry.required<std::string>("key"));
    if (file_.replies.find(rule.key) == file_.replies.end())
      return invalid_argument("rules name the key '%s', which has no script", rule.key.c_str());
    file_.rules.push_back(std::move(rule));
  }
  return {};
}

Result<void> Reader::read_replies(const std::string& key, const Json& json) {
  ScriptFile::Replies replies;
  const Json* list = json.find("by_tool_results");
  if (list == nullptr) {
    Result<Script> script = read_script(json);
    if (!script) return with_context("script '" + key + "'", script.error());
    replies.push_back(*std::move(script));
  } else {
    if (!list->is_array() || list->items().empty() || json.members().size() != 1)
      return invalid_argument("script '%s': by_tool_results must be an array of scripts, alone",
                              key.c_str());
    for (size_t i = 0; i < list->items().size(); ++i) {
      Result<Script> script = read_script(list->items()[i]);
      if (!script) return with_context(format("script '%s'[%zu]", key.c_str(), i), script.error());
      replies.push_back(*std::move(script));
    }
  }
  if (!file_.replies.emplace(key, std::move(replies)).second)
    return invalid_argument("script '%s' is there twice", key.c_str());
  return {};
}

Result<Script> Reader::read_script(const Json& json) {
  Script script;
  double delay_ms = 0;
  const Json* steps = json.is_array() ? &json : nullptr;
  if (!json.is_array()) {
    if (!json.is_object())
      return invalid_argument("must be an array of steps or an object, got %s", json.kind_name());
    INVAR_TRY_VOID(check_names(json, {"steps", "text", "cut", "delay_ms", "prefill_ms_per_token",
                                      "fail_at_step", "nan_at_step", "eos_after"}));
    INVAR_TRY(script.prefill_ms_per_token, milliseconds(json, "prefill_ms_per_token", 0));
    INVAR_TRY(script.fail_at_step, index(json, "fail_at_step"));
    INVAR_TRY(script.nan_at_step, index(json, "nan_at_step"));
    INVAR_TRY(script.eos_after, index(json, "eos_after"));
    INVAR_TRY(delay_ms, milliseconds(json, "delay_ms", 0));
    steps = json.find("steps");
    if (steps != nullptr && !steps->is_array()) return invalid_argument("steps must be an array");
  }
  if (steps != nullptr) {
    for (size_t i = 0; i < steps->items().size(); ++i)
      if (const Result<void> read = read_step(steps->items()[i], delay_ms, script); !read)
        return with_context(format("step %zu", i), read.error());
  }
  if (json.find("text") != nullptr) {  // a step for each piece
    INVAR_TRY(const std::vector<std::string> pieces, cut_text(json));
    for (const std::string& bytes : pieces) {
      Step step;
      step.delay_ms = delay_ms;
      step.tokens.push_back(piece_id(bytes));
      INVAR_TRY_VOID(add_step(std::move(step), script));
    }
  }
  return script;
}

Result<void> Reader::read_step(const Json& json, double delay_ms, Script& script) {
  if (!json.is_object()) return invalid_argument("must be an object, got %s", json.kind_name());
  INVAR_TRY_VOID(
      check_names(json, {"pieces", "text", "cut", "delay_ms", "logits", "other_logits", "repeat"}));
  Step step;
  INVAR_TRY(step.delay_ms, milliseconds(json, "delay_ms", delay_ms));
  if (const Json* pieces = json.find("pieces")) {
    if (!pieces->is_array()) return invalid_argument("pieces must be an array");
    for (const Json& entry : pieces->items()) {
      INVAR_TRY(const int32_t id, piece(entry));
      step.tokens.push_back(id);
    }
  }
  if (json.find("text") != nullptr) {  // all pieces in this step
    INVAR_TRY(const std::vector<std::string> pieces, cut_text(json));
    for (const std::string& bytes : pieces) step.tokens.push_back(piece_id(bytes));
  }
  if (json.find("logits") != nullptr) INVAR_TRY_VOID(read_logits(json, step));
  if (step.tokens.empty() && !step.logits)
    return invalid_argument("has no pieces, no text and no logits");
  INVAR_TRY(const int64_t repeat, json.optional<int64_t>("repeat", 1));
  if (repeat < 1 || repeat > kMaxTokens) return invalid_argument("repeat must be at least 1");
  for (int64_t i = 0; i < repeat; ++i) INVAR_TRY_VOID(add_step(step, script));
  return {};
}

Result<void> Reader::read_logits(const Json& json, Step& step) {
  const Json& list = *json.find("logits");
  if (!list.is_array()) return invalid_argument("logits must be an array of [id, value]");
  auto& logits = step.logits.emplace();
  for (const Json& entry : list.items()) {
    if (!entry.is_array() || entry.items().size() != 2 || !entry.items()[0].is_int() ||
        !entry.items()[1].is_number())
      return invalid_argument("logits must be an array of [id, value]");
    const int64_t id = entry.items()[0].as_int();
    // Ids of pieces are not known to who writes the file.
    if (id < 0 || id >= file_.first_piece_id())
      return invalid_argument("logits name the id %ld; bytes and specials are 0 to %d", long{id},
                              file_.first_piece_id() - 1);
    logits.emplace_back(static_cast<int32_t>(id), static_cast<float>(entry.items()[1].as_double()));
  }
  INVAR_TRY(const double others, json.optional<double>("other_logits", step.other_logits));
  step.other_logits = static_cast<float>(others);
  return {};
}

Result<void> Reader::add_step(Step step, Script& script) {
  if (!script.steps.empty()) {
    const Step& last = script.steps.back();
    step.first_token = last.first_token + std::max<int64_t>(1, std::ssize(last.tokens));
  }
  num_tokens_ += std::max<int64_t>(1, std::ssize(step.tokens));
  if (num_tokens_ > kMaxTokens)
    return invalid_argument("more than %ld tokens in the file", long{kMaxTokens});
  script.steps.push_back(std::move(step));
  return {};
}

// "e4b8ad", or the id of a special token.
Result<int32_t> Reader::piece(const Json& json) {
  if (json.is_int()) {
    const int64_t id = json.as_int();
    if (id < 0 || id >= file_.first_piece_id())
      return invalid_argument("pieces: there is no token %ld", long{id});
    return static_cast<int32_t>(id);
  }
  const std::optional<std::string> bytes =
      json.is_string() ? from_hex(json.as_string()) : std::nullopt;
  if (!bytes)
    return invalid_argument("pieces must be bytes in hexadecimal or ids, got %s",
                            json.dump().c_str());
  return piece_id(*bytes);
}

int32_t Reader::piece_id(const std::string& bytes) {
  if (bytes.size() == 1) return static_cast<uint8_t>(bytes[0]);
  const int32_t next = file_.first_piece_id() + static_cast<int32_t>(file_.pieces.size());
  const auto [entry, is_new] = piece_ids_.emplace(bytes, next);
  if (is_new) file_.pieces.push_back(bytes);
  return entry->second;
}

// `text` in pieces of `cut` bytes; without it, whole.
Result<std::vector<std::string>> Reader::cut_text(const Json& json) const {
  INVAR_TRY(const std::string text, json.required<std::string>("text"));
  INVAR_TRY(const int64_t cut,
            json.optional<int64_t>("cut", std::max<int64_t>(1, std::ssize(text))));
  if (cut < 1) return invalid_argument("cut must be at least 1");
  std::vector<std::string> pieces;
  for (size_t at = 0; at < text.size(); at += static_cast<size_t>(cut))
    pieces.push_back(text.substr(at, static_cast<size_t>(cut)));
  return pieces;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

}  // namespace

Result<ScriptFile> ScriptFile::parse(std::string_view text) {
  INVAR_TRY(const Json json, Json::parse(text));
  return Reader().read(json);
}

std::optional<std::string> find_key(const ScriptFile& file, std::string_view text) {
  static constexpr std::string_view kMark = "KEY:";
  const size_t at = text.rfind(kMark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = trimmed(text.substr(at + kMark.size()));
  const std::string_view line = trimmed(rest.substr(0, rest.find('\n')));
  const std::string_view word = rest.substr(0, rest.find_first_of(" \t\r\n"));
  for (const std::string_view candidate : {rest, line, word})
    if (file.replies.contains(candidate)) return std::string(candidate);
  // A template of its own kind may go on right behind the message: "KEY:x[assistant]".
  std::string_view best;
  for (const auto& [key, replies] : file.replies)
    if (word.starts_with(key) && key.size() > best.size()) best = key;
  const auto in_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
  };
  const bool ends = word.size() > best.size() && !in_word(word[best.size()]);
  return std::string(!best.empty() && ends ? best : word);
}

}  // namespace invar::scripted
