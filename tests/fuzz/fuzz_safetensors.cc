// Safetensors headers, indexes, and the folding of tensors (MLX modules, foreign layouts) on
// arbitrary bytes. What begins with '{' and has no zero where a header's size would is taken for an
// index. Seeds: corpus/safetensors, made by tools/make_weight_seeds.py.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "weights/hf_tensors.h"
#include "weights/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size >= 8 && data[0] == '{' && data[7] != 0) {
    const auto index = invar::parse_safetensors_index({reinterpret_cast<const char*>(data), size});
    if (index)
      for (const std::string& file : index->files)
        INVAR_CHECK(file.find('/') == std::string::npos && file[0] != '.', "a path in an index");
    return 0;
  }
  const auto header = invar::parse_safetensors_header({data, size});
  if (!header) return 0;
  std::vector<invar::StoredTensor> stored;
  for (const invar::SafetensorsTensor& tensor : header->tensors) {
    INVAR_CHECK(tensor.begin <= size && tensor.num_bytes <= size - tensor.begin,
                "a tensor's range");
    stored.push_back({tensor.name, tensor.dtype, tensor.shape, data + tensor.begin, "fuzz"});
  }
  const auto folded = invar::fold_tensors(stored, invar::Json::object());
  if (!folded) return 0;
  for (const invar::TensorInfo& tensor : *folded) {
    std::vector<float> row(static_cast<size_t>(tensor.matrix.num_cols));
    invar::dequantize_row(tensor.matrix, 0, row.data());
    invar::dequantize_row(tensor.matrix, tensor.matrix.num_rows - 1, row.data());
  }
  return 0;
}
