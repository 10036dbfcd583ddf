// The cpu backend's linear kernels: bits equal to the arithmetic computed from the file's blocks,
// on every instruction set of this machine, for any number of rows, slot, neighbours and thread
// count; and close to exact matrix products.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "backend/cpu/linear.h"
#include "backend/cpu/row_ops.h"
#include "backend/cpu_linear_oracle.h"

namespace invar::cpu {
namespace {

using test::all_formats;
using test::FormatSpec;
using test::OwnedMatrix;
using test::random_matrix;

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<Isa> isas() {
  std::vector<Isa> list;
  for (Isa isa : all_isas())
    if (isa_available(isa)) list.push_back(isa);
  return list;
}

// Rows of floats with a row stride that is no multiple of anything.
struct Rows {
  Rows(int64_t num_rows, int64_t num_cols)
      : values(static_cast<size_t>(num_rows * (num_cols + 3)), -1.f),
        tensor{values.data(), DType::kF32, num_rows, num_cols, num_cols + 3} {}
  std::vector<float> values;
  Tensor tensor;
};

Rows random_rows(int64_t num_rows, int64_t num_cols, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Rows rows(num_rows, num_cols);
  for (float& v : rows.values) v = normal(random) * (random() % 100 == 0 ? 20.f : 1.f);
  return rows;
}

std::unique_ptr<PackedWeight> pack(const PackRequest& request, int activation_bits = 8) {
  ThreadPool pool(2);
  LinearOptions options;
  options.activation_bits = activation_bits;
  auto packed = pack_panels(request, pool, options);
  EXPECT_TRUE(packed.ok());
  return *std::move(packed);
}

std::unique_ptr<PackedWeight> pack(const OwnedMatrix& matrix, int activation_bits = 8) {
  PackRequest request;
  request.parts = {matrix.view};
  return pack(request, activation_bits);
}

bool same_bits(const float* a, const float* b, int64_t count) {
  return std::memcmp(a, b, static_cast<size_t>(count) * sizeof(float)) == 0;
}

// A tuning as wild as a file could hold: from 1 row on, never, and between.
KernelCrossover random_crossover(bool gated, const PackedWeight& w, std::mt19937& random) {
  return {gated, w.num_rows, w.num_cols, static_cast<int>(1 + random() % 70)};
}

class LinearFormat : public testing::TestWithParam<FormatSpec> {
 protected:
  // Row lengths: one block, an odd number of groups, several steps.
  std::vector<int64_t> row_lengths() const {
    const int block = GetParam().block();
    if (block == 1) return {1, 48, 80, 577};
    return {block, block * ((block + 575) / block), 3 * block};
  }
  std::mt19937 random_{7};
};

TEST_P(LinearFormat, EmbedGivesTheFilesValues) {
  for (int64_t num_cols : row_lengths()) {
    const OwnedMatrix m = random_matrix(GetParam(), 37, num_cols, random_);
    const auto packed = pack(m);
    EXPECT_EQ(packed->num_rows, 37);
    EXPECT_EQ(packed->num_cols, num_cols);
    ThreadPool pool(2);
    const std::vector<int32_t> ids = {36, 0, 1, 15, 16, 36, 31, 5, 17, 2, 32};
    for (float scale : {1.f, 1.7f}) {
      Rows y(static_cast<int64_t>(ids.size()), num_cols);
      embed(pool, isas().back(), y.tensor, ids, *packed, scale);
      std::vector<float> expected(static_cast<size_t>(num_cols));
      for (size_t t = 0; t < ids.size(); ++t) {
        dequantize_row(m.view, ids[t], expected.data());
        for (int64_t k = 0; k < num_cols; ++k) {
          const float want = expected[static_cast<size_t>(k)] * scale;
          const float got = y.tensor.at(static_cast<int64_t>(t), k);
          // MXFP4 has a negative zero; its panels hold one zero.
          if (want == 0 && GetParam().format == WeightFormat::kMXFP4 && got == 0) continue;
          ASSERT_TRUE(same_bits(&want, &got, 1))
              << "row " << ids[t] << " k " << k << ": " << got << ", expected " << want;
        }
      }
    }
  }
}

TEST_P(LinearFormat, EqualsTheArithmeticFromTheBlocks) {
  ThreadPool pool(1);
  for (int bits : {8, 12})
    for (int64_t num_cols : row_lengths()) {
      const OwnedMatrix m = random_matrix(GetParam(), 21, num_cols, random_);
      const auto packed = pack(m, bits);
      Rows x = random_rows(3, num_cols, random_);
      for (int64_t k = 0; k < num_cols; ++k) {  // every q at its limit; a group too small, one zero
        x.tensor.at(1, k) = (random_() & 1) != 0 ? 3.f : -3.f;
        if (k < 64) x.tensor.at(2, k) = k < 32 ? 1e-40f : 0.f;
      }
      for (Isa isa : isas()) {
        Rows y(3, 21);
        linear(pool, isa, y.tensor, x.tensor, *packed, {}, Tensor{});
        for (int64_t r = 0; r < 3; ++r)
          for (int64_t n = 0; n < 21; ++n) {
            const float want = test::linear_oracle(m.view, n, x.tensor.row(r), bits);
            ASSERT_TRUE(same_bits(&want, &y.tensor.at(r, n), 1))
                << isa_name(isa) << " bits " << bits << " K " << num_cols << " row " << r
                << " output " << n << ": " << y.tensor.at(r, n) << ", expected " << want;
          }
      }
    }
}

TEST_P(LinearFormat, RowsDoNotFeelEachOther) {
  const int block = GetParam().block();
  const int64_t num_cols = block == 1 ? 80 : block * ((block + 319) / block);
  constexpr int64_t kNumRows = 37, kPool = 61;
  const OwnedMatrix m = random_matrix(GetParam(), kNumRows, num_cols, random_);
  Rows inputs = random_rows(kPool, num_cols, random_);
  for (int64_t r = 0; r < kPool; r += 5)  // garbage among them
    inputs.tensor.at(r, (r * 31) % num_cols) = r % 3 == 0   ? kInf
                                               : r % 3 == 1 ? -kInf
                                                            : std::nanf("");
  ThreadPool one(1), two(2), three(3);
  for (int bits : {8, 12}) {
    const auto packed = pack(m, bits);
    Rows expected(kPool, kNumRows);
    for (int64_t r = 0; r < kPool; ++r) {
      Tensor y = expected.tensor, x = inputs.tensor;
      y.data = y.row(r);
      x.data = x.row(r);
      y.num_rows = x.num_rows = 1;
      linear(one, Isa::kPortable, y, x, *packed, {}, Tensor{});
      ASSERT_EQ(std::isnan(y.at(0, 0)), r % 5 == 0);
    }
    for (Isa isa : isas()) {
      std::vector<int64_t> counts;
      for (int64_t i = 1; i <= 64; ++i) counts.push_back(i);
      counts.insert(counts.end(), {128, 512});
      for (int64_t count : counts) {
        // The plain loops are the same code for every count; a few of them do.
        if (isa == Isa::kPortable && count > 9 && count != 64) continue;
        Rows x(count, num_cols), y(count, kNumRows);
        std::vector<int64_t> from(static_cast<size_t>(count));
        for (int64_t r = 0; r < count; ++r) {
          from[static_cast<size_t>(r)] = random_() % kPool;
          std::memcpy(x.tensor.row(r), inputs.tensor.row(from[static_cast<size_t>(r)]),
                      static_cast<size_t>(num_cols) * sizeof(float));
        }
        ThreadPool& pool = count % 3 == 0 ? one : count % 3 == 1 ? two : three;
        const KernelCrossover tuned = random_crossover(false, *packed, random_);
        linear(pool, isa, y.tensor, x.tensor, *packed, {}, Tensor{}, {&tuned, count % 4 > 0});
        for (int64_t r = 0; r < count; ++r)
          ASSERT_TRUE(same_bits(y.tensor.row(r), expected.tensor.row(from[static_cast<size_t>(r)]),
                                kNumRows))
              << isa_name(isa) << " bits " << bits << ", row " << r << " of " << count
              << ", unpacked from " << tuned.min_rows;
      }
    }
  }
}

TEST_P(LinearFormat, IsCloseToTheExactProduct) {
  ThreadPool pool(1);
  const int block = GetParam().block();
  const int64_t num_cols = block == 1 ? 576 : block * ((block + 895) / block), num_rows = 64;
  const OwnedMatrix m = random_matrix(GetParam(), num_rows, num_cols, random_);
  std::normal_distribution<float> normal;
  Rows x(4, num_cols);
  for (float& v : x.values) v = normal(random_);
  for (int bits : {8, 12}) {
    const auto packed = pack(m, bits);
    Rows y(4, num_rows);
    linear(pool, isas().back(), y.tensor, x.tensor, *packed, {}, Tensor{});
    double error = 0, size = 0;
    std::vector<float> w(static_cast<size_t>(num_cols));
    for (int64_t n = 0; n < num_rows; ++n) {
      dequantize_row(m.view, n, w.data());
      for (int64_t r = 0; r < 4; ++r) {
        double exact = 0;
        for (int64_t k = 0; k < num_cols; ++k)
          exact += double{w[static_cast<size_t>(k)]} * double{x.tensor.at(r, k)};
        error += (y.tensor.at(r, n) - exact) * (y.tensor.at(r, n) - exact);
        size += exact * exact;
      }
    }
    EXPECT_LT(std::sqrt(error / size), bits == 8 ? 0.012 : 0.0005) << bits << " bits";
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, LinearFormat, testing::ValuesIn(all_formats()),
                         [](const auto& spec) { return spec.param.name(); });

// ---- What stands around the kernels
// ----------------------------------------------------------------

class CpuLinear : public testing::Test {
 protected:
  OwnedMatrix matrix(WeightFormat format, int64_t num_rows, int64_t num_cols) {
    return random_matrix({format}, num_rows, num_cols, random_);
  }
  std::mt19937 random_{11};
  ThreadPool pool_{2};
};

TEST_F(CpuLinear, MixedPartsAreOneMatrixWithBiasAndResidual) {
  // q, k, v as a real file stores them, with row counts that fill no panel.
  const OwnedMatrix q = matrix(WeightFormat::kQ5_0, 40, 96), k = matrix(WeightFormat::kF16, 24, 96),
                    v = matrix(WeightFormat::kQ8_0, 5, 96);
  PackRequest request;
  request.parts = {q.view, k.view, v.view};
  const auto packed = pack(request);
  ASSERT_EQ(packed->num_rows, 69);
  const Rows x = random_rows(11, 96, random_), residual = random_rows(11, 69, random_);
  const Rows bias = random_rows(1, 69, random_);
  for (Isa isa : isas()) {
    Rows plain(11, 69), y = residual;
    y.tensor.data = y.values.data();
    linear(pool_, isa, plain.tensor, x.tensor, *packed, {}, Tensor{});
    linear(pool_, isa, y.tensor, x.tensor, *packed, std::span(bias.values).first(69), y.tensor);
    for (int64_t r = 0; r < 11; ++r)
      for (int64_t n = 0; n < 69; ++n) {
        const MatrixView& part = n < 40 ? q.view : n < 64 ? k.view : v.view;
        const int64_t row = n < 40 ? n : n < 64 ? n - 40 : n - 64;
        const float product = test::linear_oracle(part, row, x.tensor.row(r), 8);
        ASSERT_EQ(plain.tensor.at(r, n), product) << isa_name(isa) << " " << r << " " << n;
        const float with_bias = product + bias.values[static_cast<size_t>(n)];
        ASSERT_EQ(y.tensor.at(r, n), with_bias + residual.tensor.at(r, n));
      }
  }
}

TEST_F(CpuLinear, GateAndUp) {
  for (Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
    const OwnedMatrix gate = matrix(WeightFormat::kQ4_1, 37, 96),
                      up = matrix(WeightFormat::kQ8_0, 37, 96);
    PackRequest request;
    request.parts = {gate.view, up.view};
    request.order = PartOrder::kGateAndUp;
    const auto packed = pack(request);
    ASSERT_EQ(packed->num_rows, 37);
    Rows x = random_rows(19, 96, random_);
    x.tensor.at(4, 5) = kInf;
    Rows first(19, 37);
    for (Isa isa : isas()) {
      Rows y(19, 37);
      gated_linear(pool_, isa, y.tensor, x.tensor, *packed, activation);
      const KernelCrossover tuned = random_crossover(true, *packed, random_);
      Rows other(19, 37);
      gated_linear(pool_, isa, other.tensor, x.tensor, *packed, activation, {&tuned, 1});
      ASSERT_TRUE(same_bits(other.values.data(), y.values.data(), 19 * 40))
          << isa_name(isa) << ", unpacked from " << tuned.min_rows;
      if (isa == Isa::kPortable) first.values = y.values;
      for (int64_t r = 0; r < 19; ++r) {
        ASSERT_TRUE(same_bits(y.tensor.row(r), first.values.data() + r * 40, 37)) << isa_name(isa);
        for (int64_t n = 0; n < 37; ++n) {
          if (r == 4) {
            ASSERT_TRUE(std::isnan(y.tensor.at(r, n)));
            continue;
          }
          const double g = test::linear_oracle(gate.view, n, x.tensor.row(r), 8);
          const double u = test::linear_oracle(up.view, n, x.tensor.row(r), 8);
          const double act =
              activation == Activation::kSilu
                  ? g / (1 + std::exp(-g))
                  : 0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
          ASSERT_NEAR(y.tensor.at(r, n), act * u,
                      1e-5 * std::fabs(act * u) + 1e-6 * std::fabs(g * u));
        }
      }
    }
  }
}

TEST_F(CpuLinear, HeadTakesTwelveBitsAndASoftcap) {
  const OwnedMatrix m = matrix(WeightFormat::kQ8_0, 4097 + 20, 64);
  PackRequest request;
  request.parts = {m.view};
  request.role = MatrixRole::kHead;
  const auto packed = pack(request);
  const Rows x = random_rows(2, 64, random_);
  for (Isa isa : isas()) {
    Rows y(2, 4117), capped(2, 4117);
    lm_head(pool_, isa, y.tensor, x.tensor, *packed, 0.f);
    lm_head(pool_, isa, capped.tensor, x.tensor, *packed, 30.f);
    for (int64_t r = 0; r < 2; ++r)
      for (int64_t n = 0; n < 4117; n += 13) {
        const float want = test::linear_oracle(m.view, n, x.tensor.row(r), 12);
        ASSERT_EQ(y.tensor.at(r, n), want);
        ASSERT_NEAR(capped.tensor.at(r, n), 30 * std::tanh(want / 30), 1e-5);
      }
  }
}

TEST_F(CpuLinear, InterleavedHeadsComeOutInOrder) {
  OwnedMatrix m = matrix(WeightFormat::kQ4_0, 32, 64);
  m.view.interleaved_head_dim = 16;
  const auto packed = pack(m);
  const Rows x = random_rows(1, 64, random_);
  Rows y(1, 32);
  linear(pool_, Isa::kPortable, y.tensor, x.tensor, *packed, {}, Tensor{});
  MatrixView stored = m.view;
  stored.interleaved_head_dim = 0;
  for (int64_t head = 0; head < 2; ++head)
    for (int64_t s = 0; s < 2; ++s)
      for (int64_t j = 0; j < 8; ++j)
        ASSERT_EQ(y.tensor.at(0, head * 16 + s * 8 + j),
                  test::linear_oracle(stored, head * 16 + 2 * j + s, x.tensor.row(0), 8));
}

TEST_F(CpuLinear, NoRows) {
  const auto packed = pack(matrix(WeightFormat::kQ4_0, 16, 64));
  Rows x(0, 64), y(0, 16);
  linear(pool_, isas().back(), y.tensor, x.tensor, *packed, {}, Tensor{});
}

TEST_F(CpuLinear, BadRequestsAreNamed) {
  LinearOptions options;
  OwnedMatrix a = matrix(WeightFormat::kQ4_0, 16, 64), b = matrix(WeightFormat::kQ4_0, 32, 64),
              c = matrix(WeightFormat::kQ4_0, 16, 96);
  PackRequest request;
  EXPECT_FALSE(pack_panels(request, pool_, options).ok());
  request.parts = {a.view, c.view};
  EXPECT_FALSE(pack_panels(request, pool_, options).ok());
  request.parts = {a.view, b.view};
  request.order = PartOrder::kGateAndUp;
  EXPECT_FALSE(pack_panels(request, pool_, options).ok());
  request.order = PartOrder::kStacked;
  EXPECT_TRUE(pack_panels(request, pool_, options).ok());
  OwnedMatrix mlx = random_matrix({WeightFormat::kMlxAffine, 7, 64, DType::kF16}, 16, 64, random_);
  request.parts = {mlx.view};
  const auto result = pack_panels(request, pool_, options);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kUnsupported);
}

TEST_F(CpuLinear, SaysWhichSetsRan) {
  for (Isa isa : all_isas())
    if (!isa_available(isa)) printf("%s kernels did not run: not on this CPU\n", isa_name(isa));
}

}  // namespace
}  // namespace invar::cpu
