// What all tokenizers share: the simple form of encode, and the choice of loader.
#include "tokenizer/tokenizer.h"

#include "base/file.h"

namespace invar {
namespace {
constexpr size_t kMaxTokenizerJsonBytes = size_t{64} << 20;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool allow_special,
                                       bool add_special) const {
  const TextSegment segment{std::string(text), allow_special};
  return encode(std::span<const TextSegment>(&segment, 1), add_special);
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_checkpoint(const Checkpoint& checkpoint) {
  if (checkpoint.gguf_vocabulary) {
    auto tokenizer = from_gguf(*checkpoint.gguf_vocabulary);
    if (!tokenizer.ok()) return with_context(checkpoint.path, tokenizer.error());
    return tokenizer;
  }
  if (checkpoint.container == Container::kGguf)
    return not_found("%s: has no tokenizer: no 'tokenizer.ggml.*' keys; take a complete GGUF file",
                     checkpoint.path.c_str());
  if (checkpoint.tokenizer_json.empty())
    return not_found(
        "%s: has no tokenizer.json; put the model's own beside its weights (a tokenizer.model or "
        "vocab.json alone is not read)",
        checkpoint.path.c_str());
  INVAR_TRY(const std::string text, read_file(checkpoint.tokenizer_json, kMaxTokenizerJsonBytes));
  auto tokenizer = from_tokenizer_json(text, checkpoint.tokenizer_config);
  if (!tokenizer.ok()) return with_context(checkpoint.tokenizer_json, tokenizer.error());
  return tokenizer;
}

}  // namespace invar
