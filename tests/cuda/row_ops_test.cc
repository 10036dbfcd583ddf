// Norms, rope and row copies: numbers against double, bits against the row alone.
#include "backend/cuda/row_ops.h"

#include "cuda/cuda_test_util.h"

namespace invar::cuda {
namespace {

std::vector<float> random_floats(Random& random, int64_t n, double scale = 1) {
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) x = static_cast<float>(random.normal() * scale);
  return v;
}

TEST(CudaRowOps, RmsNorm) {
  Random random(31);
  for (int cols : {64, 576, 896, 5120, 5123}) {
    constexpr int kTokens = 9;
    const std::vector<float> x = random_floats(random, int64_t{kTokens} * cols, 3);
    const std::vector<float> weight = random_floats(random, cols);
    const std::vector<float> residual = random_floats(random, int64_t{kTokens} * cols);
    DeviceBuffer<float> dx(x), dw(weight), dr(residual);
    DeviceBuffer<Bf16> y(static_cast<size_t>(kTokens) * cols), one(static_cast<size_t>(cols));
    rms_norm(nullptr, dx.data(), cols, dw.data(), 1e-6f, kTokens, cols, y.data(), cols);
    rms_norm_add(nullptr, dx.data(), cols, dw.data(), 1e-6f, kTokens, cols, dr.data(), cols,
                 dr.data(), cols);
    const std::vector<Bf16> got = y.get();
    const std::vector<float> sum = dr.get();
    for (int t = 0; t < kTokens; ++t) {
      double squares = 0;
      for (int c = 0; c < cols; ++c) squares += double{x[t * cols + c]} * x[t * cols + c];
      const double scale = 1 / std::sqrt(squares / cols + 1e-6);
      for (int c = 0; c < cols; ++c) {
        const double want = x[t * cols + c] * scale * weight[c];
        ASSERT_NEAR(bf16_value(got[t * cols + c]), want, 4e-3 * std::fabs(want) + 1e-30);
        ASSERT_NEAR(sum[t * cols + c], residual[t * cols + c] + want, 2e-6 * (1 + std::fabs(want)));
      }
      rms_norm(nullptr, dx.data() + t * cols, cols, dw.data(), 1e-6f, 1, cols, one.data(), cols,
               true);
      EXPECT_EQ(count_different(one.get().data(), got.data() + t * cols, cols), 0);
    }
  }
}

TEST(CudaRowOps, HeadRmsNorm) {
  Random random(32);
  constexpr int kTokens = 5, kHeads = 3, kDim = 128, kStride = kHeads * kDim + 64;
  const std::vector<Bf16> x = random_rows(random, kTokens * kStride);
  const std::vector<float> weight = random_floats(random, kDim);
  DeviceBuffer<Bf16> dx(x);
  DeviceBuffer<float> dw(weight);
  head_rms_norm(nullptr, OutputType::kBF16, dx.data(), kStride, dw.data(), 1e-6f, kTokens, kHeads,
                kDim);
  const std::vector<Bf16> got = dx.get();
  for (int t = 0; t < kTokens; ++t) {
    for (int h = 0; h < kHeads; ++h) {
      const size_t at = static_cast<size_t>(t * kStride + h * kDim);
      double squares = 0;
      for (int i = 0; i < kDim; ++i) squares += std::pow(double{bf16_value(x[at + i])}, 2);
      const double scale = 1 / std::sqrt(squares / kDim + 1e-6);
      for (int i = 0; i < kDim; ++i) {
        const double want = bf16_value(x[at + i]) * scale * weight[i];
        ASSERT_NEAR(bf16_value(got[at + i]), want, 4e-3 * std::fabs(want) + 1e-30);
      }
    }
    for (int i = kHeads * kDim; i < kStride; ++i)  // what lies beside is left alone
      ASSERT_EQ(got[t * kStride + i], x[t * kStride + i]);
  }
}

TEST(CudaRowOps, Rope) {
  Random random(33);
  constexpr int kTokens = 4, kHeads = 3, kDim = 64;
  for (int freqs : {32, 16}) {
    std::vector<double> inv_freq(static_cast<size_t>(freqs));
    for (int i = 0; i < freqs; ++i) inv_freq[i] = std::pow(10000.0, -double(i) / freqs);
    const std::vector<int32_t> positions = {0, 1, 4097, 131071};
    const std::vector<Bf16> x = random_rows(random, kTokens * kHeads * kDim);
    DeviceBuffer<Bf16> dx(x);
    DeviceBuffer<double> df(inv_freq);
    DeviceBuffer<int32_t> dp(positions);
    rope(nullptr, OutputType::kBF16, dx.data(), kHeads * kDim, dp.data(), df.data(), freqs, 1.0f,
         kTokens, kHeads, kDim);
    const std::vector<Bf16> got = dx.get();
    for (int t = 0; t < kTokens; ++t)
      for (int h = 0; h < kHeads; ++h)
        for (int i = 0; i < kDim; ++i) {
          const size_t at = static_cast<size_t>((t * kHeads + h) * kDim);
          double want = bf16_value(x[at + i]);
          if (i < 2 * freqs) {
            const double angle = positions[t] * inv_freq[i % freqs];
            const double a = bf16_value(x[at + i % freqs]),
                         b = bf16_value(x[at + i % freqs + freqs]);
            want = i < freqs ? a * std::cos(angle) - b * std::sin(angle)
                             : b * std::cos(angle) + a * std::sin(angle);
          }
          ASSERT_NEAR(bf16_value(got[at + i]), want, 4e-3 * std::fabs(want) + 1e-6);
        }
  }
}

// The table holds the very numbers that rope() multiplies by: a head of ones and zeros shows them.
TEST(CudaRowOps, RopeTableIsWhatRopeUses) {
  constexpr int kTokens = 5, kFreqs = 64;
  std::vector<double> inv_freq(kFreqs);
  for (int i = 0; i < kFreqs; ++i) inv_freq[i] = std::pow(1e6, -double(i) / kFreqs);
  const std::vector<int32_t> positions = {0, 1, 511, 32767, 131071};
  std::vector<float> x(kTokens * 2 * kFreqs, 0.f);
  for (int t = 0; t < kTokens; ++t)
    for (int i = 0; i < kFreqs; ++i) x[t * 2 * kFreqs + i] = 1.f;
  DeviceBuffer<float> dx(x);
  DeviceBuffer<float2> table(kTokens * kFreqs);
  DeviceBuffer<double> df(inv_freq);
  DeviceBuffer<int32_t> dp(positions);
  rope(nullptr, OutputType::kF32, dx.data(), 2 * kFreqs, dp.data(), df.data(), kFreqs, 1.25f,
       kTokens, 1, 2 * kFreqs);
  rope_table(nullptr, dp.data(), df.data(), kFreqs, 1.25f, kTokens, table.data());
  const std::vector<float> got = dx.get();
  const std::vector<float2> want = table.get();
  for (int t = 0; t < kTokens; ++t)
    for (int i = 0; i < kFreqs; ++i) {
      ASSERT_EQ(got[t * 2 * kFreqs + i], want[t * kFreqs + i].x);
      ASSERT_EQ(got[t * 2 * kFreqs + kFreqs + i], want[t * kFreqs + i].y);
    }
}

TEST(CudaRowOps, GatherRows) {
  Random random(34);
  const std::vector<Bf16> x = random_rows(random, 10 * 64);
  DeviceBuffer<Bf16> dx(x), y(3 * 64);
  const std::vector<int32_t> rows = {9, 0, 4};
  DeviceBuffer<int32_t> dr(rows);
  gather_rows(nullptr, dx.data(), 128, dr.data(), 3, 128, y.data(), 128);
  const std::vector<Bf16> got = y.get();
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(count_different(got.data() + i * 64, x.data() + rows[i] * 64, 64), 0);
}

// The first of the largest, whatever the ties, zeros and banned ids; a row with a number that is
// not finite says so.
TEST(CudaRowOps, FindsBestIds) {
  constexpr int kRows = 40, kCols = 9001, kNumIds = 8990;
  Random random(91);
  std::vector<float> logits(size_t{kRows} * kCols);
  std::vector<uint32_t> banned((kCols + 31) / 32, 0);
  for (int i = 0; i < 500; ++i) {
    const int id = random.below(kNumIds);
    banned[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
  }
  for (int row = 0; row < kRows; ++row)
    for (int col = 0; col < kCols; ++col) {
      float& x = logits[static_cast<size_t>(row) * kCols + static_cast<size_t>(col)];
      // Few values, so that the largest comes often; some rows of zeros of both signs.
      x = row % 4 == 3 ? (random.below(2) ? 0.f : -0.f)
                       : static_cast<float>(random.below(row % 4 == 0 ? 30000 : 40)) - 100.f;
    }
  logits[size_t{5} * kCols + 77] = std::nanf("");
  logits[size_t{6} * kCols + kCols - 1] = INFINITY;  // beyond the ids
  const DeviceBuffer<float> device_logits(logits);
  const DeviceBuffer<uint32_t> device_banned(banned);
  for (const bool bans : {false, true}) {
    DeviceBuffer<unsigned long long> best(std::vector<unsigned long long>(kRows, 0));
    best_ids(nullptr, device_logits.data(), kCols, kRows, kCols, kNumIds,
             bans ? device_banned.data() : nullptr, best.data());
    const std::vector<unsigned long long> got = best.get();
    for (int row = 0; row < kRows; ++row) {
      int32_t want = -1;
      const float* values = logits.data() + static_cast<size_t>(row) * kCols;
      for (int32_t id = 0; id < kNumIds; ++id) {
        if (bans && (banned[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0) continue;
        if (want < 0 || values[id] > values[want]) want = id;
      }
      if (row == 5 || row == 6) {
        EXPECT_EQ(got[static_cast<size_t>(row)], kNotFinite) << row;
        want = -1;
      }
      EXPECT_EQ(decode_best(got[static_cast<size_t>(row)]), want) << row;
    }
  }
}

}  // namespace
}  // namespace invar::cuda
