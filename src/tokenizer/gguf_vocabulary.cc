// Tokenizer::from_gguf: the vocabulary of a GGUF file. GGUF stores only the name of a pre-tokenizer
// and no normalizer, so what belongs to a name is known here (specs/tokenizers.md sections 5 and
// 7).
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/log.h"
#include "tokenizer/bpe_symbols.h"
#include "tokenizer/bpe_tokenizer.h"

namespace invar {
namespace {

using GgufVocabulary = Checkpoint::GgufVocabulary;

constexpr std::string_view kSpmSpace = "\xE2\x96\x81";  // U+2581

enum GgufType : int32_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

struct PreName {
  std::string_view name, pattern;
  bool digits_alone = false, nfc = false, ignore_merges = false, add_bos = false;
};
constexpr PreName kPreNames[] = {
    {"gpt-2", "gpt-2"},
    {"default", "gpt-2"},
    {"smollm", "gpt-2", true},
    {"llama-bpe", "llama-bpe", false, false, true, true},
    {"llama3", "llama-bpe", false, false, true, true},
    {"llama-v3", "llama-bpe", false, false, true, true},
    {"qwen2", "qwen2", false, true},
    {"qwen35", "qwen35", false, true},
    {"tekken", "tekken", false, false, true},
    {"pixtral", "tekken", false, false, true},
};

// Scalar keys of tokenizer.ggml.* with a default.
struct Keys {
  const Json& json;

  Result<int32_t> id(const char* key, size_t num_tokens, int32_t fallback) const {
    auto value = json.optional<int64_t>(key, fallback);
    if (!value.ok()) return with_context("tokenizer.ggml", value.error());
    // 0xFFFFFFFF and the like stand for "none"; an id behind the vocabulary is no id either.
    if (*value < 0 || *value >= static_cast<int64_t>(num_tokens)) return -1;
    return static_cast<int32_t>(*value);
  }
  Result<bool> flag(const char* key, bool fallback) const {
    auto value = json.optional<bool>(key, fallback);
    if (!value.ok()) return with_context("tokenizer.ggml", value.error());
    return value;
  }
};

std::string replace_spm_space(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    if (text.substr(pos).starts_with(kSpmSpace)) {
      out += ' ';
      pos += kSpmSpace.size();
    } else {
      out += text[pos++];
    }
  }
  return out;
}

void fill_tokens(const GgufVocabulary& gguf, bool spm, BpeTokenizer& tokenizer) {
  Vocabulary& vocabulary = tokenizer.vocabulary;
  const size_t num_tokens = gguf.tokens.size();
  vocabulary.resize(num_tokens);
  vocabulary.by_text.reserve(num_tokens);
  size_t num_repeated = 0;
  std::string bytes;
  for (size_t i = 0; i < num_tokens; ++i) {
    const std::string& text = gguf.tokens[i];
    const int32_t id = static_cast<int32_t>(i);
    int32_t type = gguf.token_types.empty() ? kNormal : gguf.token_types[i];
    // Files exist whose end-of-turn token is no control token; it must be hidden and must not come
    // from user text all the same. "</s>" is left alone: it is an HTML tag in some vocabularies.
    if (type == kUserDefined && text.starts_with("<|") && is_end_text(text)) type = kControl;
    TokenKind kind = TokenKind::kUnused;
    bytes = text;
    switch (type) {
      case kUnknown:
        kind = TokenKind::kUnknown;
        break;
      case kControl:
        kind = TokenKind::kSpecial;
        break;
      case kUserDefined:
        kind = TokenKind::kUserDefined;
        break;
      case kByte:
        if (const int byte = byte_of_byte_token(text); byte >= 0) {
          kind = TokenKind::kByte;
          bytes.assign(1, static_cast<char>(byte));
        }
        break;
      case kNormal:
        kind = TokenKind::kNormal;
        if (spm)
          bytes = replace_spm_space(text);
        else if (!byte_alphabet::to_bytes(text, bytes))
          bytes = text;
        break;
      default:
        break;
    }
    vocabulary.set(id, text, bytes, kind);
    if (!text.empty() && !vocabulary.by_text.insert(vocabulary[id].text, id)) {
      ++num_repeated;
      vocabulary.set_kind(id, TokenKind::kUnused);
      continue;
    }
    if (text.empty()) vocabulary.set_kind(id, TokenKind::kUnused);
    if (text.empty() || text.size() > AddedTokens::kMaxContentBytes) continue;
    const bool special = kind == TokenKind::kSpecial || kind == TokenKind::kUnknown;
    if (special || kind == TokenKind::kUserDefined)
      tokenizer.add_token({text, id, special, false, false, false, false});
  }
  if (num_repeated > 0)
    log(LogLevel::kWarning, "tokenizer repeated_tokens=%zu action=\"the first of each is used\"",
        num_repeated);
}

Result<void> fill_merges(const GgufVocabulary& gguf, BpeTokenizer& tokenizer) {
  const Vocabulary& vocabulary = tokenizer.vocabulary;
  tokenizer.model.merges.reserve(gguf.merges.size());
  size_t num_unusable = 0;
  std::string joined;
  for (size_t rank = 0; rank < gguf.merges.size(); ++rank) {
    const std::string_view merge = gguf.merges[rank];
    // From index 1: the left part may be a space itself in odd vocabularies.
    const size_t space = merge.size() < 3 ? std::string_view::npos : merge.find(' ', 1);
    if (space == std::string_view::npos)
      return corrupt("tokenizer.ggml.merges[%zu] is %s, expected two parts with a space between",
                     rank, json_quote(merge.substr(0, 60)).c_str());
    const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
    joined.assign(left).append(right);
    const int32_t left_id = vocabulary.by_text.find(left);
    const int32_t right_id = vocabulary.by_text.find(right);
    const int32_t id = vocabulary.by_text.find(joined);
    if (left_id < 0 || right_id < 0 || id < 0 || !can_come_from_merge(vocabulary[id].kind)) {
      ++num_unusable;
      continue;
    }
    tokenizer.model.merges.assign(left_id, right_id, {static_cast<uint32_t>(rank), id});
  }
  if (num_unusable > 0)
    log(LogLevel::kWarning, "tokenizer unusable_merges=%zu reason=\"parts are no tokens\"",
        num_unusable);
  return {};
}

// Ranks in the order of falling scores; equal scores share a rank (the leftmost pair goes first).
Result<void> fill_scores(const GgufVocabulary& gguf, BpeTokenizer& tokenizer) {
  for (size_t i = 0; i < gguf.scores.size(); ++i)
    if (std::isnan(gguf.scores[i])) return corrupt("tokenizer.ggml.scores[%zu] is not a number", i);
  std::vector<int32_t> order(gguf.scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto score = [&](int32_t id) { return gguf.scores[static_cast<size_t>(id)]; };
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return score(a) > score(b); });
  tokenizer.model.rank_of_id.resize(order.size());
  uint32_t rank = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && score(order[i]) < score(order[i - 1])) ++rank;
    tokenizer.model.rank_of_id[static_cast<size_t>(order[i])] = rank;
  }
  return {};
}

Result<void> check_sizes(const GgufVocabulary& gguf, bool spm) {
  const size_t num_tokens = gguf.tokens.size();
  if (num_tokens == 0) return corrupt("tokenizer.ggml.tokens is empty");
  if (num_tokens > static_cast<size_t>(Vocabulary::kMaxTokens))
    return corrupt("tokenizer.ggml.tokens has %zu entries, at most %lld are read", num_tokens,
                   static_cast<long long>(Vocabulary::kMaxTokens));
  if (!gguf.token_types.empty() && gguf.token_types.size() != num_tokens)
    return corrupt("tokenizer.ggml.token_type has %zu entries, tokenizer.ggml.tokens %zu",
                   gguf.token_types.size(), num_tokens);
  if (spm && gguf.scores.size() != num_tokens)
    return corrupt("tokenizer.ggml.scores has %zu entries, tokenizer.ggml.tokens %zu",
                   gguf.scores.size(), num_tokens);
  if (!spm && gguf.merges.empty()) return corrupt("tokenizer.ggml.merges is missing or empty");
  return {};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_gguf(const GgufVocabulary& gguf) {
  const bool spm = gguf.model == "llama";
  if (!spm && gguf.model != "gpt2")
    return unsupported("tokenizer.ggml.model is %s; \"gpt2\" and \"llama\" are known",
                       json_quote(gguf.model.substr(0, 60)).c_str());
  INVAR_TRY_VOID(check_sizes(gguf, spm));
  const size_t num_tokens = gguf.tokens.size();
  const Keys keys{gguf.keys};
  auto tokenizer = std::make_unique<BpeTokenizer>();
  BpeModel& model = tokenizer->model;
  bool add_bos_default = spm;

  if (spm) {
    INVAR_TRY(const bool space_prefix, keys.flag("add_space_prefix", true));
    if (space_prefix) tokenizer->normalizer.add_prepend(" ");
    tokenizer->normalizer.add_replace(" ", std::string(kSpmSpace));
    tokenizer->strip_leading_space = space_prefix;
    tokenizer->name = "SentencePiece BPE with scores";
    model.byte_level = false;
    model.by_score = true;
    model.byte_fallback = true;
    INVAR_TRY_VOID(fill_scores(gguf, *tokenizer));
  } else {
    const PreName* pre = std::find_if(std::begin(kPreNames), std::end(kPreNames),
                                      [&](const PreName& p) { return p.name == gguf.pre; });
    if (pre == std::end(kPreNames)) {
      log(LogLevel::kWarning, "tokenizer pre=%s action=\"unknown, cut as gpt-2 does\"",
          json_quote(gguf.pre.substr(0, 60)).c_str());
      pre = kPreNames;
    }
    if (pre->nfc) tokenizer->normalizer.add_nfc();
    if (pre->digits_alone) tokenizer->pre_tokenizer.add_digits();
    tokenizer->pre_tokenizer.add_pattern(*split_pattern_by_name(pre->pattern));
    tokenizer->pre_tokenizer.byte_level = true;
    tokenizer->name = "byte-level BPE (" + std::string(pre->name) + ")";
    model.ignore_merges = pre->ignore_merges;
    add_bos_default = pre->add_bos;
  }
  fill_tokens(gguf, spm, *tokenizer);
  if (!spm) INVAR_TRY_VOID(fill_merges(gguf, *tokenizer));

  INVAR_TRY(tokenizer->bos_id, keys.id("bos_token_id", num_tokens, spm ? 1 : -1));
  INVAR_TRY(tokenizer->eos_id, keys.id("eos_token_id", num_tokens, spm ? 2 : -1));
  INVAR_TRY(tokenizer->unk_id, keys.id("unknown_token_id", num_tokens, spm ? 0 : -1));
  INVAR_TRY(tokenizer->pad_id, keys.id("padding_token_id", num_tokens, -1));
  INVAR_TRY(tokenizer->add_bos, keys.flag("add_bos_token", add_bos_default));
  INVAR_TRY(tokenizer->add_eos, keys.flag("add_eos_token", false));
  if (tokenizer->bos_id < 0) tokenizer->add_bos = false;
  if (tokenizer->eos_id < 0) tokenizer->add_eos = false;
  if (tokenizer->add_bos) tokenizer->prefix_ids = {tokenizer->bos_id};
  if (tokenizer->add_eos) tokenizer->suffix_ids = {tokenizer->eos_id};
  model.unk_id = tokenizer->unk_id;

  std::vector<int32_t> end_ids;
  for (const char* key : {"eot_token_id", "eom_token_id", "fim_pad_token_id", "fim_rep_token_id",
                          "fim_sep_token_id"}) {
    INVAR_TRY(const int32_t id, keys.id(key, num_tokens, -1));
    end_ids.push_back(id);
  }
  tokenizer->finish(std::move(end_ids));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace invar
