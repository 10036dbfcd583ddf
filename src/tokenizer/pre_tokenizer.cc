// Parsing of pre-tokenizers and the cutting itself.
#include "tokenizer/pre_tokenizer.h"

#include <utility>

#include "tokenizer/unicode.h"

namespace invar {
namespace {

constexpr std::string_view kMetaspaceDefault = "\xE2\x96\x81";  // U+2581

bool is_numeric(std::string_view text, size_t pos) {
  return CharClasses::get()(decode_char(text, pos).code_point) & kNumeric;
}

}  // namespace

void PreTokenizer::add_pattern(const SplitPattern& pattern) {
  Step step;
  step.pattern = &pattern;
  steps_.push_back(std::move(step));
}

void PreTokenizer::add_digits() {
  Step step;
  step.single_digits = true;
  steps_.push_back(std::move(step));
}

std::string PreTokenizer::description() const {
  std::string out;
  for (const Step& step : steps_) {
    const std::string_view name = step.pattern                    ? step.pattern->name
                                  : step.single_digits            ? "digits"
                                  : step.regex.has_value()        ? "regex"
                                  : !step.literal.empty()         ? "literal"
                                  : step.kind == Kind::kMetaspace ? "metaspace"
                                                                  : "";
    if (name.empty()) continue;
    if (!out.empty()) out += " + ";
    out += name;
  }
  return out;
}

// ---- tokenizer.json
// ------------------------------------------------------------------------------

Result<PreTokenizer> PreTokenizer::parse(const Json& json) {
  PreTokenizer pre_tokenizer;
  INVAR_TRY_VOID(pre_tokenizer.parse_step(json, "pre_tokenizer", 0));
  return pre_tokenizer;
}

Result<void> PreTokenizer::parse_step(const Json& json, const std::string& field, int depth) {
  if (json.is_null()) return {};
  if (!json.is_object())
    return invalid_argument("'%s' is %s, expected an object", field.c_str(), json.kind_name());
  if (depth > 8) return unsupported("'%s' is nested too deeply", field.c_str());
  if (byte_level)
    return unsupported("'%s' comes after ByteLevel, which must be last", field.c_str());
  auto type = json.required<std::string>("type");
  if (!type.ok()) return with_context(field, type.error());
  if (*type == "Sequence") {
    const Json* list = json.find("pretokenizers");
    if (list == nullptr || !list->is_array())
      return invalid_argument("'%s.pretokenizers' is missing or no array", field.c_str());
    for (size_t i = 0; i < list->items().size(); ++i)
      INVAR_TRY_VOID(parse_step(list->items()[i],
                                field + ".pretokenizers[" + std::to_string(i) + "]", depth + 1));
    return {};
  }
  if (*type == "Split") return parse_split(json, field);
  if (*type == "Metaspace") return parse_metaspace(json, field);
  if (*type == "Digits") {
    auto individual = json.optional<bool>("individual_digits", false);
    if (!individual.ok()) return with_context(field, individual.error());
    Step step;
    step.kind = *individual ? Kind::kSplit : Kind::kDigitRuns;
    step.single_digits = *individual;
    steps_.push_back(std::move(step));
    return {};
  }
  if (*type == "ByteLevel") {
    auto prefix = json.optional<bool>("add_prefix_space", true);
    auto use_regex = json.optional<bool>("use_regex", true);
    if (!prefix.ok()) return with_context(field, prefix.error());
    if (!use_regex.ok()) return with_context(field, use_regex.error());
    if (*prefix) {
      Step step;
      step.kind = Kind::kByteLevelPrefix;
      steps_.push_back(std::move(step));
    }
    if (*use_regex) add_pattern(*split_pattern_by_name("gpt-2"));
    byte_level = true;
    return {};
  }
  return unsupported("'%s.type' is %s; Split, ByteLevel, Digits, Metaspace and Sequence are known",
                     field.c_str(), json_quote(type->substr(0, 60)).c_str());
}

Result<void> PreTokenizer::parse_split(const Json& json, const std::string& field) {
  Step step;
  auto behavior = json.required<std::string>("behavior");
  auto invert = json.optional<bool>("invert", false);
  if (!behavior.ok()) return with_context(field, behavior.error());
  if (!invert.ok()) return with_context(field, invert.error());
  step.invert = *invert;
  constexpr std::pair<std::string_view, Behavior> kBehaviors[] = {
      {"Isolated", Behavior::kIsolated},
      {"Removed", Behavior::kRemoved},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous},
  };
  bool known = false;
  for (const auto& [name, value] : kBehaviors)
    if (*behavior == name) {
      step.behavior = value;
      known = true;
    }
  if (!known)
    return unsupported("'%s.behavior' is %s", field.c_str(),
                       json_quote(behavior->substr(0, 60)).c_str());
  const Json* pattern = json.find("pattern");
  const Json* literal = pattern ? pattern->find("String") : nullptr;
  const Json* regex = pattern ? pattern->find("Regex") : nullptr;
  if (literal && literal->is_string()) {
    if (literal->as_string().empty()) return {};
    step.literal = literal->as_string();
  } else if (regex && regex->is_string()) {
    step.pattern = split_pattern_by_regex(regex->as_string());
    if (step.pattern == nullptr) {
      auto compiled = Regex::compile(regex->as_string());
      if (!compiled.ok()) return with_context(field + ".pattern", compiled.error());
      step.regex = std::move(*compiled);
    }
  } else {
    return invalid_argument("'%s.pattern' has neither a 'String' nor a 'Regex'", field.c_str());
  }
  steps_.push_back(std::move(step));
  return {};
}

Result<void> PreTokenizer::parse_metaspace(const Json& json, const std::string& field) {
  Step step;
  step.kind = Kind::kMetaspace;
  auto replacement = json.optional<std::string>("replacement", std::string(kMetaspaceDefault));
  auto scheme = json.optional<std::string>("prepend_scheme", "always");
  auto add_prefix = json.optional<bool>("add_prefix_space", true);  // older files
  auto split = json.optional<bool>("split", true);
  if (!replacement.ok()) return with_context(field, replacement.error());
  if (!scheme.ok()) return with_context(field, scheme.error());
  if (!add_prefix.ok()) return with_context(field, add_prefix.error());
  if (!split.ok()) return with_context(field, split.error());
  if (!is_one_char(*replacement))
    return invalid_argument("'%s.replacement' is %s, expected one character", field.c_str(),
                            json_quote(replacement->substr(0, 60)).c_str());
  step.replacement = *replacement;
  step.split = *split;
  if (*scheme == "always")
    step.prepend = *add_prefix ? Prepend::kAlways : Prepend::kNever;
  else if (*scheme == "first")
    step.prepend = Prepend::kFirst;
  else if (*scheme == "never")
    step.prepend = Prepend::kNever;
  else
    return unsupported("'%s.prepend_scheme' is %s", field.c_str(),
                       json_quote(scheme->substr(0, 60)).c_str());
  steps_.push_back(std::move(step));
  return {};
}

// ---- Cutting
// -------------------------------------------------------------------------------------

bool PreTokenizer::find(const Step& step, std::string_view piece, const Regex::Subject* subject,
                        size_t from, size_t& begin, size_t& end) {
  if (step.pattern) {
    if (from >= piece.size()) return false;
    begin = from;
    end = step.pattern->match(piece, from);
    return true;
  }
  if (step.single_digits) {
    for (size_t pos = from; pos < piece.size();) {
      const uint32_t size = decode_char(piece, pos).num_bytes;
      if (is_numeric(piece, pos)) {
        begin = pos;
        end = pos + size;
        return true;
      }
      pos += size;
    }
    return false;
  }
  if (step.regex) {
    // An empty match cuts nothing; look on from the next character.
    while (from <= piece.size() && step.regex->find(*subject, from, begin, end)) {
      if (end > begin) return true;
      if (end >= piece.size()) return false;
      from = end + decode_char(piece, end).num_bytes;
    }
    return false;
  }
  begin = piece.find(step.literal, from);
  end = begin + step.literal.size();
  return begin != std::string_view::npos;
}

void PreTokenizer::run(size_t step_index, std::string_view piece, bool at_text_start,
                       const WordSink& word) const {
  if (piece.empty()) return;
  if (step_index == steps_.size()) {
    word(piece);
    return;
  }
  const Step& step = steps_[step_index];
  switch (step.kind) {
    case Kind::kSplit:
      run_split(step, step_index, piece, at_text_start, word);
      return;
    case Kind::kDigitRuns: {
      for (size_t begin = 0; begin < piece.size();) {
        const bool numeric = is_numeric(piece, begin);
        size_t end = begin;
        while (end < piece.size() && is_numeric(piece, end) == numeric)
          end += decode_char(piece, end).num_bytes;
        run(step_index + 1, piece.substr(begin, end - begin), at_text_start && begin == 0, word);
        begin = end;
      }
      return;
    }
    case Kind::kByteLevelPrefix:
      if (piece[0] == ' ') {
        run(step_index + 1, piece, at_text_start, word);
      } else {
        run(step_index + 1, " " + std::string(piece), at_text_start, word);
      }
      return;
    case Kind::kMetaspace: {
      std::string text;
      text.reserve(piece.size() + piece.size() / 8);
      for (const char c : piece) {
        if (c == ' ')
          text += step.replacement;
        else
          text += c;
      }
      const bool wanted =
          step.prepend == Prepend::kAlways || (step.prepend == Prepend::kFirst && at_text_start);
      if (wanted && !text.starts_with(step.replacement)) text.insert(0, step.replacement);
      if (!step.split) {
        run(step_index + 1, text, at_text_start, word);
        return;
      }
      // MergedWithNext: each replacement character begins a word.
      const std::string_view all = text;
      for (size_t begin = 0; begin < all.size();) {
        const size_t from = all.substr(begin).starts_with(step.replacement)
                                ? begin + step.replacement.size()
                                : begin;
        const size_t end = std::min(all.find(step.replacement, from), all.size());
        run(step_index + 1, all.substr(begin, end - begin), at_text_start && begin == 0, word);
        begin = end;
      }
      return;
    }
  }
}

void PreTokenizer::run_split(const Step& step, size_t step_index, std::string_view piece,
                             bool at_text_start, const WordSink& word) const {
  const auto pass_on = [&](size_t begin, size_t end) {
    if (begin < end)
      run(step_index + 1, piece.substr(begin, end - begin), at_text_start && begin == 0, word);
  };
  std::optional<Regex::Subject> checked;
  if (step.regex) checked.emplace(piece);
  const Regex::Subject* subject = checked ? &*checked : nullptr;
  size_t pos = 0, begin = 0, end = 0;
  if (step.behavior == Behavior::kIsolated) {  // the common case; invert changes nothing
    while (find(step, piece, subject, pos, begin, end)) {
      pass_on(pos, begin);
      pass_on(begin, end);
      pos = end;
    }
    pass_on(pos, piece.size());
    return;
  }
  struct Part {
    size_t begin, end;
    bool is_match;
  };
  std::vector<Part> parts;
  while (find(step, piece, subject, pos, begin, end)) {
    if (begin > pos) parts.push_back({pos, begin, step.invert});
    parts.push_back({begin, end, !step.invert});
    pos = end;
  }
  if (pos < piece.size()) parts.push_back({pos, piece.size(), step.invert});
  switch (step.behavior) {
    case Behavior::kIsolated:
      break;
    case Behavior::kRemoved:
      for (const Part& part : parts)
        if (!part.is_match) pass_on(part.begin, part.end);
      break;
    case Behavior::kContiguous:
      for (size_t i = 0, j = 0; i < parts.size(); i = j) {
        for (j = i + 1; j < parts.size() && parts[j].is_match == parts[i].is_match;) ++j;
        pass_on(parts[i].begin, parts[j - 1].end);
      }
      break;
    case Behavior::kMergedWithPrevious: {
      // A match joins the gap before it; a match behind a match stands alone.
      size_t from = 0;
      for (size_t i = 0; i < parts.size(); ++i) {
        const bool joined_by_next =
            !parts[i].is_match && i + 1 < parts.size() && parts[i + 1].is_match;
        if (joined_by_next) continue;
        pass_on(from, parts[i].end);
        from = parts[i].end;
      }
      break;
    }
    case Behavior::kMergedWithNext: {
      size_t from = 0;
      for (size_t i = 0; i < parts.size(); ++i) {
        const bool joins_next = parts[i].is_match && i + 1 < parts.size() && !parts[i + 1].is_match;
        if (joins_next) continue;
        pass_on(from, parts[i].end);
        from = parts[i].end;
      }
      break;
    }
  }
}

}  // namespace invar
