// The contract (docs/architecture.md): logits of a position do not change by a bit with the chunks
// a prompt is cut into, the sequences that share a step, the pages, the threads, or the instruction
// set.
#include <cmath>
#include <cstring>

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
  m.make_cache(num_pages);
  for (Sequence& s : sequences)
    for (size_t i = 0; i < s.ids.size(); i += kPagePositions) {
      s.pages.push_back(pages.back());
      pages.pop_back();
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
    const auto ids = random_ids(random, 300, m.model->info().vocab_size);
    const Logits whole = m.run(ids, 300);
    for (const int64_t chunk : {1, 7, 64, 256})
      EXPECT_EQ(bits_differ(m.run(ids, chunk), whole), "") << backend << " chunk " << chunk;
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
  for (const char* isa : {"portable", "avx2", "avxvnni", "avx512"}) {
    auto backend = make_backend("cpu", with(1, isa));
    if (!backend) {
      std::printf("[ NOT RUN  ] %s: %s\n", isa, backend.error().message.c_str());
      continue;
    }
    ModelOnBackend m(path(), "cpu", with(1, isa));
    ASSERT_TRUE(m.ok());
    EXPECT_EQ(bits_differ(m.run(ids, 64), expected), "") << isa;
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
  // 2^-11 of itself, and norms keep that from growing from layer to layer. Found: 1.7 times
  // 2^-11 of the largest logit at most.
  EXPECT_LT(max_difference(cpu.run(ids, 64), expected), 0x1p-10f * largest) << largest;
}

INSTANTIATE_TEST_SUITE_P(Families, TinyFamilyTest,
                         ::testing::Values("llama", "llama3", "qwen2", "qwen3", "gemma3"));

class RealExactnessTest : public ::testing::TestWithParam<const char*> {};

TEST_P(RealExactnessTest, ChunksThreadsAndCompanyDoNotMatter) {
  const std::string path = real_model_path(GetParam());
  ModelOnBackend m(path, "cpu", with(2));
  ASSERT_TRUE(m.ok());
  std::mt19937 random(1);
  const auto ids = random_ids(random, 70, 40000);
  const Logits whole = m.run(ids, 70);
  EXPECT_EQ(bits_differ(m.run(ids, 1), whole), "") << "one by one";
  EXPECT_EQ(bits_differ(m.run(ids, 23), whole), "") << "chunks of 23";
  expect_company_does_not_matter(m, 4, 40, 2);
  ModelOnBackend one(path, "cpu", with(1));
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(bits_differ(one.run(ids, 64), whole), "") << "one thread";
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
