// The sampler's passes over a whole vocabulary, compiled for more than one instruction set (scan.cc
// and scan_avx2.cc) to the same bits: lanes are fixed, nothing is fused or reordered.
#pragma once

#include <cstddef>
#include <cstdint>

namespace invar {

// Every pass that turns ids away works by blocks of so many ids and the largest score of each.
inline constexpr size_t kScanBlock = 64;

struct ScanFunctions {
  // Whether all are finite; copies them to `to` where that is not null.
  bool (*copy_finite)(const float* values, size_t count, float* to);
  // maxima[b] = the largest of block b; gives the largest of all.
  float (*block_maxima)(const float* values, size_t count, float* maxima);
  // One block: scores[i] = (values[i] - shift) / divisor and weights[i] = e^scores[i].
  void (*weigh_block)(const float* values, size_t count, float shift, float divisor, float* scores,
                      float* weights);
  // Sum of e^((values[i] - shift) / divisor), no value above shift: eight lanes in ascending order,
  // then lane by lane.
  double (*sum_exp)(const float* values, size_t count, float shift, float divisor);
  // Whether any of the kScanBlock ids from `first` on has noise bits <= limit (random.h).
  bool (*any_noise)(uint64_t key, int32_t first, uint64_t limit);
};

const ScanFunctions& scan();

namespace scan_plain {
extern const ScanFunctions kFunctions;
}
#if defined(__x86_64__)
namespace scan_avx2 {
extern const ScanFunctions kFunctions;
}
#endif

}  // namespace invar
