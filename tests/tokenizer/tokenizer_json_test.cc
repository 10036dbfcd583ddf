// tokenizer.json: small hand-made files for what the real ones do not use, and errors that name the
// field. GGUF vocabularies that are wrong stand at the end.
#include <gmock/gmock.h>

#include <cstring>
#include <ctime>

#include "tokenizer/tokenizer.h"

namespace invar {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Ids: a 0, b 1, c 2, ab 3, abc 4, U+2581 5, unk 6, space in the byte alphabet 7.
constexpr const char* kVocab =
    R"("vocab":{"a":0,"b":1,"c":2,"ab":3,"abc":4,"▁":5,"<unk>":6,"Ġ":7},"merges":["a b",["ab","c"]])";

std::string file(const std::string& parts, const std::string& model_fields = "") {
  return R"({"model":{"type":"BPE",)" + std::string(kVocab) + model_fields + "}" +
         (parts.empty() ? "" : "," + parts) + "}";
}

std::unique_ptr<Tokenizer> load(const std::string& text, const std::string& config = "null") {
  auto tokenizer = Tokenizer::from_tokenizer_json(text, *Json::parse(config));
  if (tokenizer.ok()) return std::move(*tokenizer);
  ADD_FAILURE() << tokenizer.error().message;
  return nullptr;
}

std::vector<int32_t> ids(const std::string& text, std::string_view input, bool add_special = false,
                         const std::string& config = "null") {
  const auto tokenizer = load(text, config);
  return tokenizer ? tokenizer->encode(input, true, add_special) : std::vector<int32_t>{-99};
}

std::string error_of(const std::string& text, const std::string& config = "null") {
  const auto tokenizer = Tokenizer::from_tokenizer_json(text, *Json::parse(config));
  return tokenizer.ok() ? "" : tokenizer.error().message;
}

TEST(TokenizerJson, MergesAsTextOrPairs) {
  EXPECT_THAT(ids(file(""), "abcab"), ElementsAre(4, 3));
  EXPECT_THAT(ids(file("", R"(,"ignore_merges":true)"), "abc"), ElementsAre(4));
}

TEST(TokenizerJson, UnknownCharacters) {
  EXPECT_THAT(ids(file("", R"(,"unk_token":"<unk>")"), "axyb"), ElementsAre(0, 6, 6, 1));
  EXPECT_THAT(ids(file("", R"(,"unk_token":"<unk>","fuse_unk":true)"), "axyb"),
              ElementsAre(0, 6, 1));
  EXPECT_THAT(ids(file(""), "axb"), ElementsAre(0, 1)) << "nothing to say it with";
  EXPECT_EQ(load(file("", R"(,"unk_token":"<unk>")"))->token_kind(6), TokenKind::kUnknown);
}

TEST(TokenizerJson, ByteFallback) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) {
    char text[24];
    snprintf(text, sizeof text, "\"<0x%02X>\":%d,", static_cast<unsigned>(i), 10 + i);
    bytes += text;
  }
  const std::string json =
      R"({"model":{"vocab":{)" + bytes +
      R"("a":0,"<unk>":1},"merges":[],"byte_fallback":true,"unk_token":"<unk>"}})";
  EXPECT_THAT(ids(json, "aé\xFF"), ElementsAre(0, 10 + 0xC3, 10 + 0xA9, 10 + 0xFF));
  EXPECT_EQ(load(json)->token_bytes(10 + 0xC3), "\xC3");
  EXPECT_EQ(load(json)->token_kind(10), TokenKind::kByte);
}

TEST(TokenizerJson, AddedTokens) {
  const std::string added =
      R"("added_tokens":[
        {"id":8,"content":"<s>","special":true,"normalized":false},
        {"id":9,"content":"ca","special":false,"normalized":false,"single_word":true},
        {"id":10,"content":"<l>","special":true,"normalized":false,"lstrip":true},
        {"id":11,"content":"<r>","special":true,"normalized":false,"rstrip":true},
        {"id":12,"content":"<s><s>","special":true,"normalized":false}],
        "normalizer":{"type":"Replace","pattern":{"String":" "},"content":"▁"})";
  EXPECT_THAT(ids(file(added), "ab<s>ab"), ElementsAre(3, 8, 3)) << "no merge across a token";
  EXPECT_THAT(ids(file(added), "<s><s><s>"), ElementsAre(12, 8)) << "the longest";
  EXPECT_THAT(ids(file(added), "ca b"), ElementsAre(9, 5, 1));
  EXPECT_THAT(ids(file(added), "cab"), ElementsAre(2, 3)) << "single_word";
  EXPECT_THAT(ids(file(added), "a  <l> b"), ElementsAre(0, 10, 5, 1));
  EXPECT_THAT(ids(file(added), "a <r>  b"), ElementsAre(0, 5, 11, 1));
}

TEST(TokenizerJson, NormalizedAddedTokens) {
  const std::string added =
      R"("added_tokens":[{"id":8,"content":"b c","special":true,"normalized":true}],
         "normalizer":{"type":"Replace","pattern":{"String":" "},"content":"▁"})";
  EXPECT_THAT(ids(file(added), "ab ca"), ElementsAre(0, 8, 0));
  EXPECT_THAT(ids(file(added), "ab▁ca"), ElementsAre(0, 8, 0)) << "looked for in normalized text";
  const auto tokenizer = load(file(added));
  const std::vector<TextSegment> allowed = {{"a", false}, {"b c", true}, {"a", false}};
  EXPECT_THAT(tokenizer->encode(allowed, false), ElementsAre(0, 8, 0));
  const std::vector<TextSegment> cut = {{"ab", true}, {" ca", false}};
  EXPECT_THAT(tokenizer->encode(cut, false), ElementsAre(3, 5, 2, 0));
}

TEST(TokenizerJson, Metaspace) {
  const auto pre = [](const std::string& fields) {
    return file(R"("pre_tokenizer":{"type":"Metaspace","replacement":"▁",)" + fields + "}");
  };
  EXPECT_THAT(ids(pre(R"("prepend_scheme":"always")"), "ab ab"), ElementsAre(5, 3, 5, 3));
  EXPECT_THAT(ids(pre(R"("prepend_scheme":"never")"), "ab ab"), ElementsAre(3, 5, 3));
  const std::string added = R"(,"added_tokens":[{"id":8,"content":"<s>","special":true}])";
  const std::string json =
      file(R"("pre_tokenizer":{"type":"Metaspace","prepend_scheme":"first"})" + added);
  EXPECT_THAT(ids(json, "ab<s>ab"), ElementsAre(5, 3, 8, 3));
}

TEST(TokenizerJson, PrependAndStrip) {  // Llama 2
  const std::string json = file(
      R"("normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},
         {"type":"Replace","pattern":{"String":" "},"content":"▁"}]},
         "decoder":{"type":"Sequence","decoders":[
           {"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},
           {"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]})");
  EXPECT_THAT(ids(json, "ab c"), ElementsAre(5, 3, 5, 2));
  const auto tokenizer = load(json);
  EXPECT_TRUE(tokenizer->strip_leading_space);
  Detokenizer detokenizer(*tokenizer);
  std::string text;
  for (const int32_t id : {5, 3, 5, 2}) text += detokenizer.push(id);
  EXPECT_EQ(text, "ab c");
}

TEST(TokenizerJson, TemplateAndConfig) {
  const std::string parts =
      R"("added_tokens":[{"id":8,"content":"<s>","special":true},{"id":9,"content":"</s>","special":true}],
         "post_processor":{"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing",
           "single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},
                     {"SpecialToken":{"id":"</s>","type_id":0}}],
           "special_tokens":{"<s>":{"id":"<s>","ids":[8],"tokens":["<s>"]},
                             "</s>":{"id":"</s>","ids":[9],"tokens":["</s>"]}}}]})";
  EXPECT_THAT(ids(file(parts), "ab", true), ElementsAre(8, 3, 9));
  EXPECT_THAT(ids(file(parts), "<s>ab</s>", true), ElementsAre(8, 3, 9));
  EXPECT_THAT(ids(file(parts), "", true), ElementsAre(8, 9));
  const auto tokenizer = load(file(parts), R"({"eos_token":{"content":"</s>"},"bos_token":"<s>"})");
  EXPECT_EQ(tokenizer->bos_id, 8);
  EXPECT_EQ(tokenizer->eos_id, 9);
  EXPECT_TRUE(tokenizer->add_bos);
  EXPECT_THAT(tokenizer->end_ids, ElementsAre(9));
  // Without a template the flags of the config count.
  const std::string added = R"("added_tokens":[{"id":8,"content":"<s>","special":true}])";
  EXPECT_THAT(ids(file(added), "ab", true, R"({"bos_token":"<s>","add_bos_token":true})"),
              ElementsAre(8, 3));
}

TEST(TokenizerJson, ByteLevelKeepsAddedTokensAsText) {
  const auto tokenizer = load(file(
      R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":true,"use_regex":true},
         "added_tokens":[{"id":8,"content":"Ġé","special":false,"normalized":false}])"));
  EXPECT_EQ(tokenizer->token_bytes(7), " ");
  EXPECT_EQ(tokenizer->token_bytes(8), "Ġé");
  EXPECT_THAT(tokenizer->encode("abc", true, false), ElementsAre(7, 4));
}

TEST(TokenizerJson, ErrorsNameTheField) {
  EXPECT_THAT(error_of("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(error_of("{}"), HasSubstr("'model'"));
  EXPECT_THAT(error_of(R"({"model":{"type":"Unigram"}})"),
              HasSubstr("'model.type' is \"Unigram\""));
  EXPECT_THAT(error_of(R"({"model":{"merges":[]}})"), HasSubstr("'model.vocab'"));
  EXPECT_THAT(error_of(R"({"model":{"vocab":{"a":-1},"merges":[]}})"), HasSubstr("-1"));
  EXPECT_THAT(error_of(R"({"model":{"vocab":{"a":99999999},"merges":[]}})"), HasSubstr("99999999"));
  EXPECT_THAT(error_of(R"({"model":{"vocab":{"a":0,"b":0},"merges":[]}})"), HasSubstr("id 0"));
  EXPECT_THAT(error_of(R"({"model":{"vocab":{"a":0},"merges":["a b"]}})"),
              HasSubstr("'model.merges[0]' needs the token \"b\""));
  EXPECT_THAT(error_of(R"({"model":{"vocab":{"a":0},"merges":["ab"]}})"),
              HasSubstr("'model.merges[0]'"));
  EXPECT_THAT(error_of(file("", R"(,"dropout":0.1)")), HasSubstr("'model.dropout'"));
  EXPECT_THAT(error_of(file("", R"(,"end_of_word_suffix":"</w>")")),
              HasSubstr("'model.end_of_word_suffix'"));
  EXPECT_THAT(error_of(file(R"("normalizer":{"type":"Lowercase"})")),
              HasSubstr("'normalizer.type' is \"Lowercase\""));
  EXPECT_THAT(
      error_of(file(
          R"("normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Strip"}]})")),
      HasSubstr("'normalizer.normalizers[1].type'"));
  EXPECT_THAT(error_of(file(R"("pre_tokenizer":{"type":"Whitespace"})")),
              HasSubstr("'pre_tokenizer.type'"));
  EXPECT_THAT(
      error_of(file(
          R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"a("},"behavior":"Isolated"})")),
      HasSubstr("pre_tokenizer.pattern"));
  EXPECT_THAT(error_of(file(
                  R"("pre_tokenizer":{"type":"Split","pattern":{"String":"a"},"behavior":"Odd"})")),
              HasSubstr("'pre_tokenizer.behavior' is \"Odd\""));
  EXPECT_THAT(error_of(file(R"("decoder":{"type":"WordPiece"})")), HasSubstr("'decoder.type'"));
  EXPECT_THAT(error_of(file(R"("post_processor":{"type":"BertProcessing"})")),
              HasSubstr("'post_processor.type'"));
  EXPECT_THAT(error_of(file(R"("added_tokens":[{"id":1}])")), HasSubstr("added_tokens[0]"));
}

// Steps multiply: 30 of them made 2^30 bytes of one.
TEST(TokenizerJson, StepsThatMakeTextLongWithoutEndAreRefused) {
  const auto steps = [](const std::string& key, const std::string& step) {
    std::string list = step;
    for (int i = 0; i < 29; ++i) list += "," + step;
    return R"({"type":"Sequence",")" + key + "\":[" + list + "]}";
  };
  const std::string twice = R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})";
  EXPECT_THAT(error_of(file("\"normalizer\":" + steps("normalizers", twice))),
              HasSubstr("'normalizer.normalizers[8]' can make a text more than 256 times longer"));
  EXPECT_THAT(error_of(file("\"decoder\":" + steps("decoders", twice))),
              HasSubstr("'decoder.decoders[0].content' is longer than what it replaces"));
  const std::string regex = R"({"type":"Replace","pattern":{"Regex":"x*"},"content":"yy"})";
  EXPECT_THAT(error_of(file("\"normalizer\":" + steps("normalizers", regex))),
              HasSubstr("256 times longer"));
  EXPECT_THAT(error_of(file(R"("pre_tokenizer":{"type":"Metaspace","replacement":"--"})")),
              HasSubstr("'pre_tokenizer.replacement' is \"--\", expected one character"));
  EXPECT_THAT(error_of(file(R"("normalizer":{"type":"Prepend","prepend":")" +
                            std::string(257, 'a') + "\"}")),
              HasSubstr("'normalizer.prepend' has 257 bytes"));
}

TEST(TokenizerJson, LongTokensAreDecodedInLinearTime) {
  std::string token;
  for (int i = 0; i < 1'000'000; ++i) token += "▁";
  const std::string json =
      R"({"model":{"vocab":{"a":0,")" + token +
      R"(":1},"merges":[]},"decoder":{"type":"Replace","pattern":{"String":"▁"},"content":" "}})";
  const std::clock_t start = std::clock();
  EXPECT_EQ(load(json)->token_bytes(1), std::string(1'000'000, ' '));
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 3.0);
}

Checkpoint::GgufVocabulary small_gguf() {
  Checkpoint::GgufVocabulary gguf;
  gguf.model = "llama";
  gguf.tokens = {"<unk>", "<s>", "</s>", "▁", "a", "b", "ab", "▁ab", "<0x41>", "user"};
  gguf.scores = {0, 0, 0, -1, -2, -3, -4, -5, 0, 0};
  gguf.token_types = {2, 3, 3, 1, 1, 1, 1, 1, 6, 4};
  gguf.keys = Json::object();
  return gguf;
}

TEST(GgufVocabulary, Llama2Defaults) {
  const auto tokenizer = Tokenizer::from_gguf(small_gguf());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const Tokenizer& t = **tokenizer;
  EXPECT_TRUE(t.strip_leading_space);
  EXPECT_THAT(t.encode("ab ab", true, true), ElementsAre(1, 7, 7));
  EXPECT_THAT(t.encode("<s>ab", true, true), ElementsAre(1, 7));
  EXPECT_THAT(t.encode("aAx", true, false), ElementsAre(3, 4, 8, 0));
  EXPECT_THAT(t.encode("userab", false, false), ElementsAre(9, 7));
  EXPECT_THAT(t.end_ids, ElementsAre(2));
}

TEST(GgufVocabulary, ErrorsNameTheKey) {
  const auto error = [](auto change) {
    Checkpoint::GgufVocabulary gguf = small_gguf();
    change(gguf);
    const auto tokenizer = Tokenizer::from_gguf(gguf);
    return tokenizer.ok() ? std::string() : tokenizer.error().message;
  };
  EXPECT_THAT(error([](auto& g) { g.model = "bert"; }), HasSubstr("tokenizer.ggml.model"));
  EXPECT_THAT(error([](auto& g) { g.tokens.clear(); }), HasSubstr("tokenizer.ggml.tokens"));
  EXPECT_THAT(error([](auto& g) { g.scores.pop_back(); }), HasSubstr("tokenizer.ggml.scores"));
  EXPECT_THAT(error([](auto& g) { g.scores[3] = NAN; }), HasSubstr("scores[3]"));
  EXPECT_THAT(error([](auto& g) { g.token_types.pop_back(); }), HasSubstr("token_type"));
  EXPECT_THAT(error([](auto& g) { g.model = "gpt2"; }), HasSubstr("tokenizer.ggml.merges"));
  EXPECT_THAT(error([](auto& g) {
                g.model = "gpt2";
                g.merges = {"ab"};
              }),
              HasSubstr("merges[0]"));
  EXPECT_THAT(error([](auto& g) { g.keys.set("bos_token_id", "x"); }), HasSubstr("bos_token_id"));
}

TEST(GgufVocabulary, OddFilesLoad) {
  Checkpoint::GgufVocabulary gguf = small_gguf();
  gguf.tokens[9] = "ab";  // repeated: the first stays
  gguf.tokens[5] = "";    // empty
  gguf.keys.set("bos_token_id", int64_t{4294967295});
  const auto tokenizer = Tokenizer::from_gguf(gguf);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->bos_id, -1);
  EXPECT_FALSE((*tokenizer)->add_bos);
  EXPECT_EQ((*tokenizer)->find("ab"), 6);
  EXPECT_EQ((*tokenizer)->token_kind(9), TokenKind::kUnused);
}

// "x" is in no token and there are no byte tokens for it.
TEST(GgufVocabulary, UnknownTextGivesNoControlToken) {
  Checkpoint::GgufVocabulary gguf = small_gguf();
  gguf.token_types[0] = 3;  // <unk> stored as control, as in Gemma
  auto tokenizer = Tokenizer::from_gguf(gguf);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_THAT((*tokenizer)->encode("ax", false, false), ElementsAre(3, 4, 0));
  EXPECT_EQ((*tokenizer)->token_kind(0), TokenKind::kUnknown);
  EXPECT_EQ((*tokenizer)->token_bytes(0), "") << "still hidden";
  gguf.keys.set("unknown_token_id", 2);  // </s>
  tokenizer = Tokenizer::from_gguf(gguf);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_THAT((*tokenizer)->encode("ax", false, false), ElementsAre(3, 4));
  EXPECT_EQ((*tokenizer)->token_kind(2), TokenKind::kSpecial);
}

TEST(GgufVocabulary, AByteThatIsAControlTokenIsNotOneInPlainText) {
  Checkpoint::GgufVocabulary gguf;
  gguf.model = "gpt2";
  gguf.tokens = {"a", "b", "ab", "c", "bc"};
  gguf.token_types = {3, 1, 1, 1, 5};
  gguf.merges = {"a b", "b c"};
  gguf.keys = Json::object();
  const auto tokenizer = Tokenizer::from_gguf(gguf);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_THAT((*tokenizer)->encode("ab", false, false), ElementsAre(1));
  EXPECT_THAT((*tokenizer)->encode("ab", true, false), ElementsAre(0, 1));
  EXPECT_THAT((*tokenizer)->encode("bc", true, false), ElementsAre(1, 3)) << "bc is unused";
}

// 16-byte tokens that all had one hash while it was fixed (multiply and fold, without a secret):
// loading took minutes. Each second word undoes what the first did to the state.
TEST(GgufVocabulary, CollidingTokensLoadInLinearTime) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15u;
  constexpr size_t kTokens = 60'000;
  Checkpoint::GgufVocabulary gguf = small_gguf();
  for (uint64_t first = 1; first <= kTokens; ++first) {
    const auto product = static_cast<unsigned __int128>(16 * kMultiplier ^ first) * kMultiplier;
    const uint64_t second = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
    std::string token(16, '\0');
    std::memcpy(token.data(), &first, 8);
    std::memcpy(token.data() + 8, &second, 8);
    gguf.tokens.push_back(token);
    gguf.scores.push_back(-1);
    gguf.token_types.push_back(1);
  }
  const std::clock_t start = std::clock();
  const auto tokenizer = Tokenizer::from_gguf(gguf);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->find(gguf.tokens.back()), (*tokenizer)->vocab_size() - 1);
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 3.0);
}

TEST(GgufVocabulary, EndTokenOfTheWrongTypeIsHidden) {
  Checkpoint::GgufVocabulary gguf = small_gguf();
  gguf.tokens[9] = "<|im_end|>";  // type user-defined
  const auto tokenizer = Tokenizer::from_gguf(gguf);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ((*tokenizer)->token_kind(9), TokenKind::kSpecial);
  EXPECT_THAT((*tokenizer)->end_ids, ElementsAre(2, 9));
}

}  // namespace
}  // namespace invar
