// Experts on the cpu backend, bit by bit: a pair of row and expert is what linear() and
// gated_linear() give on that expert's matrices alone, slots are folded in order, and neither
// neighbours nor threads nor instruction sets change anything. Whom a row chooses: moe_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/backend.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/moe.h"
#include "backend/cpu/moe_route.h"
#include "backend/cpu_linear_oracle.h"
#include "backend/cpu_ops_util.h"

namespace invar::cpu {
namespace {

using test::all_formats;
using test::FormatSpec;
using test::OwnedMatrix;

const std::vector<KernelCrossover> kNoCrossovers;

// A layer of experts; `inner` and `hidden` need not fill panels.
struct Layer {
  int64_t hidden = 0, inner = 0;
  std::vector<OwnedMatrix> gate, up, down;  // no gate: relu2
  MoeArgs args;

  PackRequest up_request(size_t first, size_t count) const {
    PackRequest request;
    request.num_experts = static_cast<int>(count);
    for (size_t e = first; e < first + count; ++e) {
      if (!gate.empty()) request.parts.push_back(gate[e].view);
      request.parts.push_back(up[e].view);
    }
    if (!gate.empty()) request.order = PartOrder::kGateAndUp;
    return request;
  }
  PackRequest down_request(size_t first, size_t count) const {
    PackRequest request;
    request.num_experts = static_cast<int>(count);
    for (size_t e = first; e < first + count; ++e) request.parts.push_back(down[e].view);
    return request;
  }
};

class CpuExperts : public testing::Test {
 protected:
  Layer layer(const FormatSpec& spec, int num_experts, int num_slots, bool gated) {
    const int block = std::max(spec.block(), spec.group_size);
    Layer layer;
    layer.hidden = block == 1 ? 37 : block * ((block + 95) / block);
    layer.inner = block == 1 ? 19 : block;
    layer.args.num_experts = num_experts;
    layer.args.num_experts_per_tok = num_slots;
    layer.args.activation = gated ? Activation::kSilu : Activation::kRelu2;
    for (int e = 0; e < num_experts; ++e) {
      const auto matrix = [&](int64_t num_rows, int64_t num_cols) {
        return test::random_matrix(spec, num_rows, num_cols, random_);
      };
      if (gated) layer.gate.push_back(matrix(layer.inner, layer.hidden));
      layer.up.push_back(matrix(layer.inner, layer.hidden));
      layer.down.push_back(matrix(layer.hidden, layer.inner));
    }
    return layer;
  }

  std::unique_ptr<PackedWeight> pack(const PackRequest& request, int bits = 8) {
    LinearOptions options;
    options.activation_bits = bits;
    auto packed = pack_panels(request, pool_, options);
    EXPECT_TRUE(packed.ok());
    return *std::move(packed);
  }

  // Every pair by itself with the kernels for dense weights in portable code, then the fold.
  std::vector<float> expected(const Layer& layer, int bits, std::vector<float>& x,
                              std::vector<float>& logits, const std::vector<float>& residual) {
    const Tensor in = tensor_of(x, layer.hidden);
    const Tensor scores = tensor_of(logits, layer.args.num_experts);
    const auto num_slots = static_cast<size_t>(layer.args.num_experts_per_tok);
    std::vector<std::unique_ptr<PackedWeight>> ups, downs;
    for (size_t e = 0; e < layer.up.size(); ++e) {
      ups.push_back(pack(layer.up_request(e, 1), bits));
      downs.push_back(pack(layer.down_request(e, 1), bits));
    }
    std::vector<float> y;
    for (int64_t t = 0; t < in.num_rows; ++t) {
      std::vector<int32_t> experts(num_slots);
      std::vector<float> weights(num_slots), sums(static_cast<size_t>(layer.hidden));
      route_row(scores.row(t), layer.args, experts.data(), weights.data());
      Tensor row = in;
      row.data = in.row(t);
      row.num_rows = 1;
      for (size_t slot = 0; slot < num_slots; ++slot) {
        const auto e = static_cast<size_t>(experts[slot]);
        std::vector<float> hidden(static_cast<size_t>(layer.inner)), out(sums.size());
        const Tensor h = tensor_of(hidden, layer.inner);
        if (layer.gate.empty()) {
          linear(pool_, Isa::kPortable, h, row, *ups[e], {}, Tensor{});
          for (float& v : hidden) v = v != v ? v : v > 0 ? v * v : 0;
        } else {
          gated_linear(pool_, Isa::kPortable, h, row, *ups[e], layer.args.activation);
        }
        linear(pool_, Isa::kPortable, tensor_of(out, layer.hidden), h, *downs[e], {}, Tensor{});
        for (size_t n = 0; n < sums.size(); ++n) sums[n] = std::fma(weights[slot], out[n], sums[n]);
      }
      for (size_t n = 0; n < sums.size(); ++n)
        y.push_back(sums[n] + residual[static_cast<size_t>(t) * sums.size() + n]);
    }
    return y;
  }

  std::mt19937 random_{31};
  ThreadPool pool_{2};
};

class CpuMoe : public CpuExperts, public testing::WithParamInterface<FormatSpec> {};

// Everything at once: rows of another order and number each time, among them rows of inf and NaN,
// on every set and thread count.
TEST_P(CpuMoe, PairsAreAsAloneAndSlotsInOrder) {
  constexpr size_t kRows = 23;
  const bool floats = GetParam().block() == 1;
  for (bool gated : {true, false}) {
    const Layer moe_layer = gated ? layer(GetParam(), 7, 2, true) : layer(GetParam(), 5, 3, false);
    const auto hidden = static_cast<size_t>(moe_layer.hidden);
    const auto num_experts = static_cast<size_t>(moe_layer.args.num_experts);
    for (int bits : {8, 12}) {
      if (bits == 12 && (floats || gated)) continue;
      const auto up = pack(moe_layer.up_request(0, num_experts), bits);
      const auto down = pack(moe_layer.down_request(0, num_experts), bits);
      std::vector<float> x = random_floats(kRows * hidden, 3);
      std::vector<float> logits = random_floats(kRows * num_experts, 4);
      std::vector<float> residual = random_floats(kRows * hidden, 5);
      for (size_t row = 0; row < kRows; row += 6)
        x[row * hidden + random_() % hidden] = row % 4 == 0 ? kInf : kNan;
      logits[2 * num_experts + 1] = kNan;
      const std::vector<float> want = expected(moe_layer, bits, x, logits, residual);
      ASSERT_TRUE(std::isnan(want[0]) && std::isnan(want[2 * hidden]));
      ASSERT_FALSE(std::isnan(want[hidden]));

      for (Isa isa : testable_isas()) {
        for (int round = 0; round < (isa == Isa::kPortable ? 3 : 12); ++round) {
          const size_t count = round == 0 ? 1 : round == 1 ? 70 : 1 + random_() % kRows;
          std::vector<float> some_x, some_logits, some_y;
          std::vector<size_t> from;
          for (size_t i = 0; i < count; ++i) {
            const size_t row = round == 0 ? 1 : random_() % kRows;
            from.push_back(row);
            const auto append = [row](std::vector<float>& to, const std::vector<float>& rows,
                                      size_t size) {
              const auto begin = rows.begin() + static_cast<ptrdiff_t>(row * size);
              to.insert(to.end(), begin, begin + static_cast<ptrdiff_t>(size));
            };
            append(some_x, x, hidden);
            append(some_logits, logits, num_experts);
            append(some_y, residual, hidden);
          }
          ThreadPool pool(1 + round % 3);
          CpuMoeOps ops(pool, isa, kNoCrossovers);
          const Tensor y = tensor_of(some_y, moe_layer.hidden);
          ops.moe(y, tensor_of(some_x, moe_layer.hidden),
                  tensor_of(some_logits, moe_layer.args.num_experts), *up, *down, moe_layer.args,
                  y);
          for (size_t i = 0; i < count; ++i)
            ASSERT_TRUE(same_bits(y.row(static_cast<int64_t>(i)), &want[from[i] * hidden],
                                  moe_layer.hidden))
                << isa_name(isa) << ", " << bits << " bits, " << (gated ? "gated" : "relu2")
                << ", row " << i << " of " << count << ", " << pool.num_threads() << " threads";
        }
      }
    }
  }
}

TEST_P(CpuMoe, IsCloseToTheReference) {
  BackendOptions options;
  options.num_threads = 2;
  const auto reference = std::move(make_backend("reference", options)).value();
  const Layer moe_layer = layer(GetParam(), 6, 2, true);
  for (int bits : {8, 12}) {
    options.activation_bits = bits;
    const auto tested = std::move(make_backend("cpu", options)).value();
    std::vector<float> x = random_floats(static_cast<size_t>(8 * moe_layer.hidden), 6);
    std::vector<float> logits = random_floats(48, 7), y[2];
    for (int i = 0; i < 2; ++i) {
      Backend& backend = i == 0 ? *reference : *tested;
      const auto up = std::move(backend.pack(moe_layer.up_request(0, 6))).value();
      const auto down = std::move(backend.pack(moe_layer.down_request(0, 6))).value();
      y[i].resize(x.size());
      backend.moe_ops()->moe(tensor_of(y[i], moe_layer.hidden), tensor_of(x, moe_layer.hidden),
                             tensor_of(logits, 6), *up, *down, moe_layer.args, Tensor{});
    }
    double error = 0, size = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      error += std::pow(double{y[0][i]} - y[1][i], 2);
      size += std::pow(double{y[0][i]}, 2);
    }
    ASSERT_GT(size, 0);
    const double bound = GetParam().block() == 1 ? 1e-5 : bits == 8 ? 0.03 : 0.0015;
    EXPECT_LT(std::sqrt(error / size), bound) << bits << " bits";
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, CpuMoe, testing::ValuesIn(all_formats()),
                         [](const auto& spec) { return spec.param.name(); });

// ---- Packing
// ------------------------------------------------------------------------------------

// Remembers the names of sections.
class Sections final : public PackedCache {
 public:
  bool is_filled() const override { return false; }
  std::shared_ptr<const uint8_t[]> find(const std::string&, size_t, ThreadPool&) override {
    return nullptr;
  }
  void keep(const std::string& section, std::shared_ptr<const uint8_t[]>, size_t) override {
    names.push_back(section);
  }
  std::vector<std::string> names;
};

const PackedPanels& panels(const std::unique_ptr<PackedWeight>& w) {
  return static_cast<const PackedPanels&>(*w);
}

TEST_F(CpuExperts, EachExpertsPanelsAreThoseOfItAlone) {
  for (bool gated : {true, false}) {
    Layer moe_layer = layer({WeightFormat::kQ4_0}, 5, 2, gated);
    // One expert in another format; rows that fill no panel.
    moe_layer.up[2] =
        test::random_matrix({WeightFormat::kQ8_0}, moe_layer.inner, moe_layer.hidden, random_);
    for (OwnedMatrix& down : moe_layer.down)
      down = test::random_matrix({WeightFormat::kQ4_0}, 21, 64, random_);
    const auto up = pack(moe_layer.up_request(0, 5)), down = pack(moe_layer.down_request(0, 5));
    EXPECT_EQ(up->num_rows, moe_layer.inner);
    EXPECT_EQ(down->num_rows, 21);
    EXPECT_EQ(down->num_cols, 64);
    EXPECT_EQ(down->num_experts, 5);
    size_t up_at = 0, down_at = 0;
    for (size_t e = 0; e < 5; ++e) {
      const auto alone_up = pack(moe_layer.up_request(e, 1));
      const auto alone_down = pack(moe_layer.down_request(e, 1));
      EXPECT_EQ(std::memcmp(panels(up).memory.get() + up_at, panels(alone_up).memory.get(),
                            alone_up->num_bytes),
                0);
      EXPECT_EQ(std::memcmp(panels(down).memory.get() + down_at, panels(alone_down).memory.get(),
                            alone_down->num_bytes),
                0);
      up_at += alone_up->num_bytes;
      down_at += alone_down->num_bytes;
    }
    EXPECT_EQ(up_at, up->num_bytes);
    EXPECT_EQ(down_at, down->num_bytes);
  }
}

TEST_F(CpuExperts, SectionsHaveShortNamesOfTheirOwn) {
  Sections cache;
  const OwnedMatrix matrix = test::random_matrix({WeightFormat::kQ4_0}, 16, 64, random_);
  std::vector<PackRequest> requests(5);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].num_experts = i == 3 ? 128 : 256;
    requests[i].cache = &cache;
    for (int e = 0; e < 256; ++e) {
      MatrixView view = matrix.view;
      // The fourth: twice the parts an expert. The fifth: two experts in the middle change places.
      const int named = i == 4 && (e == 100 || e == 101) ? 201 - e : e;
      view.name = "model.safetensors: 'layer " + std::to_string(i == 4 || i == 3 ? 0 : i) +
                  " expert " + std::to_string(named) + "'";
      requests[i].parts.push_back(view);
    }
    pack(requests[i]);
  }
  pack(requests[0]);
  ASSERT_EQ(cache.names.size(), 6u);
  EXPECT_EQ(cache.names[5], cache.names[0]);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_LT(cache.names[i].size(), 200u) << cache.names[i];
    for (size_t j = 0; j < i; ++j) EXPECT_NE(cache.names[i], cache.names[j]);
  }
}

TEST_F(CpuExperts, BadRequestsAreNamed) {
  const OwnedMatrix a = test::random_matrix({WeightFormat::kQ4_0}, 16, 64, random_),
                    b = test::random_matrix({WeightFormat::kQ4_0}, 32, 64, random_);
  constexpr PartOrder kStacked = PartOrder::kStacked, kGated = PartOrder::kGateAndUp;
  const auto packs = [&](std::vector<MatrixView> parts, int num_experts, PartOrder order,
                         MatrixRole role = MatrixRole::kInner) {
    PackRequest request;
    request.parts = std::move(parts);
    request.num_experts = num_experts;
    request.order = order;
    request.role = role;
    return pack_panels(request, pool_, {}).ok();
  };
  EXPECT_TRUE(packs({a.view, a.view}, 2, kStacked));
  EXPECT_FALSE(packs({a.view, a.view, a.view}, 2, kStacked));
  EXPECT_FALSE(packs({a.view}, 0, kStacked));
  EXPECT_FALSE(packs({a.view, b.view}, 2, kStacked));
  EXPECT_TRUE(packs({a.view, b.view, a.view, b.view}, 2, kStacked));
  EXPECT_FALSE(packs({a.view, b.view, a.view, b.view}, 2, kGated));
  EXPECT_FALSE(packs({a.view, a.view}, 2, kGated));
  EXPECT_FALSE(packs({a.view, a.view}, 2, kStacked, MatrixRole::kRouter));
}

// ---- The router
// ---------------------------------------------------------------------------------

// Logits are fma chains along k over the file's values, whatever the format and the set.
TEST_P(CpuMoe, RouterKeepsFp32) {
  const int block = std::max(GetParam().block(), GetParam().group_size);
  const int64_t num_cols = block == 1 ? 77 : 2 * block, num_experts = 27;
  const OwnedMatrix matrix = test::random_matrix(GetParam(), num_experts, num_cols, random_);
  PackRequest request;
  request.parts = {matrix.view};
  request.role = MatrixRole::kRouter;
  const auto packed = pack(request);
  std::vector<float> x = random_floats(static_cast<size_t>(9 * num_cols), 8), w(x.size());
  const Tensor in = tensor_of(x, num_cols);
  for (Isa isa : testable_isas()) {
    CpuMoeOps ops(pool_, isa, kNoCrossovers);
    for (int64_t count : {1, 3, 9}) {
      std::vector<float> logits(static_cast<size_t>(count * num_experts));
      const Tensor out = tensor_of(logits, num_experts);
      Tensor some = in;
      some.num_rows = count;
      ops.router(out, some, *packed);
      for (int64_t e = 0; e < num_experts; ++e) {
        dequantize_row(matrix.view, e, w.data());
        for (int64_t t = 0; t < count; ++t) {
          float chain = 0;
          for (int64_t k = 0; k < num_cols; ++k)
            chain = std::fma(w[static_cast<size_t>(k)], in.at(t, k), chain);
          ASSERT_EQ(out.at(t, e), chain) << isa_name(isa) << ", row " << t << " of " << count;
        }
      }
    }
  }
}

TEST_F(CpuExperts, RouterOfBf16ValuesTakesHalfOfTheBytes) {
  const OwnedMatrix halves = test::random_matrix({WeightFormat::kBF16}, 16, 64, random_);
  std::vector<float> values(16 * 64);
  for (int64_t r = 0; r < 16; ++r)
    dequantize_row(halves.view, r, &values[static_cast<size_t>(r) * 64]);
  PackRequest request;
  request.role = MatrixRole::kRouter;
  request.parts = {halves.view};
  const auto bf16 = pack(request);
  MatrixView view = halves.view;
  view.format = WeightFormat::kF32;
  view.row_bytes = 64 * 4;
  view.data = reinterpret_cast<const uint8_t*>(values.data());
  request.parts = {view};
  const auto same = pack(request);
  ASSERT_EQ(same->num_bytes, bf16->num_bytes);
  EXPECT_EQ(std::memcmp(panels(same).memory.get(), panels(bf16).memory.get(), same->num_bytes), 0);
  values.back() = 1.00001f;
  EXPECT_EQ(pack(request)->num_bytes, 2 * bf16->num_bytes);
}

// As mlx-lm stores these layers: the router in 8 bits, experts in 4.
TEST_F(CpuExperts, EightBitRouterBesideFourBitExperts) {
  const FormatSpec four = {WeightFormat::kMlxAffine, 4, 64, DType::kBF16};
  const FormatSpec eight = {WeightFormat::kMlxAffine, 8, 64, DType::kBF16};
  Layer moe_layer = layer(four, 7, 3, true);
  const OwnedMatrix gate = test::random_matrix(eight, 7, moe_layer.hidden, random_);
  PackRequest router;
  router.role = MatrixRole::kRouter;
  router.parts = {gate.view};
  std::vector<float> x = random_floats(static_cast<size_t>(5 * moe_layer.hidden), 9), y[2];
  std::vector<float> logits[2];
  for (int i = 0; i < 2; ++i) {
    BackendOptions options;
    options.num_threads = 2;
    const auto backend = std::move(make_backend(i == 0 ? "reference" : "cpu", options)).value();
    const auto up = std::move(backend->pack(moe_layer.up_request(0, 7))).value();
    const auto down = std::move(backend->pack(moe_layer.down_request(0, 7))).value();
    const auto w = std::move(backend->pack(router)).value();
    y[i].resize(x.size());
    logits[i].resize(35);
    const Tensor in = tensor_of(x, moe_layer.hidden), scores = tensor_of(logits[i], 7);
    backend->moe_ops()->router(scores, in, *w);
    backend->moe_ops()->moe(tensor_of(y[i], moe_layer.hidden), in, scores, *up, *down,
                            moe_layer.args, Tensor{});
  }
  double error = 0, size = 0;
  for (size_t i = 0; i < logits[0].size(); ++i)
    EXPECT_NEAR(logits[0][i], logits[1][i], 1e-5 * (1 + std::fabs(logits[0][i])));
  for (size_t i = 0; i < x.size(); ++i) {
    error += std::pow(double{y[0][i]} - y[1][i], 2);
    size += std::pow(double{y[0][i]}, 2);
  }
  EXPECT_LT(std::sqrt(error / size), 0.03);
}

// More rows than a block has: all with one expert, and nearly all with one of two.
TEST_F(CpuExperts, OneExpertForAllRowsIsADenseLayer) {
  constexpr size_t kRows = 150;
  for (WeightFormat format : {WeightFormat::kQ4_K, WeightFormat::kQ8_0, WeightFormat::kBF16}) {
    for (int num_experts : {1, 2}) {
      const Layer moe_layer = layer({format}, num_experts, 1, true);
      const auto count = static_cast<size_t>(num_experts);
      const auto up = pack(moe_layer.up_request(0, count));
      const auto down = pack(moe_layer.down_request(0, count));
      const auto dense_up = pack(moe_layer.up_request(0, 1));
      const auto dense_down = pack(moe_layer.down_request(0, 1));
      std::vector<float> x = random_floats(kRows * static_cast<size_t>(moe_layer.hidden), 11);
      std::vector<float> logits(kRows * count, 1.0f), y(x.size()), expected(x.size());
      std::vector<float> inner(kRows * static_cast<size_t>(moe_layer.inner));
      if (num_experts == 2) logits[2 * 77] = 0;  // one row goes elsewhere
      for (Isa isa : testable_isas()) {
        if (isa == Isa::kPortable && format != WeightFormat::kQ8_0) continue;
        CpuMoeOps ops(pool_, isa, kNoCrossovers);
        const Tensor in = tensor_of(x, moe_layer.hidden);
        ops.moe(tensor_of(y, moe_layer.hidden), in, tensor_of(logits, num_experts), *up, *down,
                moe_layer.args, Tensor{});
        EXPECT_EQ(ops.num_experts_read(), num_experts);
        const Tensor hidden = tensor_of(inner, moe_layer.inner);
        gated_linear(pool_, isa, hidden, in, *dense_up, Activation::kSilu);
        linear(pool_, isa, tensor_of(expected, moe_layer.hidden), hidden, *dense_down, {},
               Tensor{});
        for (size_t row = 0; row < kRows; ++row)
          ASSERT_EQ(
              same_bits(&y[row * static_cast<size_t>(moe_layer.hidden)],
                        &expected[row * static_cast<size_t>(moe_layer.hidden)], moe_layer.hidden),
              num_experts == 1 || row != 77)
              << format_name(format) << ", " << isa_name(isa) << ", row " << row;
      }
    }
  }
}

TEST_F(CpuExperts, NoRows) {
  const Layer moe_layer = layer({WeightFormat::kQ4_0}, 3, 2, true);
  const auto up = pack(moe_layer.up_request(0, 3)), down = pack(moe_layer.down_request(0, 3));
  CpuMoeOps ops(pool_, best_isa(), kNoCrossovers);
  std::vector<float> none;
  const Tensor x = tensor_of(none, moe_layer.hidden);
  ops.moe(x, x, tensor_of(none, 3), *up, *down, moe_layer.args, Tensor{});
}

}  // namespace
}  // namespace invar::cpu
