// Every weight format on the row lengths of real models: a row's bits are those it has alone in the
// portable code, for any number of rows, slot, thread count and instruction set, with rows of inf
// and NaN beside it. Two forms (sweep.h). That the bits are the right ones is cpu_linear_test.cc's.
#include <algorithm>

#include "backend/cpu/linear.h"
#include "backend/cpu_linear_oracle.h"
#include "backend/cpu_ops_util.h"
#include "backend/sweep.h"

namespace invar::cpu {
namespace {

using test::all_formats;
using test::FormatSpec;
using test::full_sweep;
using test::OwnedMatrix;

// Hidden and intermediate sizes of SmolLM2-135M, Qwen2.5-0.5B and Gemma 3 270M.
constexpr int64_t kRealLengths[] = {576, 1536, 896, 4864, 640, 2048};
constexpr int64_t kNumOutputs = 5 * 16 + 3;  // panels for every thread and a tail
constexpr size_t kNumInputs = 23;            // different rows; each count takes some of them

class LinearSweep : public testing::TestWithParam<FormatSpec> {
 protected:
  // One of every instruction set's tile sizes, and what is left of it; blocks of 64; many blocks.
  std::vector<int> row_counts() const {
    std::vector<int> counts;
    if (!full_sweep()) return {1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 33, 64, 71};
    for (int count = 1; count <= 64; ++count) counts.push_back(count);
    counts.insert(counts.end(), {128, 512});
    return counts;
  }
  // Those that whole blocks make up; the short form takes the longest of at most 2,048.
  std::vector<int64_t> row_lengths() const {
    std::vector<int64_t> lengths;
    for (int64_t length : kRealLengths) {
      const int unit = std::max(GetParam().block(), GetParam().group_size);
      if (length % unit == 0 && length % 32 == 0) lengths.push_back(length);
    }
    if (full_sweep()) return lengths;
    std::erase_if(lengths, [](int64_t length) { return length > 2048; });
    return {*std::max_element(lengths.begin(), lengths.end())};
  }

  std::vector<float> random_inputs(int64_t length) {
    std::vector<float> inputs =
        random_floats(kNumInputs * static_cast<size_t>(length), static_cast<uint32_t>(random_()));
    for (size_t row = 0; row < kNumInputs; row += 4) {  // garbage among them
      const float garbage[] = {kInf, kNan, -kInf};
      inputs[row * static_cast<size_t>(length) + random_() % static_cast<size_t>(length)] =
          garbage[row / 4 % 3];
    }
    return inputs;
  }

  // run(pool, isa, y, x) is the operation under test.
  template <typename Run>
  void expect_rows_alone(int64_t length, const std::string& what, const Run& run) {
    std::vector<float> inputs = random_inputs(length);
    std::vector<float> expected(kNumInputs * kNumOutputs);
    Tensor all_x = tensor_of(inputs, length), all_y = tensor_of(expected, kNumOutputs);
    for (int64_t row = 0; row < static_cast<int64_t>(kNumInputs); ++row) {
      Tensor x = all_x, y = all_y;
      x.data = all_x.row(row);
      y.data = all_y.row(row);
      x.num_rows = y.num_rows = 1;
      run(*pools_[0], Isa::kPortable, y, x);
      ASSERT_EQ(std::isnan(y.at(0, 0)), row % 4 == 0) << what;
    }
    for (Isa isa : testable_isas()) {
      for (int count : row_counts()) {
        // The short form leaves the plain loops, whose code is one for all counts, to a few.
        if (!full_sweep() && isa == Isa::kPortable && count != 3 && count != 17) continue;
        for (int threads = 1; threads <= 4; ++threads) {
          if (!full_sweep() && threads != 1 + count % 4) continue;
          std::vector<float> some, got(static_cast<size_t>(count) * kNumOutputs, -1.0f);
          std::vector<int64_t> from;
          for (int i = 0; i < count; ++i) {
            from.push_back(static_cast<int64_t>(random_() % kNumInputs));
            some.insert(some.end(), all_x.row(from.back()), all_x.row(from.back()) + length);
          }
          run(*pools_[static_cast<size_t>(threads - 1)], isa, tensor_of(got, kNumOutputs),
              tensor_of(some, length));
          for (int i = 0; i < count; ++i)
            ASSERT_TRUE(same_bits(got.data() + i * kNumOutputs,
                                  all_y.row(from[static_cast<size_t>(i)]), kNumOutputs))
                << what << ", length " << length << ", " << isa_name(isa) << ", row " << i << " of "
                << count << ", " << threads << " threads";
        }
      }
    }
  }

  std::unique_ptr<PackedWeight> pack(const PackRequest& request, int activation_bits) {
    LinearOptions options;
    options.activation_bits = activation_bits;
    auto packed = pack_panels(request, *pools_[1], options);
    EXPECT_TRUE(packed.ok());
    return *std::move(packed);
  }

  std::mt19937 random_{23};
  std::unique_ptr<ThreadPool> pools_[4] = {
      std::make_unique<ThreadPool>(1), std::make_unique<ThreadPool>(2),
      std::make_unique<ThreadPool>(3), std::make_unique<ThreadPool>(4)};
};

TEST_P(LinearSweep, RowsAreAsAlone) {
  for (int64_t length : row_lengths()) {
    const OwnedMatrix matrix = random_matrix(GetParam(), kNumOutputs, length, random_);
    for (int bits : {8, 12}) {
      PackRequest request;
      request.parts = {matrix.view};
      const auto packed = pack(request, bits);
      const std::vector<float> bias = random_floats(kNumOutputs, 5);
      expect_rows_alone(length, std::to_string(bits) + " bits",
                        [&](ThreadPool& pool, Isa isa, Tensor y, Tensor x) {
                          linear(pool, isa, y, x, *packed, bias, Tensor{});
                        });
    }
  }
}

TEST_P(LinearSweep, GatedRowsAreAsAlone) {
  for (int64_t length : row_lengths()) {
    const OwnedMatrix gate = random_matrix(GetParam(), kNumOutputs, length, random_),
                      up = random_matrix(GetParam(), kNumOutputs, length, random_);
    PackRequest request;
    request.parts = {gate.view, up.view};
    request.order = PartOrder::kGateAndUp;
    const auto packed = pack(request, 8);
    expect_rows_alone(length, "gated", [&](ThreadPool& pool, Isa isa, Tensor y, Tensor x) {
      gated_linear(pool, isa, y, x, *packed, Activation::kGeluTanh);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, LinearSweep, testing::ValuesIn(all_formats()),
                         [](const auto& spec) { return spec.param.name(); });

}  // namespace
}  // namespace invar::cpu
