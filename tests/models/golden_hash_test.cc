// The arithmetic of the cpu backend, frozen: a hash over the bits of logits per family and id. A
// hash that moves means that replies may change: then the arithmetic id moves too (cpu_backend.cc),
// with a line in CHANGELOG.md, and only then the numbers here.
#include <algorithm>
#include <cctype>
#include <cstring>

#include "backend/cpu/isa.h"
#include "base/hash.h"
#include "models/harness.h"

namespace invar::testing {
namespace {

struct Frozen {
  const char* file;
  const char* cpu_1;      // first 16 digits of SHA-256 over fp32 logits, arithmetic cpu-1
  const char* cpu_1_a12;  // the same with 12-bit activations
};

std::string logits_hash(const std::string& path, int activation_bits, const char* isa) {
  BackendOptions options;
  options.activation_bits = activation_bits;
  options.isa = isa;
  ModelOnBackend m(path, "cpu", options);
  if (!m.ok()) return "";
  EXPECT_EQ(m.backend->info().arithmetic_id, activation_bits == 8 ? "cpu-1" : "cpu-1-a12");
  std::vector<int32_t> ids;
  for (int i = 0; i < 40; ++i)
    ids.push_back((i * 37 + 11) % std::min(m.model->info().vocab_size, 4096));
  Sha256 hash;
  for (const std::vector<float>& row : m.run(ids, 16))
    hash.update({reinterpret_cast<const uint8_t*>(row.data()), row.size() * sizeof(float)});
  return hash.hex_digest().substr(0, 16);
}

// Golden models stand in folders of the tree, real ones in the cache folder.
std::string path_of(const Frozen& frozen) {
  const std::string name = frozen.file;
  return name.find('/') != std::string::npos ? golden_path(name) : real_model_path(name);
}

class GoldenHashTest : public ::testing::TestWithParam<Frozen> {};

TEST_P(GoldenHashTest, BitsAreTheFrozenOnes) {
  const Frozen& frozen = GetParam();
  const std::string path = path_of(frozen);
  EXPECT_EQ(logits_hash(path, 8, ""), frozen.cpu_1);
  EXPECT_EQ(logits_hash(path, 12, ""), frozen.cpu_1_a12);
}

// Every instruction set gives the same bits, so one number stands for all. Only files that the
// portable code gets through quickly.
class EverySetHashTest : public ::testing::TestWithParam<Frozen> {};

TEST_P(EverySetHashTest, BitsAreTheFrozenOnes) {
  for (const cpu::Isa set : cpu::all_isas()) {
    if (!cpu::isa_available(set)) continue;
    EXPECT_EQ(logits_hash(path_of(GetParam()), 8, cpu::isa_name(set)), GetParam().cpu_1)
        << cpu::isa_name(set);
  }
}

const Frozen kQuick[] = {
    Frozen{"llama/model.gguf", "091636fc839c7892", "091636fc839c7892"},
    Frozen{"llama3/model.gguf", "48896976fd84ab93", "48896976fd84ab93"},
    Frozen{"llama_mlx/model.safetensors", "950ec3ec05d5d958", "9c54f6925d37fdc5"},
    Frozen{"qwen2/model.gguf", "d81b96eb18ec64bd", "d81b96eb18ec64bd"},
    Frozen{"qwen3/model.gguf", "300ea2a208d953ba", "300ea2a208d953ba"},
    Frozen{"gemma3/model.gguf", "96c7dd2c863e1cc4", "96c7dd2c863e1cc4"},
    Frozen{"qwen3_moe/model.safetensors", "f2d56a64ee854530", "f2d56a64ee854530"},
    Frozen{"qwen3_next/model.safetensors", "0b597330b17c2b98", "0b597330b17c2b98"},
    Frozen{"qwen3_5/model.safetensors", "f8febd19ec926cfe", "f8febd19ec926cfe"},
    Frozen{"qwen3_5_moe/model.safetensors", "4f50c8bbe0916cbc", "4f50c8bbe0916cbc"},
    Frozen{"nemotron_h_moe/model.safetensors", "dd77736dfaf5bd52", "dd77736dfaf5bd52"},
    Frozen{"nemotron_h_latent/model.safetensors", "8eb4950c16836866", "8eb4950c16836866"},
    Frozen{"qwen3_5_moe_quantized/model.gguf", "183f08dbd518a277", "e38b71e80d08f80d"},
    Frozen{"nemotron_h_quantized/model.gguf", "2b11c533f6063a02", "46d0b1af9da8aa8c"},
    Frozen{"smollm2-135m-instruct-q4_1.gguf", "d6e29358176c5051", "ffa0d9008c4e9445"}};
const Frozen kLarge[] = {
    Frozen{"qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "0dd39daebe92d2ad", "39f83e1357e9d37b"},
    Frozen{"gemma-3-270m-q4_k_m.gguf", "2f6ae01851e6921c", "d1abb69bcb0653a2"}};

// "llama", "smollm2_135m_instruct_q4_1_gguf"
std::string name_of(const ::testing::TestParamInfo<Frozen>& info) {
  std::string name = info.param.file;
  name.resize(std::min(name.size(), name.find('/')));
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Quick, GoldenHashTest, ::testing::ValuesIn(kQuick), name_of);
INSTANTIATE_TEST_SUITE_P(Large, GoldenHashTest, ::testing::ValuesIn(kLarge), name_of);
INSTANTIATE_TEST_SUITE_P(Quick, EverySetHashTest, ::testing::ValuesIn(kQuick), name_of);

}  // namespace
}  // namespace invar::testing
