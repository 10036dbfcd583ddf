// What a linear kernel does with its sums before it stores them: plain data, filled on the host.
#pragma once

#include <cstdint>

namespace invar::cuda {

enum class OutputType : uint8_t { kF32, kBF16 };
enum class GateActivation : uint8_t { kSilu, kGeluTanh };

struct Epilogue {
  void* y = nullptr;  // [num_tokens, num_rows]
  int64_t y_stride = 0;
  OutputType y_type = OutputType::kF32;
  const float* bias = nullptr;      // [num_rows]
  const float* residual = nullptr;  // [num_tokens, num_rows]; may be y
  int64_t residual_stride = 0;
  float softcap = 0;  // > 0: y becomes softcap * tanh(y / softcap) (the head)
  GateActivation activation = GateActivation::kSilu;  // of a gated matrix
};

}  // namespace invar::cuda
