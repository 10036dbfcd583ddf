// The real checkpoints on the reference backend against logits that llama.cpp gives with weights
// dequantized to F32 and F32 activations (specs/goldens.md section 3), within 1e-2: its GELU goes
// through a 16-bit table.
#include "models/harness.h"

namespace invar::testing {
namespace {

struct RealGolden {
  const char* name;
  const char* file;
  std::vector<int32_t> prompt;
  std::vector<std::pair<int32_t, float>> first_logits;  // the three best after the prompt, in order
  std::vector<int32_t> greedy;                          // what greedy decoding gives
};

void PrintTo(const RealGolden& golden, std::ostream* out) { *out << golden.name; }

class RealModelTest : public ::testing::TestWithParam<RealGolden> {};

// Greedy decoding is checked in one pass: the expected ids are fed and each must be the argmax of
// the logits before it, which is what decoding one by one would have chosen.
TEST_P(RealModelTest, ReferenceGivesTheGoldenLogitsAndIds) {
  const RealGolden& golden = GetParam();
  ModelOnBackend m(real_model_path(golden.file), "reference");
  ASSERT_TRUE(m.ok());
  std::vector<int32_t> ids = golden.prompt;
  ids.insert(ids.end(), golden.greedy.begin(), golden.greedy.end() - 1);
  const Logits logits = m.run(ids, 64);
  const size_t last = golden.prompt.size() - 1;
  for (const auto& [id, value] : golden.first_logits)
    EXPECT_NEAR(logits[last][static_cast<size_t>(id)], value, 1e-2) << "id " << id;
  for (size_t i = 0; i < golden.greedy.size(); ++i)
    EXPECT_EQ(argmax(logits[last + i]), golden.greedy[i]) << "greedy token " << i;
}

std::string real_golden_name(const ::testing::TestParamInfo<RealGolden>& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    Files, RealModelTest,
    ::testing::Values(
        RealGolden{"smollm2",
                   "smollm2-135m-instruct-q4_1.gguf",
                   {504, 3575, 282, 4649, 314},
                   {{7042, 17.3713f}, {260, 14.8886f}, {4528, 13.2450f}},
                   {7042, 30, 198, 198, 504, 2988, 314, 42, 216, 34, 32, 33, 40, 29, 32, 33}},
        RealGolden{"smollm2_chat",
                   "smollm2-135m-instruct-q4_1.gguf",
                   {1,   9690, 198, 2683, 359,   253,  5356, 5646, 11173, 3365, 3511, 308,  34519,
                    28,  7018, 411, 407,  19712, 8182, 2,    198,  1,     4093, 198,  1780, 314,
                    260, 3575, 282, 4649, 47,    2,    198,  1,    520,   9531, 198},
                   {{504, 25.3254f}, {60, 25.2433f}, {15319, 24.9424f}},
                   {504, 3575, 282, 4649, 314, 7042, 30, 2}},
        RealGolden{
            "qwen2.5_coder",
            "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            {750, 75698, 1445, 1648},
            {{198, 17.5887f}, {715, 16.5284f}, {220, 15.7637f}},
            {198, 262, 421, 308, 2651, 220, 15, 510, 286, 470, 330, 7928, 1946, 698, 262, 4409}},
        RealGolden{"gemma3_270m",
                   "gemma-3-270m-q4_k_m.gguf",
                   {2, 818, 5279, 529, 7001, 563},
                   {{506, 19.09f}, {496, 18.55f}, {9079, 18.27f}},
                   {506, 5279, 529, 506, 2891, 529, 7001, 236761, 1030, 563, 506, 7488, 3207, 528,
                    7001, 532}}),
    real_golden_name);

}  // namespace
}  // namespace invar::testing
