// Tokenizer::from_tokenizer_json: Hugging Face's tokenizer.json, with what tokenizer_config.json
// adds. Types that no supported model uses are refused by name, never ignored: ids must be right.
#include <algorithm>

#include "tokenizer/bpe_symbols.h"
#include "tokenizer/bpe_tokenizer.h"
#include "tokenizer/unicode.h"

namespace invar {
namespace {

// A vocabulary of 4 M pairs of merges would pass every file we know by far; hostile documents of
// many small values end here.
constexpr JsonLimits kLimits = {.max_depth = 32, .max_nodes = 6'000'000};

std::string shown(std::string_view text) { return json_quote(text.substr(0, 60)); }

// What the decoder does to the text of one token. (ByteFallback and Fuse happen in the byte
// stream.)
struct DecoderSteps {
  std::vector<std::pair<std::string, std::string>> replacements;
  bool strip_leading_space = false;

  std::string apply(std::string_view text) const {
    std::string out(text);
    for (const auto& [from, to] : replacements) out = replace_all(out, from, to);
    return out;
  }
};

Result<void> parse_decoder(const Json* json, const std::string& field, int depth,
                           DecoderSteps& steps) {
  if (json == nullptr || json->is_null()) return {};
  if (!json->is_object())
    return invalid_argument("'%s' is %s, expected an object", field.c_str(), json->kind_name());
  if (depth > 8) return unsupported("'%s' is nested too deeply", field.c_str());
  auto type = json->required<std::string>("type");
  if (!type.ok()) return with_context(field, type.error());
  if (*type == "ByteLevel" || *type == "ByteFallback" || *type == "Fuse") return {};
  if (*type == "Sequence") {
    const Json* list = json->find("decoders");
    if (list == nullptr || !list->is_array())
      return invalid_argument("'%s.decoders' is missing or no array", field.c_str());
    for (size_t i = 0; i < list->items().size(); ++i)
      INVAR_TRY_VOID(parse_decoder(
          &list->items()[i], field + ".decoders[" + std::to_string(i) + "]", depth + 1, steps));
    return {};
  }
  if (*type == "Replace") {
    const Json* pattern = json->find("pattern");
    const Json* literal = pattern ? pattern->find("String") : nullptr;
    auto content = json->required<std::string>("content");
    if (!content.ok()) return with_context(field, content.error());
    if (literal == nullptr || !literal->is_string() || literal->as_string().empty())
      return unsupported("'%s.pattern' has no 'String'", field.c_str());
    // Decoders undo what normalizers did: none makes a text longer, which steps could multiply.
    if (content->size() > literal->as_string().size())
      return unsupported("'%s.content' is longer than what it replaces", field.c_str());
    steps.replacements.emplace_back(literal->as_string(), *content);
    return {};
  }
  if (*type == "Strip") {
    auto content = json->required<std::string>("content");
    auto start = json->optional<int64_t>("start", 0);
    auto stop = json->optional<int64_t>("stop", 0);
    if (!content.ok()) return with_context(field, content.error());
    if (!start.ok()) return with_context(field, start.error());
    if (!stop.ok()) return with_context(field, stop.error());
    if (*content != " " || *start < 0 || *start > 1 || *stop != 0)
      return unsupported("'%s' strips something else than one leading space", field.c_str());
    steps.strip_leading_space |= *start == 1;
    return {};
  }
  if (*type == "Metaspace") {
    auto replacement = json->optional<std::string>("replacement", "\xE2\x96\x81");
    auto scheme = json->optional<std::string>("prepend_scheme", "always");
    auto add_prefix = json->optional<bool>("add_prefix_space", true);
    if (!replacement.ok()) return with_context(field, replacement.error());
    if (!scheme.ok()) return with_context(field, scheme.error());
    if (!add_prefix.ok()) return with_context(field, add_prefix.error());
    if (!is_one_char(*replacement))
      return invalid_argument("'%s.replacement' is %s, expected one character", field.c_str(),
                              shown(*replacement).c_str());
    steps.replacements.emplace_back(*replacement, " ");
    steps.strip_leading_space |= *scheme != "never" && *add_prefix;
    return {};
  }
  return unsupported(
      "'%s.type' is %s; ByteLevel, Sequence, Replace, ByteFallback, Fuse, Strip and Metaspace are "
      "known",
      field.c_str(), shown(*type).c_str());
}

// One loading in progress.
class Loader {
 public:
  Loader(const Json& document, const Json& config)
      : document_(document), config_(config), tokenizer_(std::make_unique<BpeTokenizer>()) {}

  Result<std::unique_ptr<Tokenizer>> load() {
    if (!document_.is_object())
      return corrupt("tokenizer.json is %s, expected an object", document_.kind_name());
    const Json* model = document_.find("model");
    if (model == nullptr || !model->is_object()) return corrupt("'model' is missing or no object");
    INVAR_TRY(tokenizer_->normalizer, Normalizer::parse(member("normalizer")));
    INVAR_TRY(tokenizer_->pre_tokenizer, PreTokenizer::parse(member("pre_tokenizer")));
    INVAR_TRY_VOID(parse_decoder(document_.find("decoder"), "decoder", 0, decoder_));
    INVAR_TRY_VOID(load_model_fields(*model));
    INVAR_TRY_VOID(load_tokens(*model));
    INVAR_TRY_VOID(load_merges(*model));
    INVAR_TRY_VOID(load_post_processor(member("post_processor"), "post_processor", 0));
    INVAR_TRY_VOID(load_config());
    BpeTokenizer& t = *tokenizer_;
    t.strip_leading_space = decoder_.strip_leading_space && !t.model.byte_level;
    const std::string pattern = t.pre_tokenizer.description();
    t.name = std::string(t.model.byte_level ? "byte-level BPE" : "character BPE") +
             (pattern.empty() ? "" : " (" + pattern + ")");
    t.finish({});
    return std::unique_ptr<Tokenizer>(std::move(tokenizer_));
  }

 private:
  Json member(std::string_view key) const {
    const Json* found = document_.find(key);
    return found ? *found : Json();
  }

  Result<void> load_model_fields(const Json& json) {
    BpeModel& model = tokenizer_->model;
    auto type = json.optional<std::string>("type", "BPE");
    if (!type.ok()) return with_context("model", type.error());
    if (*type != "BPE")
      return unsupported("'model.type' is %s; BPE is known", shown(*type).c_str());
    auto dropout = json.optional<double>("dropout", 0.0);
    if (!dropout.ok()) return with_context("model", dropout.error());
    if (*dropout != 0.0) return unsupported("'model.dropout' is %g, expected null", *dropout);
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      auto text = json.optional<std::string>(key, "");
      if (!text.ok()) return with_context("model", text.error());
      if (!text->empty())
        return unsupported("'model.%s' is %s, expected null", key, shown(*text).c_str());
    }
    auto fuse_unk = json.optional<bool>("fuse_unk", false);
    auto byte_fallback = json.optional<bool>("byte_fallback", false);
    auto ignore_merges = json.optional<bool>("ignore_merges", false);
    if (!fuse_unk.ok()) return with_context("model", fuse_unk.error());
    if (!byte_fallback.ok()) return with_context("model", byte_fallback.error());
    if (!ignore_merges.ok()) return with_context("model", ignore_merges.error());
    model.fuse_unk = *fuse_unk;
    model.byte_fallback = *byte_fallback;
    model.ignore_merges = *ignore_merges;
    model.byte_level = tokenizer_->pre_tokenizer.byte_level;
    return {};
  }

  Result<AddedToken> parse_added(const Json& json, size_t index) {
    const std::string field = "added_tokens[" + std::to_string(index) + "]";
    if (!json.is_object())
      return corrupt("'%s' is %s, expected an object", field.c_str(), json.kind_name());
    AddedToken token;
    auto content = json.required<std::string>("content");
    auto id = json.required<int64_t>("id");
    auto special = json.optional<bool>("special", false);
    if (!content.ok()) return with_context(field, content.error());
    if (!id.ok()) return with_context(field, id.error());
    if (!special.ok()) return with_context(field, special.error());
    auto normalized = json.optional<bool>("normalized", !*special);
    if (!normalized.ok()) return with_context(field, normalized.error());
    token.content = *content;
    token.special = *special;
    token.normalized = *normalized;
    for (const auto& [key, target] : {std::pair{"single_word", &token.single_word},
                                      {"lstrip", &token.lstrip},
                                      {"rstrip", &token.rstrip}}) {
      auto flag = json.optional<bool>(key, false);
      if (!flag.ok()) return with_context(field, flag.error());
      *target = *flag;
    }
    if (*id < 0 || *id >= Vocabulary::kMaxTokens)
      return corrupt("'%s.id' is %lld, expected 0 to %lld", field.c_str(),
                     static_cast<long long>(*id),
                     static_cast<long long>(Vocabulary::kMaxTokens - 1));
    token.id = static_cast<int32_t>(*id);
    if (token.content.size() > AddedTokens::kMaxContentBytes)
      return corrupt("'%s.content' has %zu bytes, at most %zu are read", field.c_str(),
                     token.content.size(), AddedTokens::kMaxContentBytes);
    return token;
  }

  Result<void> load_tokens(const Json& model) {
    const Json* vocab = model.find("vocab");
    if (vocab == nullptr || !vocab->is_object())
      return corrupt("'model.vocab' is missing or no object");
    int64_t num_tokens = 0;
    for (const auto& [text, id] : vocab->members()) {
      if (!id.is_int() || id.as_int() < 0 || id.as_int() >= Vocabulary::kMaxTokens)
        return corrupt("'model.vocab' gives %s the id %s, expected 0 to %lld", shown(text).c_str(),
                       id.dump().substr(0, 40).c_str(),
                       static_cast<long long>(Vocabulary::kMaxTokens - 1));
      num_tokens = std::max(num_tokens, id.as_int() + 1);
    }
    std::vector<AddedToken> added;
    if (const Json* list = document_.find("added_tokens"); list && !list->is_null()) {
      if (!list->is_array())
        return corrupt("'added_tokens' is %s, expected an array", list->kind_name());
      for (size_t i = 0; i < list->items().size(); ++i) {
        INVAR_TRY(AddedToken token, parse_added(list->items()[i], i));
        num_tokens = std::max<int64_t>(num_tokens, token.id + 1);
        added.push_back(std::move(token));
      }
    }
    if (num_tokens == 0) return corrupt("'model.vocab' is empty");

    Vocabulary& vocabulary = tokenizer_->vocabulary;
    vocabulary.resize(static_cast<size_t>(num_tokens));
    vocabulary.by_text.reserve(vocab->members().size() + added.size());
    std::string bytes;
    for (const auto& [text, json_id] : vocab->members()) {
      const auto id = static_cast<int32_t>(json_id.as_int());
      if (text.empty()) continue;
      if (vocabulary[id].kind != TokenKind::kUnused)
        return corrupt("'model.vocab' gives the id %d to %s and to %s", id,
                       shown(vocabulary[id].text).c_str(), shown(text).c_str());
      TokenKind kind = TokenKind::kNormal;
      const int byte = tokenizer_->model.byte_fallback ? byte_of_byte_token(text) : -1;
      if (byte >= 0) {
        kind = TokenKind::kByte;
        bytes.assign(1, static_cast<char>(byte));
      } else if (!tokenizer_->model.byte_level) {
        bytes = decoder_.apply(text);
      } else if (!byte_alphabet::to_bytes(text, bytes)) {
        bytes = text;
      }
      vocabulary.set(id, text, bytes, kind);
      vocabulary.by_text.insert(vocabulary[id].text, id);
    }
    auto unk = model.optional<std::string>("unk_token", "");
    if (!unk.ok()) return with_context("model", unk.error());
    if (!unk->empty()) {
      tokenizer_->unk_id = tokenizer_->model.unk_id = vocabulary.by_text.find(*unk);
      if (tokenizer_->unk_id >= 0) vocabulary.set_kind(tokenizer_->unk_id, TokenKind::kUnknown);
    }
    for (const AddedToken& token : added) {
      if (token.content.empty()) continue;
      // Added tokens are plain text, not written in the byte alphabet.
      const std::string text =
          tokenizer_->model.byte_level ? token.content : decoder_.apply(token.content);
      vocabulary.set(token.id, token.content, text,
                     token.special ? TokenKind::kSpecial : TokenKind::kUserDefined);
      vocabulary.by_text.assign(vocabulary[token.id].text, token.id);
      tokenizer_->add_token(token);
    }
    return {};
  }

  Result<void> load_merges(const Json& model) {
    const Json* merges = model.find("merges");
    if (merges == nullptr || !merges->is_array())
      return corrupt("'model.merges' is missing or no array");
    const Vocabulary& vocabulary = tokenizer_->vocabulary;
    MergeTable& table = tokenizer_->model.merges;
    table.reserve(merges->items().size());
    std::string joined;
    for (size_t rank = 0; rank < merges->items().size(); ++rank) {
      const Json& merge = merges->items()[rank];
      std::string_view left, right;
      if (merge.is_string()) {
        const std::string_view text = merge.as_string();
        const size_t space = text.size() < 3 ? std::string_view::npos : text.find(' ', 1);
        if (space != std::string_view::npos) {
          left = text.substr(0, space);
          right = text.substr(space + 1);
        }
      } else if (merge.is_array() && merge.items().size() == 2 && merge.items()[0].is_string() &&
                 merge.items()[1].is_string()) {
        left = merge.items()[0].as_string();
        right = merge.items()[1].as_string();
      }
      if (left.empty() || right.empty())
        return corrupt("'model.merges[%zu]' is %s, expected two texts", rank,
                       merge.dump().substr(0, 80).c_str());
      joined.assign(left).append(right);
      int32_t ids[3];
      size_t i = 0;
      for (const std::string_view text : {left, right, std::string_view(joined)}) {
        ids[i] = vocabulary.by_text.find(text);
        if (ids[i++] < 0)
          return corrupt("'model.merges[%zu]' needs the token %s, which 'model.vocab' lacks", rank,
                         shown(text).c_str());
      }
      if (can_come_from_merge(vocabulary[ids[2]].kind))
        table.assign(ids[0], ids[1], {static_cast<uint32_t>(rank), ids[2]});
    }
    return {};
  }

  Result<void> load_post_processor(const Json& json, const std::string& field, int depth) {
    if (json.is_null()) return {};
    if (!json.is_object())
      return invalid_argument("'%s' is %s, expected an object", field.c_str(), json.kind_name());
    if (depth > 8) return unsupported("'%s' is nested too deeply", field.c_str());
    auto type = json.required<std::string>("type");
    if (!type.ok()) return with_context(field, type.error());
    if (*type == "ByteLevel") return {};
    if (*type == "Sequence") {
      const Json* list = json.find("processors");
      if (list == nullptr || !list->is_array())
        return invalid_argument("'%s.processors' is missing or no array", field.c_str());
      for (size_t i = 0; i < list->items().size(); ++i)
        INVAR_TRY_VOID(load_post_processor(
            list->items()[i], field + ".processors[" + std::to_string(i) + "]", depth + 1));
      return {};
    }
    if (*type == "TemplateProcessing") return load_template(json, field);
    return unsupported("'%s.type' is %s; TemplateProcessing, ByteLevel and Sequence are known",
                       field.c_str(), shown(*type).c_str());
  }

  Result<void> load_template(const Json& json, const std::string& field) {
    const Json* single = json.find("single");
    if (single == nullptr || !single->is_array())
      return invalid_argument("'%s.single' is missing or no array", field.c_str());
    const Json* specials = json.find("special_tokens");
    bool after_text = false;
    std::vector<int32_t> prefix, suffix;
    for (const Json& item : single->items()) {
      if (item.find("Sequence")) {
        after_text = true;
        continue;
      }
      const Json* special = item.find("SpecialToken");
      const Json* name = special ? special->find("id") : nullptr;
      if (name == nullptr || !name->is_string())
        return invalid_argument("'%s.single' has an item that is no 'Sequence' nor 'SpecialToken'",
                                field.c_str());
      const Json* entry = specials ? specials->find(name->as_string()) : nullptr;
      const Json* ids = entry ? entry->find("ids") : nullptr;
      if (ids == nullptr || !ids->is_array())
        return invalid_argument("'%s.special_tokens' has no ids for %s", field.c_str(),
                                shown(name->as_string()).c_str());
      for (const Json& id : ids->items()) {
        if (!id.is_int() || id.as_int() < 0 ||
            id.as_int() >= static_cast<int64_t>(tokenizer_->vocabulary.size()))
          return invalid_argument("'%s.special_tokens' gives %s the id %s, which is no token",
                                  field.c_str(), shown(name->as_string()).c_str(),
                                  id.dump().substr(0, 40).c_str());
        (after_text ? suffix : prefix).push_back(static_cast<int32_t>(id.as_int()));
      }
    }
    if (!after_text) return invalid_argument("'%s.single' has no 'Sequence'", field.c_str());
    tokenizer_->prefix_ids = std::move(prefix);
    tokenizer_->suffix_ids = std::move(suffix);
    return {};
  }

  // The id of bos_token and the like: a string, or an object with "content"; -1 when absent.
  int32_t config_token(const char* key) const {
    const Json* value = config_.find(key);
    if (value && value->is_object()) value = value->find("content");
    if (value == nullptr || !value->is_string()) return -1;
    return tokenizer_->find(value->as_string());
  }

  Result<void> load_config() {
    BpeTokenizer& t = *tokenizer_;
    if (!config_.is_null() && !config_.is_object())
      return corrupt("tokenizer_config.json is %s, expected an object", config_.kind_name());
    t.bos_id = config_token("bos_token");
    t.eos_id = config_token("eos_token");
    t.pad_id = config_token("pad_token");
    if (t.unk_id < 0) t.unk_id = config_token("unk_token");
    // tokenizer.json's template decides; the flags of tokenizer_config only matter without one.
    const Json* processor = document_.find("post_processor");
    if (processor == nullptr || processor->is_null()) {
      const Json* add_bos = config_.find("add_bos_token");
      const Json* add_eos = config_.find("add_eos_token");
      if (add_bos && add_bos->is_bool() && add_bos->as_bool() && t.bos_id >= 0)
        t.prefix_ids = {t.bos_id};
      if (add_eos && add_eos->is_bool() && add_eos->as_bool() && t.eos_id >= 0)
        t.suffix_ids = {t.eos_id};
    }
    if (t.bos_id < 0 && !t.prefix_ids.empty()) t.bos_id = t.prefix_ids.front();
    t.add_bos = !t.prefix_ids.empty();
    t.add_eos = !t.suffix_ids.empty();
    return {};
  }

  const Json& document_;
  const Json& config_;
  std::unique_ptr<BpeTokenizer> tokenizer_;
  DecoderSteps decoder_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_tokenizer_json(std::string_view text,
                                                                  const Json& tokenizer_config) {
  INVAR_TRY(const Json document, Json::parse(text, kLimits));
  return Loader(document, tokenizer_config).load();
}

}  // namespace invar
