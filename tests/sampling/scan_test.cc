// The passes over a vocabulary: equal bits from every instruction set, and right.
#include "sampling/scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "sampling/random.h"

namespace invar {
namespace {

std::vector<float> random_values(std::mt19937& random, size_t count) {
  std::normal_distribution<float> normal(0, 20);
  std::vector<float> values(count);
  for (float& value : values)
    value = random() % 20 == 0 ? -std::numeric_limits<float>::infinity() : normal(random);
  return values;
}

std::vector<const ScanFunctions*> all_sets() {
  std::vector<const ScanFunctions*> sets = {&scan_plain::kFunctions};
  if (&scan() != sets[0]) sets.push_back(&scan());
  return sets;
}

constexpr size_t kCounts[] = {1, 7, 8, 63, 64, 65, 255, 256, 257, 1000, 5003};

TEST(Scan, EverySetGivesTheSameBits) {
  std::mt19937 random(1);
  for (const size_t count : kCounts) {
    const std::vector<float> values = random_values(random, count);
    const float most = *std::max_element(values.begin(), values.end());
    if (std::isinf(most)) continue;
    for (const float divisor : {1.0f, 0.7f, 3.3f}) {
      const double sum = scan_plain::kFunctions.sum_exp(values.data(), count, most, divisor);
      const size_t n = std::min(count, kScanBlock);
      float scores[kScanBlock], weights[kScanBlock];
      scan_plain::kFunctions.weigh_block(values.data(), n, most, divisor, scores, weights);
      for (const ScanFunctions* set : all_sets()) {
        EXPECT_EQ(set->sum_exp(values.data(), count, most, divisor), sum) << count;
        float set_scores[kScanBlock], set_weights[kScanBlock];
        set->weigh_block(values.data(), n, most, divisor, set_scores, set_weights);
        EXPECT_EQ(std::memcmp(set_scores, scores, n * sizeof(float)), 0);
        EXPECT_EQ(std::memcmp(set_weights, weights, n * sizeof(float)), 0);
      }
    }
  }
}

// The order of additions is part of what a seed gives: eight lanes, then lane by lane.
TEST(Scan, SumsAndWeights) {
  std::mt19937 random(2);
  for (const size_t count : kCounts) {
    const std::vector<float> values = random_values(random, count);
    double lanes[8] = {}, sum = 0;
    for (size_t i = 0; i < count; ++i)
      lanes[i % 8] += static_cast<double>(exp_nonpositive((values[i] - 80) / 0.9f));
    for (const double lane : lanes) sum += lane;
    for (const ScanFunctions* set : all_sets())
      EXPECT_EQ(set->sum_exp(values.data(), count, 80, 0.9f), sum) << count;
  }
}

TEST(Scan, BlockMaxima) {
  std::mt19937 random(3);
  for (const size_t count : kCounts) {
    const std::vector<float> values = random_values(random, count);
    for (const ScanFunctions* set : all_sets()) {
      std::vector<float> maxima((count + kScanBlock - 1) / kScanBlock);
      EXPECT_EQ(set->block_maxima(values.data(), count, maxima.data()),
                *std::max_element(values.begin(), values.end()));
      for (size_t b = 0; b < maxima.size(); ++b) {
        const auto begin = values.begin() + static_cast<ptrdiff_t>(b * kScanBlock);
        const auto end = b + 1 < maxima.size() ? begin + kScanBlock : values.end();
        EXPECT_EQ(maxima[b], *std::max_element(begin, end));
      }
    }
  }
}

TEST(Scan, FindsWhatIsNotFinite) {
  std::vector<float> values(1003, 1.5f), copy(1003);
  for (const ScanFunctions* set : all_sets()) {
    EXPECT_TRUE(set->copy_finite(values.data(), values.size(), copy.data()));
    EXPECT_EQ(values, copy);
    EXPECT_TRUE(set->copy_finite(values.data(), 0, nullptr));
    for (const float bad : {NAN, -NAN, INFINITY, -INFINITY})
      for (const size_t at : {0, 5, 800, 1002}) {
        values[at] = bad;
        EXPECT_FALSE(set->copy_finite(values.data(), values.size(), nullptr)) << at;
        values[at] = 1.5f;
      }
  }
}

TEST(Scan, AnyNoise) {
  std::mt19937_64 random(4);
  int num_found = 0;
  for (int round = 0; round < 400; ++round) {
    const NoiseKey key(random(), random());
    const int32_t first = static_cast<int32_t>(random() % 300000);
    const uint64_t limit = ~uint64_t{0} >> (random() % 12);
    bool any = false;
    for (int32_t i = 0; i < static_cast<int32_t>(kScanBlock); ++i)
      any |= key.bits(first + i) <= limit;
    num_found += any;
    for (const ScanFunctions* set : all_sets())
      EXPECT_EQ(set->any_noise(key.key(), first, limit), any);
  }
  EXPECT_GT(num_found, 50);
  EXPECT_LT(num_found, 350);
}

}  // namespace
}  // namespace invar
