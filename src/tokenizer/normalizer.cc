// Parsing and running of normalizers.
#include "tokenizer/normalizer.h"

#include <algorithm>

#include "tokenizer/nfc.h"
#include "tokenizer/unicode.h"

namespace invar {
namespace {

constexpr size_t kMaxGrowth = 256;        // bytes that all steps may make of one; real models: 3
constexpr size_t kMaxPrependBytes = 256;  // real models: 3

std::string replace_all(std::string_view text, const Regex& regex, std::string_view to) {
  std::string out;
  const Regex::Subject subject(text);
  size_t pos = 0, from = 0, begin = 0, end = 0;
  while (from <= text.size() && regex.find(subject, from, begin, end)) {
    out += text.substr(pos, begin - pos);
    out += to;
    pos = end;
    from = end;
    if (end == begin) from += end < text.size() ? decode_char(text, end).num_bytes : 1;
  }
  out += text.substr(std::min(pos, text.size()));
  return out;
}

}  // namespace

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  size_t pos = 0;
  for (size_t found; (found = text.find(from, pos)) != std::string_view::npos;) {
    out += text.substr(pos, found - pos);
    out += to;
    pos = found + from.size();
  }
  out += text.substr(pos);
  return out;
}

Result<Normalizer> Normalizer::parse(const Json& json) {
  Normalizer normalizer;
  INVAR_TRY_VOID(normalizer.parse_step(json, "normalizer", 0));
  return normalizer;
}

Result<void> Normalizer::parse_step(const Json& json, const std::string& field, int depth) {
  if (json.is_null()) return {};
  if (!json.is_object())
    return invalid_argument("'%s' is %s, expected an object", field.c_str(), json.kind_name());
  if (depth > 8) return unsupported("'%s' is nested too deeply", field.c_str());
  auto type = json.required<std::string>("type");
  if (!type.ok()) return with_context(field, type.error());
  if (*type == "Sequence") {
    const Json* list = json.find("normalizers");
    if (list == nullptr || !list->is_array())
      return invalid_argument("'%s.normalizers' is missing or no array", field.c_str());
    for (size_t i = 0; i < list->items().size(); ++i)
      INVAR_TRY_VOID(parse_step(list->items()[i], field + ".normalizers[" + std::to_string(i) + "]",
                                depth + 1));
    return {};
  }
  if (*type == "NFC") {
    add_nfc();
    return {};
  }
  if (*type == "Prepend") {
    auto text = json.required<std::string>("prepend");
    if (!text.ok()) return with_context(field, text.error());
    if (text->size() > kMaxPrependBytes)
      return unsupported("'%s.prepend' has %zu bytes, at most %zu are read", field.c_str(),
                         text->size(), kMaxPrependBytes);
    if (!text->empty()) add_prepend(*text);
    return {};
  }
  if (*type == "Replace") return add_parsed_replace(json, field);
  return unsupported("'%s.type' is %s; NFC, Replace, Prepend and Sequence are known", field.c_str(),
                     json_quote(type->substr(0, 60)).c_str());
}

Result<void> Normalizer::add_parsed_replace(const Json& json, const std::string& field) {
  auto content = json.required<std::string>("content");
  if (!content.ok()) return with_context(field, content.error());
  const Json* pattern = json.find("pattern");
  const Json* literal = pattern ? pattern->find("String") : nullptr;
  const Json* regex = pattern ? pattern->find("Regex") : nullptr;
  if (literal && literal->is_string()) {
    if (literal->as_string().empty()) return {};
    INVAR_TRY_VOID(check_growth(field, literal->as_string().size(), content->size()));
    add_replace(literal->as_string(), *content);
    return {};
  }
  if (regex && regex->is_string()) {
    auto compiled = Regex::compile(regex->as_string());
    if (!compiled.ok()) return with_context(field + ".pattern", compiled.error());
    // A match may be empty: one before every byte.
    INVAR_TRY_VOID(check_growth(field, 1, content->size() + 1));
    steps_.push_back({Kind::kReplaceRegex, "", *content, std::move(*compiled)});
    return {};
  }
  return invalid_argument("'%s.pattern' has neither a 'String' nor a 'Regex'", field.c_str());
}

Result<void> Normalizer::check_growth(const std::string& field, size_t from_bytes,
                                      size_t to_bytes) {
  const size_t factor = std::max<size_t>((to_bytes + from_bytes - 1) / from_bytes, 1);
  if (factor > kMaxGrowth || growth_ * factor > kMaxGrowth)
    return unsupported("'%s' can make a text more than %zu times longer", field.c_str(),
                       kMaxGrowth);
  growth_ *= factor;
  return {};
}

std::string_view Normalizer::apply(std::string_view text, std::string& storage) const {
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Kind::kNfc:
        if (nfc_quick_check(text)) continue;
        storage = nfc(text);
        break;
      case Kind::kReplace:
        if (text.find(step.from) == std::string_view::npos) continue;
        storage = replace_all(text, step.from, step.to);
        break;
      case Kind::kReplaceRegex:
        storage = replace_all(text, *step.regex, step.to);
        break;
      case Kind::kPrepend:
        if (text.empty()) continue;
        storage = step.to + std::string(text);
        break;
    }
    text = storage;
  }
  return text;
}

}  // namespace invar
