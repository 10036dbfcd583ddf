// From what safetensors files hold to the entries of a Checkpoint: float tensors as they are, the
// three tensors of an MLX affine module as one, and a clear refusal of other quantized layouts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "weights/checkpoint.h"

namespace invar {

struct StoredTensor {
  std::string name;
  std::string dtype;  // safetensors' name
  std::vector<int64_t> shape;
  const uint8_t* data = nullptr;
  std::string file;  // for messages
};

// `config`: config.json, for MLX's "quantization". Names must be unique. Integer buffers that are
// no weights (position ids) are left out.
Result<std::vector<TensorInfo>> fold_tensors(const std::vector<StoredTensor>& stored,
                                             const Json& config);

}  // namespace invar
