// Shared by the tests of the cpu backend's row ops and attention: random rows, bit comparison, and
// which instruction sets this machine can test.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "backend/cpu/isa.h"
#include "tensor/tensor.h"

namespace invar::cpu {

inline std::vector<Isa> testable_isas() {
  static bool said = false;
  std::vector<Isa> isas;
  for (Isa isa : all_isas()) {
    if (isa_available(isa)) {
      isas.push_back(isa);
    } else if (!said) {
      std::printf("not run: %s, which this CPU lacks\n", isa_name(isa));
    }
  }
  said = true;
  return isas;
}

inline Isa best_isa() { return choose_isa("").value().isa; }

inline std::vector<float> random_floats(size_t count, uint32_t seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  for (float& v : values) v = normal(random);
  return values;
}

inline Tensor tensor_of(std::vector<float>& values, int64_t num_cols) {
  Tensor t;
  t.data = values.data();
  t.num_cols = t.row_stride = num_cols;
  t.num_rows = static_cast<int64_t>(values.size()) / num_cols;
  return t;
}

// Equal bits; any NaN equals any NaN.
inline bool same_bits(const float* a, const float* b, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if (std::memcmp(a + i, b + i, 4) != 0 && !(a[i] != a[i] && b[i] != b[i])) return false;
  return true;
}
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && same_bits(a.data(), b.data(), static_cast<int64_t>(a.size()));
}

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace invar::cpu
