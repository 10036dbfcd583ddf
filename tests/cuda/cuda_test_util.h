// What the CUDA tests share: device buffers, random matrices of every weight format, bit
// comparison.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "backend/cuda/cuda_check.h"
#include "backend/cuda/pack.h"

namespace invar::cuda {

using Bf16 = uint16_t;  // bits

template <typename T>
class DeviceBuffer {
 public:
  // Filled with 0xff: a NaN in every float type, so that reading what was not written shows.
  explicit DeviceBuffer(size_t count) : count_(count) {
    CUDA_CHECK(
        cudaMalloc(reinterpret_cast<void**>(&data_), std::max<size_t>(count, 1) * sizeof(T)));
    poison();
  }
  explicit DeviceBuffer(const std::vector<T>& values) : DeviceBuffer(values.size()) { set(values); }
  ~DeviceBuffer() { cudaFree(data_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  void poison() { CUDA_CHECK(cudaMemset(data_, 0xff, count_ * sizeof(T))); }
  void set(const std::vector<T>& values) {
    CUDA_CHECK(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  std::vector<T> get() const {
    std::vector<T> values(count_);
    CUDA_CHECK(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }
  T* data() const { return data_; }

 private:
  T* data_ = nullptr;
  size_t count_ = 0;
};

inline float bf16_value(Bf16 bits) { return bf16_to_f32(bits); }

struct Random {
  std::mt19937_64 engine;
  explicit Random(uint64_t seed) : engine(seed) {}
  uint32_t bits() { return static_cast<uint32_t>(engine() >> 32); }
  int below(int n) { return static_cast<int>(bits() % static_cast<uint32_t>(n)); }
  double uniform() { return bits() * 0x1p-32; }
  double normal() {
    double sum = 0;
    for (int i = 0; i < 6; ++i) sum += uniform() - 0.5;
    return sum * 1.41421356;
  }
};

// Rows of activations: about N(0, 1) with a few large values, as models have.
inline std::vector<Bf16> random_rows(Random& random, int64_t count, double scale = 1) {
  std::vector<Bf16> x(static_cast<size_t>(count));
  for (Bf16& v : x)
    v = bf16_rn(static_cast<float>(random.normal() * scale * (random.below(997) == 0 ? 20 : 1)));
  return x;
}

// A matrix in a checkpoint format, with its bytes.
struct TestMatrix {
  MatrixView view;
  std::vector<uint8_t> bytes, scales, biases;
};

inline void put_f16(uint8_t* p, double v) {
  const uint16_t bits = f32_to_f16(static_cast<float>(v));
  std::memcpy(p, &bits, 2);
}

inline TestMatrix random_matrix(WeightFormat format, int64_t rows, int64_t cols, uint64_t seed,
                                double sigma = 0.02) {
  Random random(seed);
  TestMatrix m;
  m.view.name = "test";
  m.view.format = format;
  m.view.num_rows = rows;
  m.view.num_cols = cols;
  auto scale = [&](double range) { return sigma / range * (0.5 + random.uniform()); };
  if (format == WeightFormat::kMlxAffine) {
    m.view.bits = 4;
    m.view.group_size = 64;
    m.view.scale_dtype = DType::kBF16;
    m.view.row_bytes = cols / 2;
    m.bytes.resize(static_cast<size_t>(rows * m.view.row_bytes));
    for (uint8_t& b : m.bytes) b = static_cast<uint8_t>(random.bits());
    const size_t groups = static_cast<size_t>(rows * cols / 64);
    m.scales.resize(2 * groups);
    m.biases.resize(2 * groups);
    for (size_t i = 0; i < groups; ++i) {
      const double s = scale(4.6) * (random.below(2) ? 1 : -1);
      const Bf16 sb = bf16_rn(static_cast<float>(s)), bb = bf16_rn(static_cast<float>(-7.5 * s));
      std::memcpy(&m.scales[2 * i], &sb, 2);
      std::memcpy(&m.biases[2 * i], &bb, 2);
    }
  } else {
    const BlockShape shape = block_shape(format);
    m.view.row_bytes = cols / shape.num_elements * shape.num_bytes;
    m.bytes.resize(static_cast<size_t>(rows * m.view.row_bytes));
    for (uint8_t& b : m.bytes) b = static_cast<uint8_t>(random.bits());
    for (size_t at = 0; at < m.bytes.size(); at += static_cast<size_t>(shape.num_bytes)) {
      uint8_t* b = m.bytes.data() + at;
      switch (format) {
        case WeightFormat::kBF16: {
          const Bf16 v = bf16_rn(static_cast<float>(random.normal() * sigma));
          std::memcpy(b, &v, 2);
          break;
        }
        case WeightFormat::kF16:
          put_f16(b, random.normal() * sigma);
          break;
        case WeightFormat::kF32: {
          const auto v = static_cast<float>(random.normal() * sigma);
          std::memcpy(b, &v, 4);
          break;
        }
        case WeightFormat::kQ4_1:
        case WeightFormat::kQ5_1: {
          const double s = scale(format == WeightFormat::kQ4_1 ? 4.6 : 9.2);
          put_f16(b, s);
          put_f16(b + 2, -s * (format == WeightFormat::kQ4_1 ? 7.5 : 15.5));
          break;
        }
        case WeightFormat::kQ4_0:
        case WeightFormat::kQ5_0:
          put_f16(b, scale(format == WeightFormat::kQ4_0 ? 4.6 : 9.2));
          break;
        case WeightFormat::kQ8_0:
          put_f16(b, scale(73));
          break;
        case WeightFormat::kQ4_K:
        case WeightFormat::kQ5_K:
          put_f16(b, scale(150));
          put_f16(b + 2, scale(20));
          break;
        case WeightFormat::kQ6_K:
          put_f16(b + 208, scale(1000));
          break;
        default:
          ADD_FAILURE() << "no generator for " << format_name(format);
      }
    }
  }
  m.view.data = m.bytes.data();
  m.view.scales = m.scales.data();
  m.view.biases = m.biases.data();
  return m;
}

// Packed on the host, copied to the device.
struct DeviceMatrix {
  HostPacked host;
  DeviceBuffer<uint8_t> bytes;
  PackedMatrix matrix;
  explicit DeviceMatrix(HostPacked packed)
      : host(std::move(packed)),
        bytes(std::vector<uint8_t>(host.bytes.get(), host.bytes.get() + host.num_bytes)),
        matrix(host.matrix) {
    matrix.data = bytes.data();
    host.matrix.data = host.bytes.get();
  }
};

inline HostPacked packed_or_die(std::vector<MatrixView> parts, PackOptions options = {}) {
  auto result = pack_matrix(parts, options);
  EXPECT_TRUE(result.ok());
  return *std::move(result);
}

// W of a matrix under the contract, [rows, cols].
inline std::vector<Bf16> weights_of(const MatrixView& m) {
  std::vector<Bf16> w(static_cast<size_t>(m.num_rows * m.num_cols));
  for (int64_t r = 0; r < m.num_rows; ++r) weight_row_bf16(m, r, w.data() + r * m.num_cols);
  return w;
}

inline bool same_weight(Bf16 a, Bf16 b) {  // a zero has no sign that matters
  return a == b || ((a | b) & 0x7fff) == 0;
}

template <typename T>
int64_t count_different(const T* a, const T* b, int64_t n) {
  int64_t different = 0;
  for (int64_t i = 0; i < n; ++i) different += std::memcmp(a + i, b + i, sizeof(T)) != 0;
  return different;
}

}  // namespace invar::cuda
