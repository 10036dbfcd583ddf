// Packing: what panels cost in memory, and the arena they live in. That panels hold the file's
// numbers is tested through embed and linear (cpu_linear_test.cc).
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "backend/cpu/linear.h"
#include "backend/cpu/panels.h"
#include "backend/cpu_linear_oracle.h"
#include "base/block_hash.h"

namespace invar::cpu {
namespace {

// Bits a weight, the table of backend/cpu/panels.h.
double expected_bits(const test::FormatSpec& spec) {
  using F = WeightFormat;
  switch (spec.format) {
    case F::kF32:
      return 32;
    case F::kF16:
    case F::kBF16:
      return 16;
    case F::kQ4_0:
    case F::kIQ4_NL:
      return 4.5;
    case F::kQ4_1:
      return 5;
    case F::kQ5_0:
      return 5.5;
    case F::kQ5_1:
      return 6;
    case F::kQ8_0:
      return 8.5;
    case F::kQ2_K:
      return 2.625;
    case F::kQ3_K:
      return 3.625;
    case F::kQ4_K:
      return 4.625;
    case F::kQ5_K:
      return 5.625;
    case F::kQ6_K:
      return 6.625;
    case F::kIQ4_XS:
      return 4.375;
    case F::kMXFP4:
      return 4.25;
    case F::kMlxAffine:
      break;
  }
  return spec.bits + (spec.scale_dtype == DType::kF32 ? 64.0 : 32.0) / spec.group_size;
}

TEST(CpuPack, PanelsAreAboutAsSmallAsTheFile) {
  ThreadPool pool(1);
  std::mt19937 random(3);
  constexpr int64_t kRows = 32, kCols = 512;
  for (const test::FormatSpec& spec : test::all_formats()) {
    const test::OwnedMatrix m = test::random_matrix(spec, kRows, kCols, random);
    PackRequest request;
    request.parts = {m.view};
    const auto packed = pack_panels(request, pool, {});
    ASSERT_TRUE(packed.ok());
    const double bits = 8.0 * static_cast<double>((*packed)->num_bytes) / (kRows * kCols);
    EXPECT_EQ(bits, expected_bits(spec)) << spec.name();
    EXPECT_LE(static_cast<double>((*packed)->num_bytes),
              1.06 * static_cast<double>(m.view.num_bytes()))
        << spec.name();
  }
}

// Panels are kept on disk under this name (cache/packed_cache.h). A hash that moves means that
// pack() makes other bytes: then kPanelLayout gets another number, and only then this one a new
// value.
TEST(CpuPack, LayoutIsTheFrozenOne) {
  ThreadPool pool(1);
  std::vector<uint64_t> hashes;
  for (const test::FormatSpec& spec : test::all_formats()) {
    std::mt19937 random(17);
    test::OwnedMatrix m = test::random_matrix(spec, 24, 512, random);
    // The generator's bytes must not depend on a library's distributions.
    for (std::vector<uint8_t>* bytes : {&m.data, &m.scales, &m.biases})
      for (uint8_t& byte : *bytes) byte = static_cast<uint8_t>(random() >> 24);
    for (const PartOrder order : {PartOrder::kStacked, PartOrder::kGateAndUp}) {
      PackRequest request;
      request.parts = {m.view, m.view};
      request.order = order;
      const auto packed = pack_panels(request, pool, {});
      ASSERT_TRUE(packed.ok()) << spec.name();
      const auto& panels = static_cast<const PackedPanels&>(**packed);
      hashes.push_back(block_hash({panels.memory.get(), panels.num_bytes}));
    }
  }
  const uint64_t all =
      block_hash({reinterpret_cast<const uint8_t*>(hashes.data()), hashes.size() * 8});
  EXPECT_EQ(std::string(kPanelLayout), "cpu-panels-1");
  EXPECT_EQ(all, 0xd06faab55d349dc9u);
}

TEST(CpuPack, ArenaMemoryIsZeroedAlignedAndOutlivesTheArena) {
  auto arena = std::make_unique<PanelArena>();
  std::vector<std::pair<PanelMemory, size_t>> blocks;
  // Small ones share a mapping, the large one has its own, and together they need a second one.
  for (size_t size :
       {size_t{1}, size_t{100}, size_t{64}, size_t{15} << 20, size_t{15} << 20, size_t{15} << 20,
        size_t{15} << 20, size_t{15} << 20, size_t{20} << 20, size_t{4096}}) {
    PanelMemory memory = arena->allocate(size);
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.get()) % 64, 0u);
    for (size_t at : {size_t{0}, size / 2, size - 1}) EXPECT_EQ(memory[at], 0) << size;
    memory[0] = memory[size - 1] = static_cast<uint8_t>(blocks.size() + 1);
    blocks.emplace_back(std::move(memory), size);
  }
  arena.reset();
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto& [memory, size] = blocks[i];
    EXPECT_EQ(memory[0], i + 1);
    EXPECT_EQ(memory[size - 1], i + 1);
  }
}

}  // namespace
}  // namespace invar::cpu
