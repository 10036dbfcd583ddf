// Linear kernels on a device. Exactness: a token's bits are those it has alone, whatever the number
// of tokens, its slot, its neighbours, the kernel and the schedule. Correctness: against sums in
// double over the same bf16 weights.
#include "backend/cuda/linear.h"

#include "backend/cuda/row_ops.h"
#include "cuda/cuda_test_util.h"

namespace invar::cuda {
namespace {

using Path = LinearSchedule::Path;

const WeightFormat kNative[] = {WeightFormat::kMlxAffine, WeightFormat::kQ4_0, WeightFormat::kQ4_1,
                                WeightFormat::kQ8_0,      WeightFormat::kQ4_K, WeightFormat::kQ6_K,
                                WeightFormat::kBF16};

// Runs x rows (given in their slots) through a matrix; fp32 [tokens, num_rows].
std::vector<float> run(const PackedMatrix& w, const std::vector<Bf16>& x, int tokens,
                       const LinearSchedule& schedule = {}, Epilogue epilogue = {}) {
  DeviceBuffer<Bf16> dx(x);
  DeviceBuffer<float> y(static_cast<size_t>(tokens) * w.num_rows);
  LinearArgs args;
  args.w = w;
  args.x = dx.data();
  args.x_stride = w.num_cols;
  args.num_tokens = tokens;
  args.epilogue = epilogue;
  args.epilogue.y = y.data();
  args.epilogue.y_stride = w.num_rows;
  linear(nullptr, args, schedule);
  CUDA_CHECK(cudaDeviceSynchronize());
  return y.get();
}

// Row i of `x` alone, for every i.
std::vector<float> run_alone(const PackedMatrix& w, const std::vector<Bf16>& x) {
  std::vector<float> y;
  for (size_t at = 0; at < x.size(); at += static_cast<size_t>(w.num_cols)) {
    const std::vector<Bf16> row(x.begin() + at, x.begin() + at + w.num_cols);
    const std::vector<float> one = run(w, row, 1);
    y.insert(y.end(), one.begin(), one.end());
  }
  return y;
}

TEST(CudaLinear, DeviceDecodesEveryWeight) {
  for (WeightFormat format : kNative) {
    const TestMatrix m = random_matrix(format, 50, 512, 11);
    const DeviceMatrix w(packed_or_die({m.view}));
    DeviceBuffer<Bf16> out(static_cast<size_t>(w.matrix.num_strips) * 16 * 512);
    unpack(nullptr, w.matrix, out.data());
    const std::vector<Bf16> got = out.get(), want = weights_of(m.view);
    int64_t different = 0;
    for (size_t i = 0; i < want.size(); ++i) different += !same_weight(got[i], want[i]);
    EXPECT_EQ(different, 0) << format_name(format);
    for (size_t i = want.size(); i < got.size(); ++i) ASSERT_TRUE(same_weight(got[i], 0));
  }
}

struct Shape {
  int rows, cols;
  bool head;
  int slices;
};
const Shape kShapes[] = {{200, 256, false, 1},  {328, 1024, false, 4}, {257, 2048, false, 8},
                         {8300, 576, false, 2}, {2048, 1024, true, 1}, {640, 4864, false, 8}};

bool fits(WeightFormat format, const Shape& shape) {  // 256-wide blocks need such widths
  return shape.cols % 256 == 0 || (format != WeightFormat::kQ4_K && format != WeightFormat::kQ6_K);
}

TEST(CudaLinear, AgreesWithDoubleSums) {
  for (WeightFormat format : kNative)
    for (const Shape& shape : kShapes) {
      if (!fits(format, shape)) continue;
      const TestMatrix m = random_matrix(format, shape.rows, shape.cols, 12);
      const DeviceMatrix w(packed_or_die({m.view}, {.head = shape.head}));
      ASSERT_EQ(w.matrix.num_slices, shape.slices);
      Random random(13);
      const std::vector<Bf16> x = random_rows(random, int64_t{3} * shape.cols);
      const std::vector<float> y = run(w.matrix, x, 3);
      std::vector<Bf16> row(static_cast<size_t>(shape.cols));
      double error = 0, total = 0;
      for (int r = 0; r < shape.rows; r += 7) {
        weight_row_bf16(m.view, r, row.data());
        for (int t = 0; t < 3; ++t) {
          double sum = 0;
          for (int c = 0; c < shape.cols; ++c)
            sum += double{bf16_value(row[static_cast<size_t>(c)])} *
                   bf16_value(x[static_cast<size_t>(t * shape.cols + c)]);
          const double e = y[static_cast<size_t>(t) * shape.rows + r] - sum;
          error += e * e;
          total += sum * sum;
        }
      }
      EXPECT_LT(std::sqrt(error / total), 1e-5)
          << format_name(format) << " " << shape.rows << "x" << shape.cols;
    }
}

// Neighbour rows of NaN and infinity, random tokens, slots and schedules.
TEST(CudaLinear, RowsKeepTheirBits) {
  Random random(14);
  constexpr int kSources = 12;
  for (WeightFormat format : kNative)
    for (const Shape& shape : kShapes) {
      if (!fits(format, shape)) continue;
      const TestMatrix m = random_matrix(format, shape.rows, shape.cols, 15);
      const DeviceMatrix w(packed_or_die({m.view}, {.head = shape.head}));
      const std::vector<Bf16> source = random_rows(random, int64_t{kSources} * shape.cols);
      const std::vector<float> alone = run_alone(w.matrix, source);
      for (int trial = 0; trial < 24; ++trial) {
        LinearSchedule s;
        int tokens;
        if (trial % 2 == 0) {
          s.path = Path::kDecode;
          tokens = 1 + random.below(random.below(2) ? 8 : trial % 3 == 0 ? 80 : 32);
          s.stage_blocks = random.below(3);
          s.max_warps = random.below(2) ? 0 : 8 << random.below(2);
          s.num_stages = random.below(2) ? 0 : 1 + random.below(4);
        } else {
          s.path = Path::kPrefill;
          tokens = 1 + random.below(trial % 4 == 1 ? 64 : 300);
          s.prefill_tokens = random.below(2) ? 64 : 128;
          s.num_stages = random.below(2) ? 0 : 2 + random.below(3);
        }
        s.max_ctas = random.below(2) ? 0 : 1 + random.below(132);
        s.dependent = random.below(2);
        s.trigger_late = random.below(2);
        std::vector<Bf16> x(static_cast<size_t>(tokens) * shape.cols);
        std::vector<int> from(static_cast<size_t>(tokens));
        for (int t = 0; t < tokens; ++t) {
          const int choice = random.below(kSources + 3);
          from[static_cast<size_t>(t)] = choice < kSources ? choice : -1;
          for (int c = 0; c < shape.cols; ++c)
            x[static_cast<size_t>(t) * shape.cols + c] =
                choice < kSources    ? source[static_cast<size_t>(choice) * shape.cols + c]
                : choice == kSources ? Bf16{0x7fc0}
                                     : Bf16{0x7f80};
        }
        const std::vector<float> y = run(w.matrix, x, tokens, s);
        for (int t = 0; t < tokens; ++t) {
          if (from[static_cast<size_t>(t)] < 0) continue;
          ASSERT_EQ(
              count_different(y.data() + int64_t{t} * shape.rows,
                              alone.data() + int64_t{from[static_cast<size_t>(t)]} * shape.rows,
                              shape.rows),
              0)
              << format_name(format) << " " << shape.rows << "x" << shape.cols << " tokens "
              << tokens << " slot " << t << (trial % 2 ? " prefill" : " decode");
        }
      }
    }
}

TEST(CudaLinear, StorageDoesNotEnterTheValue) {
  for (WeightFormat format : kNative) {
    const TestMatrix m = random_matrix(format, 300, 1024, 16);
    const DeviceMatrix native(packed_or_die({m.view}));
    const DeviceMatrix plain(packed_or_die({m.view}, {.force_bf16 = true}));
    Random random(17);
    const std::vector<Bf16> x = random_rows(random, 5 * 1024);
    const std::vector<float> a = run(native.matrix, x, 5), b = run(plain.matrix, x, 5);
    EXPECT_EQ(count_different(a.data(), b.data(), static_cast<int64_t>(a.size())), 0)
        << format_name(format);
    const std::vector<float> c = run(plain.matrix, x, 5, {.path = Path::kPrefill});
    EXPECT_EQ(count_different(a.data(), c.data(), static_cast<int64_t>(a.size())), 0)
        << format_name(format);
  }
}

double silu_double(double x) { return x / (1 + std::exp(-x)); }
double gelu_double(double x) {
  return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

TEST(CudaLinear, Epilogues) {
  constexpr int kRows = 328, kCols = 1024, kTokens = 20;
  const TestMatrix gate = random_matrix(WeightFormat::kQ4_K, kRows, kCols, 18);
  const TestMatrix up = random_matrix(WeightFormat::kQ4_K, kRows, kCols, 19);
  const DeviceMatrix g(packed_or_die({gate.view})), u(packed_or_die({up.view}));
  Random random(20);
  const std::vector<Bf16> x = random_rows(random, kTokens * kCols, 0.5);
  const std::vector<float> yg = run(g.matrix, x, kTokens), yu = run(u.matrix, x, kTokens);

  std::vector<float> bias(kRows), residual(kTokens * kRows);
  for (float& v : bias) v = static_cast<float>(random.normal());
  for (float& v : residual) v = static_cast<float>(random.normal());
  DeviceBuffer<float> db(bias), dr(residual);
  for (Path path : {Path::kDecode, Path::kPrefill}) {
    const int tokens = path == Path::kDecode ? 13 : kTokens;
    const std::vector<Bf16> some(x.begin(), x.begin() + tokens * kCols);
    Epilogue e;
    e.bias = db.data();
    e.residual = dr.data();
    e.residual_stride = kRows;
    const std::vector<float> y = run(g.matrix, some, tokens, {.path = path}, e);
    for (int i = 0; i < tokens * kRows; ++i)
      ASSERT_EQ(y[i], (yg[i] + bias[i % kRows]) + residual[i]) << i;

    Epilogue cap;
    cap.softcap = 3;
    const std::vector<float> z = run(g.matrix, some, tokens, {.path = path}, cap);
    for (int i = 0; i < tokens * kRows; ++i)
      ASSERT_NEAR(z[i], 3 * std::tanh(double{yg[i]} / 3), 2e-6) << i;

    for (GateActivation activation : {GateActivation::kSilu, GateActivation::kGeluTanh}) {
      // Gate and up have eight rows each in a strip, so the slices may differ from theirs alone:
      // compare as numbers.
      const DeviceMatrix both(packed_or_die({gate.view, up.view}, {.gated = true}));
      Epilogue act;
      act.activation = activation;
      const std::vector<float> w = run(both.matrix, some, tokens, {.path = path}, act);
      for (int i = 0; i < tokens * kRows; ++i) {
        const double a =
            activation == GateActivation::kSilu ? silu_double(yg[i]) : gelu_double(yg[i]);
        ASSERT_NEAR(w[i], a * yu[i], 1e-5 * (1 + std::fabs(a * yu[i]))) << i;
      }
    }
  }
}

TEST(CudaLinear, GatedPathsAgreeAndBf16OutputIsRounded) {
  const TestMatrix gate = random_matrix(WeightFormat::kMlxAffine, 1000, 2048, 21);
  const TestMatrix up = random_matrix(WeightFormat::kMlxAffine, 1000, 2048, 22);
  const DeviceMatrix w(packed_or_die({gate.view, up.view}, {.gated = true}));
  Random random(23);
  const std::vector<Bf16> x = random_rows(random, 16 * 2048);
  const std::vector<float> a = run(w.matrix, x, 16, {.path = Path::kDecode});
  const std::vector<float> b = run(w.matrix, x, 16, {.path = Path::kPrefill});
  EXPECT_EQ(count_different(a.data(), b.data(), 16000), 0);

  DeviceBuffer<Bf16> dx(x), y(16 * 1000);
  LinearArgs args = {w.matrix, dx.data(), 2048, 16, {}};
  args.epilogue.y = y.data();
  args.epilogue.y_stride = 1000;
  args.epilogue.y_type = OutputType::kBF16;
  linear(nullptr, args);
  const std::vector<Bf16> c = y.get();
  for (size_t i = 0; i < c.size(); ++i) ASSERT_EQ(c[i], bf16_rn(a[i]));
}

TEST(CudaLinear, StridedRowsOfX) {
  const TestMatrix m = random_matrix(WeightFormat::kQ8_0, 100, 256, 24);
  const DeviceMatrix w(packed_or_die({m.view}));
  Random random(25);
  const std::vector<Bf16> x = random_rows(random, 20 * 264);
  std::vector<Bf16> packed;
  for (int t = 0; t < 20; ++t)
    packed.insert(packed.end(), x.begin() + t * 264, x.begin() + t * 264 + 256);
  const std::vector<float> want = run(w.matrix, packed, 20, {.path = Path::kPrefill});
  for (Path path : {Path::kDecode, Path::kPrefill}) {
    DeviceBuffer<Bf16> dx(x);
    DeviceBuffer<float> y(20 * 100);
    LinearArgs args = {w.matrix, dx.data(), 264, path == Path::kDecode ? 11 : 20, {}};
    args.epilogue.y = y.data();
    args.epilogue.y_stride = 100;
    linear(nullptr, args, {.path = path});
    EXPECT_EQ(count_different(y.get().data(), want.data(), args.num_tokens * 100), 0);
  }
}

// The norm in front of the product gives what rms_norm() and then the product give, to the bit.
TEST(CudaLinear, NormInsideKeepsBits) {
  Random random(27);
  const Shape shapes[] = {{200, 256, false, 1},
                          {640, 4864, false, 8},
                          {4608, 3584, false, 8},
                          {8300, 8192, false, 2},
                          {300, 576, true, 1}};
  for (WeightFormat format : {WeightFormat::kMlxAffine, WeightFormat::kQ8_0, WeightFormat::kBF16})
    for (const Shape& shape : shapes) {
      const TestMatrix m = random_matrix(format, shape.rows, shape.cols, 28);
      const DeviceMatrix w(packed_or_die({m.view}, {.head = shape.head}));
      std::vector<float> h(static_cast<size_t>(shape.cols)), weight(h.size());
      for (float& v : h) v = static_cast<float>(random.normal() * 3);
      for (float& v : weight) v = static_cast<float>(1 + 0.3 * random.normal());
      DeviceBuffer<float> dh(h), dw(weight), y(static_cast<size_t>(shape.rows));
      DeviceBuffer<Bf16> normal(h.size());
      rms_norm(nullptr, dh.data(), shape.cols, dw.data(), 1e-6f, 1, shape.cols, normal.data(),
               shape.cols);
      const std::vector<float> want = run(w.matrix, normal.get(), 1);
      for (int trial = 0; trial < 6; ++trial) {
        LinearArgs args = {w.matrix, dh.data(), shape.cols, 1, {}, dw.data(), 1e-6f};
        args.epilogue.y = y.data();
        args.epilogue.y_stride = shape.rows;
        y.poison();
        linear(nullptr, args,
               {.max_warps = trial % 2 ? 8 : 0,
                .num_stages = trial == 2 ? 1 : 0,
                .stage_blocks = trial % 3,
                .max_ctas = trial == 4 ? 7 : 0,
                .dependent = trial > 2,
                .trigger_late = trial > 3});
        EXPECT_EQ(count_different(y.get().data(), want.data(), shape.rows), 0)
            << format_name(format) << " " << shape.rows << "x" << shape.cols << " trial " << trial;
      }
    }
}

TEST(CudaLinear, EmbedReadsRows) {
  for (WeightFormat format : kNative) {
    const TestMatrix m = random_matrix(format, 1000, 256, 26);
    const DeviceMatrix w(packed_or_die({m.view}, {.head = true}));
    const std::vector<int32_t> ids = {0, 999, 8, 7, 513, 513};
    DeviceBuffer<int32_t> di(ids);
    DeviceBuffer<float> y(6 * 256);
    embed(nullptr, w.matrix, di.data(), 6, 1.5f, y.data(), 256);
    const std::vector<float> got = y.get();
    const std::vector<Bf16> want = weights_of(m.view);
    for (size_t t = 0; t < ids.size(); ++t)
      for (size_t c = 0; c < 256; ++c)
        ASSERT_EQ(got[t * 256 + c], bf16_value(want[static_cast<size_t>(ids[t]) * 256 + c]) * 1.5f)
            << format_name(format);
  }
}

}  // namespace
}  // namespace invar::cuda
