// The contract (docs/architecture.md): logits of a position do not change by a bit with the chunks
// a prompt is cut into, the sequences that share a step, the pages, the threads, or the instruction
// set.
#include <cmath>
#include <cstring>

#include "backend/cpu/isa.h"
#include "backend/sweep.h"
#include "models/harness.h"

namespace invar::testing {
namespace {

using Sequence = ModelOnBackend::Sequence;

// First position whose bits differ, as text; "" when all are equal.
std::string bits_differ(const Logits& a, const Logits& b) {
  if (a.size() != b.size()) return "different number of positions";
  for (size_t t = 0; t < a.size(); ++t)
    if (std::memcmp(a[t].data(), b[t].data(), a[t].size() * sizeof(float)) != 0)
      return "position " + std::to_string(t);
  return "";
}

std::vector<int32_t> random_ids(std::mt19937& random, size_t count, int vocab_size) {
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint32_t>(vocab_size));
  return ids;
}

BackendOptions with(int threads, const char* isa = "") {
  BackendOptions options;
  options.num_threads = threads;
  options.isa = isa;
  return options;
}

// `count` sequences of different lengths advance in random chunks, several in a step, over pages
// dealt out in random order; each must give the logits it gives alone in one chunk.
void expect_company_does_not_matter(ModelOnBackend& m, size_t count, size_t max_length,
                                    uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Sequence> sequences(count);
  std::vector<Logits> alone;
  int num_pages = 0;
  for (Sequence& s : sequences) {
    s.ids = random_ids(random, 1 + random() % max_length, m.model->info().vocab_size);
    alone.push_back(m.run(s.ids, static_cast<int64_t>(s.ids.size())));
    num_pages += static_cast<int>((s.ids.size() + kPagePositions - 1) / kPagePositions);
  }
  std::vector<int32_t> pages(static_cast<size_t>(num_pages));
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), random);
  m.make_cache(num_pages, static_cast<int>(count));
  int32_t slot = static_cast<int32_t>(count);
  for (Sequence& s : sequences) {
    s.state_slot = --slot;
    for (size_t i = 0; i < s.ids.size(); i += kPagePositions) {
      s.pages.push_back(pages.back());
      pages.pop_back();
    }
  }
  while (true) {
    std::vector<Sequence*> members;
    std::vector<int64_t> counts;
    for (Sequence& s : sequences) {
      const int64_t left = static_cast<int64_t>(s.ids.size()) - s.done;
      if (left == 0 || random() % 3 == 0) continue;
      members.push_back(&s);
      counts.push_back(random() % 2 == 0 ? 1 : 1 + static_cast<int64_t>(random()) % left);
    }
    const bool all_done = std::all_of(sequences.begin(), sequences.end(), [](const Sequence& s) {
      return s.done == static_cast<int64_t>(s.ids.size());
    });
    if (all_done) break;
    if (!members.empty()) m.step(members, counts);
  }
  for (size_t i = 0; i < count; ++i)
    EXPECT_EQ(bits_differ(sequences[i].logits, alone[i]), "") << "sequence " << i;
}

class TinyFamilyTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::string path() const { return golden_path(GetParam()) + "/model.gguf"; }
};

TEST_P(TinyFamilyTest, ChunksDoNotMatter) {
  for (const char* backend : {"cpu", "reference"}) {
    ModelOnBackend m(path(), backend, with(2));
    ASSERT_TRUE(m.ok());
    std::mt19937 random(7);
    // The reference is slow; the cpu backend's chunk of 512 needs more than 512.
    const auto ids = random_ids(random, backend[0] == 'c' ? 530 : 300, m.model->info().vocab_size);
    const Logits whole = m.run(ids, static_cast<int64_t>(ids.size()));
    for (const int64_t chunk : {1, 7, 64, 256, 512})
      EXPECT_EQ(bits_differ(m.run(ids, chunk), whole), "") << backend << " chunk " << chunk;
  }
}

// The head runs for the rows whose logits are asked for and no other: as many rows come back, in
// the order asked for, each with the bits that it has among all.
TEST_P(TinyFamilyTest, LogitsOnlyOfTheRowsAskedFor) {
  ModelOnBackend m(path(), "cpu", with(2));
  ASSERT_TRUE(m.ok());
  std::mt19937 random(8);
  const auto ids = random_ids(random, 90, m.model->info().vocab_size);
  const Logits all = m.run(ids, 90);
  for (const std::vector<int32_t>& rows :
       {std::vector<int32_t>{89}, {0, 1, 2}, {3, 17, 40, 64, 89}, {}}) {
    const Logits some = m.run_rows(ids, rows);
    ASSERT_EQ(some.size(), rows.size());
    for (size_t i = 0; i < rows.size(); ++i)
      EXPECT_EQ(bits_differ({some[i]}, {all[static_cast<size_t>(rows[i])]}), "") << rows[i];
  }
}

TEST_P(TinyFamilyTest, CompanyAndPagesDoNotMatter) {
  ModelOnBackend m(path(), "cpu", with(2));
  ASSERT_TRUE(m.ok());
  expect_company_does_not_matter(m, 5, 600, 11);
}

TEST_P(TinyFamilyTest, ThreadsAndInstructionSetDoNotMatter) {
  std::mt19937 random(3);
  const auto ids = random_ids(random, 270, 96);
  ModelOnBackend first(path(), "cpu", with(1));
  ASSERT_TRUE(first.ok());
  const Logits expected = first.run(ids, 64);
  for (const int threads : {2, 3}) {
    ModelOnBackend m(path(), "cpu", with(threads));
    ASSERT_TRUE(m.ok());
    EXPECT_EQ(bits_differ(m.run(ids, 64), expected), "") << threads << " threads";
  }
  for (const cpu::Isa set : cpu::all_isas()) {
    const char* isa = cpu::isa_name(set);
    if (!cpu::isa_available(set)) {
      std::printf("[ NOT RUN  ] %s: not on this CPU\n", isa);
      continue;
    }
    ModelOnBackend m(path(), "cpu", with(1, isa));
    ASSERT_TRUE(m.ok());
    EXPECT_EQ(bits_differ(m.run(ids, 64), expected), "") << isa;
    expect_company_does_not_matter(m, 5, 60, 12);
  }
}

TEST_P(TinyFamilyTest, CpuIsCloseToReference) {
  std::mt19937 random(5);
  const auto ids = random_ids(random, 200, 96);
  ModelOnBackend cpu(path(), "cpu"), reference(path(), "reference");
  ASSERT_TRUE(cpu.ok() && reference.ok());
  const Logits expected = reference.run(ids, 64);
  float largest = 0;
  for (const std::vector<float>& row : expected)
    for (const float x : row) largest = std::max(largest, std::abs(x));
  // Float weights run in fp32, so what is seen is the fp16 of keys and values: each is off by up to
  // 2^-11 of itself, and norms keep that from growing from layer to layer. Found: 2.7 times
  // 2^-11 of the largest logit at most, with experts (1.7 times without).
  EXPECT_LT(max_difference(cpu.run(ids, 64), expected), 0x1p-9f * largest) << largest;
}

INSTANTIATE_TEST_SUITE_P(Families, TinyFamilyTest,
                         ::testing::Values("llama", "llama3", "qwen2", "qwen3", "gemma3",
                                           "qwen3_moe", "qwen3_5", "qwen3_5_moe", "qwen3_next",
                                           "nemotron_h_moe"));

class RealExactnessTest : public ::testing::TestWithParam<const char*> {};

TEST_P(RealExactnessTest, ChunksThreadsAndCompanyDoNotMatter) {
  const std::string path = real_model_path(GetParam());
  std::mt19937 random(1);
  const auto ids = random_ids(random, 70, 40000);
  Logits whole;
  {
    ModelOnBackend m(path, "cpu", with(2));
    ASSERT_TRUE(m.ok());
    whole = m.run(ids, 70);
    EXPECT_EQ(bits_differ(m.run(ids, 1), whole), "") << "one by one";
    EXPECT_EQ(bits_differ(m.run(ids, 7), whole), "") << "chunks of 7";
    expect_company_does_not_matter(m, 5, 40, 2);
  }
  for (const int threads : {1, 3}) {
    ModelOnBackend m(path, "cpu", with(threads));
    ASSERT_TRUE(m.ok());
    EXPECT_EQ(bits_differ(m.run(ids, 64), whole), "") << threads << " threads";
  }
}

// A long prompt on every instruction set: `INVAR_SWEEP=full` (backend/sweep.h), since it takes
// minutes a file.
TEST_P(RealExactnessTest, SweepOfChunksAndInstructionSets) {
  const std::string path = real_model_path(GetParam());
  const size_t length = test::full_sweep() ? 530 : 20;
  std::mt19937 random(4);
  const auto ids = random_ids(random, length, 40000);
  std::vector<int32_t> rows;  // of all, too many floats
  for (size_t row = 3; row < length; row += 16) rows.push_back(static_cast<int32_t>(row));
  Logits expected;
  for (const cpu::Isa set : cpu::all_isas()) {
    if (!cpu::isa_available(set) || (set == cpu::Isa::kPortable && !test::full_sweep())) continue;
    ModelOnBackend m(path, "cpu", with(2, cpu::isa_name(set)));
    ASSERT_TRUE(m.ok());
    for (const int64_t chunk : {1 << 16, 512, 64, 7, 1}) {
      if (set == cpu::Isa::kPortable && chunk <= 64) continue;
      const Logits got = m.run_rows(ids, rows, chunk);
      if (expected.empty()) expected = got;
      EXPECT_EQ(bits_differ(got, expected), "") << cpu::isa_name(set) << " chunk " << chunk;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, RealExactnessTest,
                         ::testing::Values("smollm2-135m-instruct-q4_1.gguf",
                                           "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                                           "gemma-3-270m-q4_k_m.gguf"),
                         [](const ::testing::TestParamInfo<const char*>& param) {
                           return std::string(param.param).substr(0, 4);
                         });

}  // namespace
}  // namespace invar::testing
