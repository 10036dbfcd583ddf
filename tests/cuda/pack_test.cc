// Packing on the host: what the decoder's arithmetic makes of every kind equals the weight rule,
// bit for bit. No device needed.
#include "cuda/cuda_test_util.h"

namespace invar::cuda {
namespace {

const WeightFormat kFormats[] = {
    WeightFormat::kMlxAffine, WeightFormat::kQ4_0, WeightFormat::kQ4_1, WeightFormat::kQ8_0,
    WeightFormat::kQ4_K,      WeightFormat::kQ6_K, WeightFormat::kBF16, WeightFormat::kF16,
    WeightFormat::kF32,       WeightFormat::kQ5_0, WeightFormat::kQ5_1, WeightFormat::kQ5_K};

int64_t differing_weights(const PackedMatrix& packed, int64_t strip_row, const Bf16* want) {
  std::vector<Bf16> got(static_cast<size_t>(packed.num_cols));
  unpack_row_bf16(packed, strip_row, got.data());
  int64_t different = 0;
  for (int c = 0; c < packed.num_cols; ++c)
    different += !same_weight(got[static_cast<size_t>(c)], want[c]);
  return different;
}

TEST(CudaPack, KeepsEveryWeight) {
  for (WeightFormat format : kFormats) {
    const TestMatrix m = random_matrix(format, 37, 512, 1);
    const HostPacked packed = packed_or_die({m.view});
    EXPECT_EQ(packed.matrix.num_strips, 3);
    EXPECT_EQ(packed.num_bytes, packed.matrix.num_bytes());
    const std::vector<Bf16> want = weights_of(m.view);
    int64_t different = 0;
    for (int64_t r = 0; r < 37; ++r)
      different += differing_weights(packed.matrix, r, want.data() + r * 512);
    EXPECT_EQ(different, 0) << format_name(format);
    const std::vector<Bf16> zeros(512, 0);
    for (int64_t r = 37; r < 48; ++r)
      EXPECT_EQ(differing_weights(packed.matrix, r, zeros.data()), 0) << "padding";
  }
}

TEST(CudaPack, NativeKindsUseTheirOwnCodes) {
  const std::pair<WeightFormat, double> bits_per_weight[] = {{WeightFormat::kMlxAffine, 4.5},
                                                             {WeightFormat::kQ4_0, 5.0},
                                                             {WeightFormat::kQ4_K, 5.0},
                                                             {WeightFormat::kQ8_0, 8.5},
                                                             {WeightFormat::kQ6_K, 6.75}};
  for (const auto& [format, bits] : bits_per_weight) {
    const HostPacked packed = packed_or_die({random_matrix(format, 16, 256, 2).view});
    EXPECT_EQ(static_cast<double>(packed.num_bytes) * 8 / (16 * 256), bits) << format_name(format);
  }
}

// An independent statement of one weight: 3 * 0.25 - 1.5, by hand.
TEST(CudaPack, OneWeightByHand) {
  TestMatrix m = random_matrix(WeightFormat::kMlxAffine, 16, 64, 3);
  m.bytes[5 * 32 + 10] = 0x3a;  // row 5: columns 20 (low nibble 10) and 21 (high nibble 3)
  const Bf16 scale = 0x3e80, bias = 0xbfc0;  // 0.25, -1.5
  std::memcpy(&m.scales[2 * 5], &scale, 2);
  std::memcpy(&m.biases[2 * 5], &bias, 2);
  std::vector<Bf16> row(64);
  unpack_row_bf16(packed_or_die({m.view}).matrix, 5, row.data());
  EXPECT_EQ(bf16_value(row[20]), 1.0f);
  EXPECT_EQ(bf16_value(row[21]), -0.75f);
}

TEST(CudaPack, InterleavesGateAndUp) {
  const TestMatrix gate = random_matrix(WeightFormat::kQ4_K, 20, 256, 4);
  const TestMatrix up = random_matrix(WeightFormat::kQ4_K, 20, 256, 5);
  const HostPacked packed = packed_or_die({gate.view, up.view}, {.gated = true});
  EXPECT_EQ(packed.matrix.num_rows, 20);
  EXPECT_EQ(packed.matrix.num_strips, 3);
  const std::vector<Bf16> g = weights_of(gate.view), u = weights_of(up.view);
  for (int64_t r = 0; r < 20; ++r) {
    const int64_t at = r / 8 * 16 + r % 8;
    EXPECT_EQ(differing_weights(packed.matrix, at, g.data() + r * 256), 0);
    EXPECT_EQ(differing_weights(packed.matrix, at + 8, u.data() + r * 256), 0);
  }
}

TEST(CudaPack, StacksPartsAndFallsBackForMixedFormats) {
  const TestMatrix a = random_matrix(WeightFormat::kQ4_K, 24, 256, 6);
  const TestMatrix b = random_matrix(WeightFormat::kQ6_K, 8, 256, 7);
  const HostPacked packed = packed_or_die({a.view, b.view});
  EXPECT_EQ(packed.matrix.kind, PackedKind::kBf16);
  EXPECT_EQ(packed.matrix.num_rows, 32);
  EXPECT_EQ(differing_weights(packed.matrix, 26, weights_of(b.view).data() + 2 * 256), 0);
}

TEST(CudaPack, LargeScalesFallBack) {
  const TestMatrix m = random_matrix(WeightFormat::kQ8_0, 16, 64, 8, 2000.0);
  const HostPacked packed = packed_or_die({m.view});
  EXPECT_EQ(packed.matrix.kind, PackedKind::kBf16);
  EXPECT_EQ(differing_weights(packed.matrix, 3, weights_of(m.view).data() + 3 * 64), 0);
}

TEST(CudaPack, RefusesOddWidths) {
  TestMatrix m = random_matrix(WeightFormat::kQ8_0, 16, 96, 9);
  EXPECT_FALSE(pack_matrix(std::vector<MatrixView>{m.view}, {}).ok());
}

TEST(CudaPack, SlicesCoverKInOrder) {
  for (int blocks : {1, 3, 9, 14, 32, 272, 296})
    for (int strips : {1, 36, 320, 772, 2176}) {
      const int slices = slice_count(strips, blocks, false);
      EXPECT_TRUE(slices == 1 || blocks / slices >= 4);
      EXPECT_EQ(slice_begin(blocks, slices, 0), 0);
      EXPECT_EQ(slice_begin(blocks, slices, slices), blocks);
      for (int s = 0; s < slices; ++s)
        EXPECT_LE(slice_begin(blocks, slices, s + 1) - slice_begin(blocks, slices, s),
                  (blocks + slices - 1) / slices);
    }
}

TEST(CudaPack, Bf16RoundsOnce) {
  EXPECT_EQ(bf16_rn(1.0f), 0x3f80);
  EXPECT_EQ(bf16_rn(1.00390625f), 0x3f80);         // a tie goes to even
  EXPECT_EQ(bf16_rn(1.00390625 + 1e-12), 0x3f81);  // just above it does not
  EXPECT_EQ(bf16_rn(static_cast<float>(1.00390625 + 1e-12)), 0x3f80);
}

}  // namespace
}  // namespace invar::cuda
