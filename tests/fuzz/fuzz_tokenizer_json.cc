// libFuzzer target: any bytes as a tokenizer.json, and a little text through what loads. Checks
// that ids stay in range and that special tokens do not come out of text where they are not
// allowed.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace invar;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto loaded = Tokenizer::from_tokenizer_json(text, Json());
  if (!loaded.ok()) return 0;
  const Tokenizer& tokenizer = **loaded;
  const std::string_view tail = text.substr(text.size() - std::min<size_t>(text.size(), 200));
  Detokenizer detokenizer(tokenizer);
  for (const std::string_view input :
       {std::string_view("Hello  world 123\n"), std::string_view("a\xFF\xE2\x82 é 中 <s>"), tail}) {
    for (const bool allow_special : {false, true})
      for (const int32_t id : tokenizer.encode(input, allow_special, allow_special)) {
        INVAR_CHECK(id >= 0 && id < tokenizer.vocab_size(), "id %d", id);
        INVAR_CHECK(allow_special || tokenizer.token_kind(id) != TokenKind::kSpecial,
                    "special token %d out of plain text", id);
        detokenizer.push(id);
      }
  }
  detokenizer.finish();
  return 0;
}
