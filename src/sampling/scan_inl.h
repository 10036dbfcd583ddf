// The bodies of scan.h, written so that compilers vectorise them. INVAR_SCAN_SET names the
// namespace, and nothing of the standard library's inline functions is used, so that no function of
// one instruction set is linked in place of another's.
#include "sampling/random.h"
#include "sampling/scan.h"

namespace invar::INVAR_SCAN_SET {
namespace {

constexpr size_t kLanes = 8;
constexpr float kMinusInf = -__builtin_inff();
constexpr float kExpLow = -88.0f;  // e^x is 0 there (random.h)

bool copy_finite(const float* values, size_t count, float* to) {
  uint32_t bad[kLanes] = {};
  const auto is_bad = [](float x) {
    return static_cast<uint32_t>((__builtin_bit_cast(uint32_t, x) & 0x7f800000u) == 0x7f800000u);
  };
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (size_t j = 0; j < kLanes; ++j) bad[j] |= is_bad(values[i + j]);
  uint32_t any = 0;
  for (; i < count; ++i) any |= is_bad(values[i]);
  for (const uint32_t lane : bad) any |= lane;
  if (to != nullptr && count > 0) __builtin_memcpy(to, values, count * sizeof(float));
  return any == 0;
}

float larger(float a, float b) { return a > b ? a : b; }

float block_maxima(const float* values, size_t count, float* maxima) {
  float result = kMinusInf;
  for (size_t begin = 0; begin < count; begin += kScanBlock) {
    const float* block = values + begin;
    float most = kMinusInf;
    if (count - begin >= kScanBlock) {
      float lanes[kLanes];
      for (size_t j = 0; j < kLanes; ++j) lanes[j] = block[j];
      for (size_t i = kLanes; i < kScanBlock; i += kLanes)
        for (size_t j = 0; j < kLanes; ++j) lanes[j] = larger(block[i + j], lanes[j]);
      for (size_t j = 0; j < 4; ++j) lanes[j] = larger(lanes[j], lanes[j + 4]);
      most = larger(larger(lanes[0], lanes[1]), larger(lanes[2], lanes[3]));
    } else {
      for (size_t i = 0; begin + i < count; ++i) most = larger(block[i], most);
    }
    maxima[begin / kScanBlock] = most;
    result = larger(most, result);
  }
  return result;
}

// Two passes: with both in one, GCC turns the clamp into a branch and gives vectors up.
__attribute__((always_inline)) inline void weigh(const float* values, size_t count, float shift,
                                                 float divisor, float* scores, float* weights) {
  for (size_t i = 0; i < count; ++i) {
    const float score = (values[i] - shift) / divisor;
    scores[i] = score;
    weights[i] = score < kExpLow ? kExpLow : score;
  }
  for (size_t i = 0; i < count; ++i) weights[i] = exp_clamped(weights[i]);
}

void weigh_block(const float* values, size_t count, float shift, float divisor, float* scores,
                 float* weights) {
  weigh(values, count, shift, divisor, scores, weights);
}

double sum_exp(const float* values, size_t count, float shift, float divisor) {
  constexpr size_t kBlock = 256;
  double lanes[kLanes] = {};
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t n = count - begin < kBlock ? count - begin : kBlock;
    float scores[kBlock], weights[kBlock];
    weigh(values + begin, n, shift, divisor, scores, weights);
    for (size_t j = n; j < kBlock; ++j) weights[j] = 0;
    for (size_t j = 0; j < kBlock; j += kLanes)
      for (size_t lane = 0; lane < kLanes; ++lane)
        lanes[lane] += static_cast<double>(weights[j + lane]);
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

bool any_noise(uint64_t key, int32_t first, uint64_t limit) {
  uint64_t any = 0;
  const uint64_t start = noise_state(key, first);
  for (uint64_t i = 0; i < kScanBlock; ++i)
    any |= static_cast<uint64_t>(mix64(start + i * kNoiseStep) <= limit);
  return any != 0;
}

}  // namespace

extern const ScanFunctions kFunctions = {copy_finite, block_maxima, weigh_block, sum_exp,
                                         any_noise};

}  // namespace invar::INVAR_SCAN_SET
