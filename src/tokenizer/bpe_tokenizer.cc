// The encoding pipeline and what is derived once a vocabulary is loaded.
#include "tokenizer/bpe_tokenizer.h"

#include <algorithm>

#include "base/check.h"
#include "tokenizer/unicode.h"

namespace invar {

// Scratch memory (with its word cache) for encode() calls that run at the same time. At most
// kMaxKept of them stay allocated, so memory is bounded and no lock is held while encoding.
class BpeTokenizer::ScratchPool {
 public:
  std::unique_ptr<BpeScratch> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        auto scratch = std::move(free_.back());
        free_.pop_back();
        return scratch;
      }
    }
    return std::make_unique<BpeScratch>();
  }
  void give_back(std::unique_ptr<BpeScratch> scratch) {
    const std::lock_guard lock(mutex_);
    if (free_.size() < kMaxKept) free_.push_back(std::move(scratch));
  }

 private:
  static constexpr size_t kMaxKept = 8;
  std::mutex mutex_;
  std::vector<std::unique_ptr<BpeScratch>> free_;
};

BpeTokenizer::BpeTokenizer() : scratch_(std::make_unique<ScratchPool>()) {}
BpeTokenizer::~BpeTokenizer() = default;

// ---- Encoding
// ------------------------------------------------------------------------------------

struct BpeTokenizer::Encoding {
  const BpeTokenizer& tokenizer;
  BpeScratch& scratch;
  std::vector<int32_t>& ids;

  void words(std::string_view piece, bool at_text_start) {
    tokenizer.pre_tokenizer.split(piece, at_text_start, [this](std::string_view word) {
      tokenizer.model.encode_word(word, scratch, ids);
    });
  }

  // A piece without raw added tokens: normalize, cut out the normalized ones, encode the rest.
  void piece(std::string_view text, bool at_text_start, const AllowedRanges& allowed) {
    std::string storage;
    const std::string_view normalized = tokenizer.normalizer.apply(text, storage);
    if (tokenizer.normalized_tokens_.empty()) return words(normalized, at_text_start);
    tokenizer.normalized_tokens_.split(
        normalized, normalized_ranges(text, normalized, allowed),
        [&](size_t begin, size_t end) {
          words(normalized.substr(begin, end - begin), at_text_start && begin == 0);
        },
        [&](int32_t id) { ids.push_back(id); });
  }

  // Where `allowed` (of `text`) lies in the normalized text. Each boundary is moved so that what
  // may combine across it counts as not allowed; then parts can be normalized one by one. If that
  // does not give `normalized` after all, nothing is allowed: user text must not become special.
  AllowedRanges normalized_ranges(std::string_view text, std::string_view normalized,
                                  const AllowedRanges& allowed) const {
    AllowedRanges out;
    if (allowed.ranges.empty()) return out;
    if (allowed.contains(0, text.size())) {
      out.append(0, normalized.size());
      return out;
    }
    std::string joined;
    size_t pos = 0;
    const auto take = [&](size_t end, bool is_allowed) {
      if (end <= pos) return;
      std::string storage;
      std::string_view part = tokenizer.normalizer.apply(text.substr(pos, end - pos), storage);
      const size_t begin = joined.size();
      joined += part;
      if (is_allowed) out.append(begin, joined.size());
      pos = end;
    };
    for (const AllowedRanges::Range& range : allowed.ranges) {
      size_t begin = range.begin, end = range.end;
      while (begin < end && !is_boundary(text, begin)) ++begin;
      while (end > begin && !is_boundary(text, end)) --end;
      take(begin, false);
      take(end, true);
    }
    take(text.size(), false);
    return joined == normalized ? out : AllowedRanges{};
  }

  // ASCII on the right side: nothing composes with what stands before it.
  static bool is_boundary(std::string_view text, size_t pos) {
    return pos == 0 || pos == text.size() || static_cast<uint8_t>(text[pos]) < 0x80;
  }
};

std::vector<int32_t> BpeTokenizer::encode(std::span<const TextSegment> segments,
                                          bool add_special) const {
  std::string joined;
  std::string_view text;
  AllowedRanges allowed;
  if (segments.size() == 1) {
    text = segments[0].text;
    if (segments[0].allow_special) allowed.append(0, text.size());
  } else {
    size_t total = 0;
    for (const TextSegment& segment : segments) total += segment.text.size();
    joined.reserve(total);
    for (const TextSegment& segment : segments) {
      const size_t begin = joined.size();
      joined += segment.text;
      if (segment.allow_special) allowed.append(begin, joined.size());
    }
    text = joined;
  }

  std::vector<int32_t> ids;
  std::unique_ptr<BpeScratch> scratch = scratch_->take();
  Encoding encoding{*this, *scratch, ids};
  size_t range = 0;
  raw_tokens_.split(
      text, allowed,
      [&](size_t begin, size_t end) {
        AllowedRanges inside;
        if (!normalized_tokens_.empty()) {
          // Pieces come in order, so what ends before this one is done with.
          while (range < allowed.ranges.size() && allowed.ranges[range].end <= begin) ++range;
          for (size_t i = range; i < allowed.ranges.size() && allowed.ranges[i].begin < end; ++i) {
            const size_t from = std::max(allowed.ranges[i].begin, begin);
            inside.append(from - begin, std::min(allowed.ranges[i].end, end) - begin);
          }
        }
        encoding.piece(text.substr(begin, end - begin), begin == 0, inside);
      },
      [&](int32_t id) { ids.push_back(id); });
  scratch_->give_back(std::move(scratch));

  if (!add_special) return ids;
  // A text that brings its own BOS (a rendered template) does not get a second one.
  if (!prefix_ids.empty() &&
      !std::equal(prefix_ids.begin(), prefix_ids.end(), ids.begin(),
                  ids.begin() + static_cast<ptrdiff_t>(std::min(prefix_ids.size(), ids.size()))))
    ids.insert(ids.begin(), prefix_ids.begin(), prefix_ids.end());
  if (!suffix_ids.empty() && (ids.size() < suffix_ids.size() ||
                              !std::equal(suffix_ids.rbegin(), suffix_ids.rend(), ids.rbegin())))
    ids.insert(ids.end(), suffix_ids.begin(), suffix_ids.end());
  return ids;
}

// ---- Vocabulary
// ----------------------------------------------------------------------------------

std::string_view BpeTokenizer::token_bytes(int32_t id, bool with_special) const {
  if (!vocabulary.has(id)) return {};
  const Vocabulary::Token& token = vocabulary[id];
  switch (token.kind) {
    case TokenKind::kUnused:
      return {};
    case TokenKind::kSpecial:
    case TokenKind::kUnknown:
      return with_special ? token.text : std::string_view();
    default:
      return token.bytes;
  }
}

std::string_view BpeTokenizer::token_text(int32_t id) const {
  return vocabulary.has(id) ? vocabulary[id].text : std::string_view();
}

TokenKind BpeTokenizer::token_kind(int32_t id) const {
  return vocabulary.has(id) ? vocabulary[id].kind : TokenKind::kUnused;
}

void BpeTokenizer::add_token(const AddedToken& token) {
  INVAR_CHECK(vocabulary.has(token.id), "added token %d", token.id);
  if (token.content.empty()) return;
  if (!token.normalized) {
    raw_tokens_.add(token);
    return;
  }
  // Matched in normalized text, so its own text is normalized the same way.
  AddedToken normalized = token;
  std::string storage;
  normalized.content = std::string(normalizer.apply(token.content, storage));
  if (!normalized.content.empty()) normalized_tokens_.add(normalized);
}

bool is_end_text(std::string_view text) {
  constexpr std::string_view kTexts[] = {
      "<|eot_id|>",    "<|im_end|>",       "<|end|>",
      "<|return|>",    "<|call|>",         "<end_of_turn>",
      "<turn|>",       "<|endoftext|>",    "<|eom_id|>",
      "</s>",          "<|end_of_text|>",  "<eos>",
      "<EOT>",         "_<EOT>",           "<|flush|>",
      "<|calls|>",     "<|tool_response>", "<|fim_pad|>",
      "<|repo_name|>", "<|file_sep|>",
  };
  return std::find(std::begin(kTexts), std::end(kTexts), text) != std::end(kTexts);
}

// Many files store the token for unknown characters as a control token. Plain text gives it, so it
// is none; but a token that begins or ends something must not come out of plain text at all.
void BpeTokenizer::settle_unknown_token(const std::vector<int32_t>& known_end_ids) {
  const int32_t id = model.unk_id;
  if (model.byte_level || !vocabulary.has(id) || vocabulary[id].kind != TokenKind::kSpecial) return;
  const auto among = [id](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  if (id == bos_id || among(known_end_ids) || among(prefix_ids) || among(suffix_ids) ||
      is_end_text(vocabulary[id].text))
    model.unk_id = -1;
  else
    vocabulary.set_kind(id, TokenKind::kUnknown);
}

void BpeTokenizer::finish(std::vector<int32_t> known_end_ids) {
  known_end_ids.push_back(eos_id);
  settle_unknown_token(known_end_ids);
  model.finish();
  end_ids.clear();
  for (const int32_t id : known_end_ids)
    if (vocabulary.has(id)) end_ids.push_back(id);
  // Only control tokens: Gemma's "</s>" is the HTML tag, Qwen's is ordinary text.
  for (int32_t id = 0; vocabulary.has(id); ++id)
    if (vocabulary[id].kind == TokenKind::kSpecial && is_end_text(vocabulary[id].text))
      end_ids.push_back(id);
  std::sort(end_ids.begin(), end_ids.end());
  end_ids.erase(std::unique(end_ids.begin(), end_ids.end()), end_ids.end());
}

}  // namespace invar
