// Ids of the real vocabularies against published vectors (llama.cpp's and third parties'), and what
// the loaders say about these files.
#include <gmock/gmock.h>

#include "real_tokenizers.h"

namespace invar {
namespace {

using testing::ElementsAre;

class RealVectors : public testing::TestWithParam<RealTokenizer> {};

TEST_P(RealVectors, MatchGolden) {
  const auto text =
      read_file(INVAR_TEST_DATA "/golden/tokenizer/gguf_tokenizer_vectors.json", 1 << 20);
  ASSERT_TRUE(text.ok()) << text.error().message;
  const auto vectors = Json::parse(*text);
  ASSERT_TRUE(vectors.ok()) << vectors.error().message;
  const Json* of_model = vectors->find(GetParam().key);
  ASSERT_NE(of_model, nullptr);
  const Tokenizer& tokenizer = real_tokenizer(GetParam().key);
  EXPECT_GT(of_model->members().size(), 30u);
  for (const auto& [input, json_ids] : of_model->members()) {
    std::vector<int32_t> expected;
    for (const Json& id : json_ids.items()) expected.push_back(static_cast<int32_t>(id.as_int()));
    // The vectors are llama.cpp's, which does not normalize. Qwen's own tokenizer.json asks for
    // NFC, and so these are the ids of Hugging Face's tokenizers.
    if (GetParam().key == "qwen2.5-coder" && input == "e\u0301 decomposed")
      expected = {963, 28502, 3865};
    EXPECT_EQ(tokenizer.encode(input, true, false), expected) << json_quote(input);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RealVectors, testing::ValuesIn(kRealTokenizers),
                         [](const auto& param) {
                           std::string name = param.param.key;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !isalnum(c); }, '_');
                           return name;
                         });

TEST(RealVectors, SmolLm2) {
  const Tokenizer& t = real_tokenizer("smollm2");
  EXPECT_EQ(t.vocab_size(), 49152);
  EXPECT_EQ(t.model_name(), "byte-level BPE (smollm)");
  EXPECT_EQ(t.bos_id, 1);
  EXPECT_EQ(t.eos_id, 2);
  EXPECT_FALSE(t.add_bos);
  EXPECT_THAT(t.end_ids, ElementsAre(0, 2));
  EXPECT_EQ(t.token_kind(2), TokenKind::kSpecial);
  EXPECT_EQ(t.token_bytes(2), "");
  EXPECT_EQ(t.token_bytes(2, true), "<|im_end|>");
  EXPECT_EQ(t.token_bytes(t.find("Ġworld")), " world");
  EXPECT_EQ(t.token_bytes(-1), "");
  EXPECT_EQ(t.token_bytes(49152), "");
}

TEST(RealVectors, Qwen) {
  const Tokenizer& t = real_tokenizer("qwen2.5-coder");
  EXPECT_EQ(t.vocab_size(), 151936);
  EXPECT_EQ(t.model_name(), "byte-level BPE (qwen2)");
  EXPECT_EQ(t.eos_id, 151645);
  EXPECT_FALSE(t.add_bos);
  EXPECT_EQ(t.token_kind(151657), TokenKind::kUserDefined);
  EXPECT_EQ(t.token_bytes(151657), "<tool_call>");
  EXPECT_EQ(t.token_kind(151935), TokenKind::kUnused);
  EXPECT_EQ(t.token_bytes(151935, true), "");
  // "</s>" is ordinary text here.
  EXPECT_THAT(t.end_ids, ElementsAre(151643, 151645, 151662, 151663, 151664));
}

TEST(RealVectors, Gemma) {
  const Tokenizer& t = real_tokenizer("gemma3-270m");
  EXPECT_EQ(t.vocab_size(), 262144);
  EXPECT_TRUE(t.add_bos);
  EXPECT_FALSE(t.strip_leading_space);
  // "</s>" is an HTML tag here.
  EXPECT_THAT(t.end_ids, ElementsAre(1, 106));
  EXPECT_EQ(t.encode("Hi", true, true).front(), 2);
  EXPECT_EQ(t.encode("<bos>Hi", true, true), t.encode("Hi", true, true)) << "no second BOS";
  EXPECT_EQ(t.token_bytes(238), std::string_view("\0", 1));
  EXPECT_EQ(t.token_bytes(t.find("▁the")), " the");
}

}  // namespace
}  // namespace invar
