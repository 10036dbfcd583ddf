// GGUF header parser on arbitrary bytes; whatever it accepts is read to the last byte, and a
// vocabulary in it is made into a tokenizer that must keep special tokens out of plain text. Seeds:
// corpus/gguf, made by tools/make_weight_seeds.py.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "tensor/quant.h"
#include "tokenizer/tokenizer.h"
#include "weights/gguf_parse.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parsed = invar::parse_gguf({data, size});
  if (!parsed) {
    INVAR_CHECK(!parsed.error().message.empty(), "an error without a message");
    return 0;
  }
  INVAR_CHECK(parsed->data_begin <= size, "data section beyond the file");
  for (const invar::GgufTensor& tensor : parsed->tensors) {
    const int64_t num_elements = invar::block_shape(tensor.format).num_elements;
    std::vector<float> block(static_cast<size_t>(num_elements));
    // First and last block: enough to touch both ends of the range.
    const auto block_bytes = static_cast<uint64_t>(invar::block_shape(tensor.format).num_bytes);
    for (const uint64_t offset : {uint64_t{0}, tensor.num_bytes - block_bytes})
      invar::dequantize_blocks(tensor.format, data + tensor.begin + offset, num_elements,
                               block.data());
  }
  if (!parsed->vocabulary) return 0;
  const auto tokenizer = invar::Tokenizer::from_gguf(*parsed->vocabulary);
  if (!tokenizer) return 0;
  for (const int32_t id : (*tokenizer)->encode("Ab  12\n<s> \xFF\xE2\x82 é", false, false)) {
    INVAR_CHECK(id >= 0 && id < (*tokenizer)->vocab_size(), "id %d", id);
    INVAR_CHECK((*tokenizer)->token_kind(id) != invar::TokenKind::kSpecial, "special token %d", id);
  }
  return 0;
}
