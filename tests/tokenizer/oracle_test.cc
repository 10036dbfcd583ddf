// The real vocabularies against Hugging Face's tokenizers (tools/tokenizer_oracle.py): thousands of
// random texts, once through the GGUF vocabulary and once through a tokenizer.json made from it.
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "random_text.h"
#include "real_tokenizers.h"

namespace invar {
namespace {

constexpr uint32_t kSeed = 20260711;

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream out;
  out << file.rdbuf();
  return out.str();
}

struct OracleAnswer {
  std::string tokenizer_json;
  std::vector<std::vector<int32_t>> ids;
};

// Runs the script; an empty answer (and a failure that says why) when it cannot be run.
OracleAnswer ask_oracle(const std::string& model_file, const std::string& variant,
                        const std::vector<std::string>& texts) {
  const char* chosen = std::getenv("INVAR_PYTHON");
  const std::string python = chosen ? chosen : INVAR_SOURCE_DIR "/.venv/bin/python";
  if (!file_exists(python)) {
    ADD_FAILURE() << python << " is missing: run tools/setup.sh test";
    return {};
  }
  char folder[] = "/tmp/invar-tokenizer-XXXXXX";
  if (mkdtemp(folder) == nullptr) {
    ADD_FAILURE() << "no temporary folder";
    return {};
  }
  const std::string base = folder;
  {
    std::ofstream out(base + "/texts");
    for (const std::string& text : texts) out << json_quote(text) << '\n';
  }
  const std::string command =
      "'" + python + "' '" INVAR_SOURCE_DIR "/tools/tokenizer_oracle.py' '" +
      real_model_path(model_file) + "'" + (variant.empty() ? "" : " --variant " + variant) +
      " --json '" + base + "/tokenizer.json' < '" + base + "/texts' > '" + base + "/ids'";
  OracleAnswer answer;
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  answer.tokenizer_json = read_all(base + "/tokenizer.json");
  std::istringstream lines(read_all(base + "/ids"));
  for (std::string line; std::getline(lines, line);) {
    std::vector<int32_t> ids;
    const auto parsed = Json::parse(line);
    if (!parsed.ok()) break;
    for (const Json& id : parsed->items()) ids.push_back(static_cast<int32_t>(id.as_int()));
    answer.ids.push_back(std::move(ids));
  }
  for (const char* name : {"/texts", "/ids", "/tokenizer.json"}) std::remove((base + name).c_str());
  rmdir(folder);
  EXPECT_EQ(answer.ids.size(), texts.size());
  answer.ids.resize(texts.size());
  return answer;
}

std::vector<std::string> random_texts(int count, uint32_t seed) {
  RandomText random(seed);
  std::vector<std::string> texts;
  for (int i = 0; i < count; ++i) texts.push_back(random.next(i % 20 == 0 ? 80 : 12));
  return texts;
}

// Compares and names the first few texts that differ.
void expect_same_ids(const Tokenizer& tokenizer, const std::vector<std::string>& texts,
                     const OracleAnswer& answer, const std::string& path) {
  int num_different = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::vector<int32_t> ids = tokenizer.encode(texts[i], true, false);
    if (ids == answer.ids[i]) continue;
    if (++num_different > 3) continue;
    EXPECT_EQ(ids, answer.ids[i]) << path << ": " << json_quote(texts[i]);
  }
  EXPECT_EQ(num_different, 0) << path << ", of " << texts.size() << " texts";
}

std::unique_ptr<Tokenizer> load_json(const std::string& text) {
  auto tokenizer = Tokenizer::from_tokenizer_json(text, Json());
  if (tokenizer.ok()) return std::move(*tokenizer);
  ADD_FAILURE() << tokenizer.error().message;
  return nullptr;
}

std::string test_name(std::string text) {
  for (char& c : text)
    if (!isalnum(static_cast<unsigned char>(c))) c = '_';
  return text;
}

class OracleModel : public testing::TestWithParam<RealTokenizer> {};

TEST_P(OracleModel, GgufAndJsonGiveTheSameIds) {
  const std::vector<std::string> texts = random_texts(3000, kSeed);
  const OracleAnswer answer = ask_oracle(GetParam().file, "", texts);
  expect_same_ids(real_tokenizer(GetParam().key), texts, answer, "GGUF");
  const auto from_json = load_json(answer.tokenizer_json);
  ASSERT_NE(from_json, nullptr);
  expect_same_ids(*from_json, texts, answer, "tokenizer.json");
  // Both paths agree about output as well.
  const Tokenizer& gguf = real_tokenizer(GetParam().key);
  for (int32_t id = 0; id < gguf.vocab_size(); ++id) {
    if (gguf.token_kind(id) == TokenKind::kUnused) continue;
    ASSERT_EQ(from_json->token_bytes(id), gguf.token_bytes(id)) << id;
    ASSERT_EQ(from_json->token_bytes(id, true), gguf.token_bytes(id, true)) << id;
  }
  EXPECT_EQ(from_json->add_bos, gguf.add_bos);
}

INSTANTIATE_TEST_SUITE_P(All, OracleModel, testing::ValuesIn(kRealTokenizers),
                         [](const auto& param) { return test_name(param.param.key); });

class OracleVariant : public testing::TestWithParam<const char*> {};

TEST_P(OracleVariant, SameIds) {
  const std::vector<std::string> texts = random_texts(800, kSeed + 1);
  const OracleAnswer answer = ask_oracle(kRealTokenizers[0].file, GetParam(), texts);
  const auto tokenizer = load_json(answer.tokenizer_json);
  ASSERT_NE(tokenizer, nullptr);
  expect_same_ids(*tokenizer, texts, answer, GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, OracleVariant,
                         testing::Values("llama3", "qwen35", "tekken", "prefix", "digit-runs",
                                         "removed", "previous", "next", "contiguous", "inverted",
                                         "ignore-merges"),
                         [](const auto& param) { return test_name(param.param); });

}  // namespace
}  // namespace invar
