// What stands in a safetensors file and in the index of a sharded model (specs/weights.md section
// 1), parsed from bytes and checked (specs/security.md section 2). Opens nothing and gives no
// meaning to names.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace invar {

struct SafetensorsTensor {
  std::string name;
  std::string dtype;           // as written, one of the format's names
  std::vector<int64_t> shape;  // [] is one element; may hold zeros
  uint64_t begin = 0;          // from the start of the file
  uint64_t num_bytes = 0;
};

struct SafetensorsHeader {
  uint64_t data_begin = 0;
  std::vector<SafetensorsTensor> tensors;  // in the order of their data
};

// `bytes`: the whole file. Errors do not name the file; the caller does.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const uint8_t> bytes);

// model.safetensors.index.json.
struct SafetensorsIndex {
  std::vector<std::string> files;  // each once, sorted; plain file names
  std::vector<std::string> tensor_names;
};
Result<SafetensorsIndex> parse_safetensors_index(std::string_view text);

}  // namespace invar
