// The header of one GGUF file, parsed from bytes: metadata, vocabulary and where each tensor lies
// (specs/weights.md section 3). Treats the bytes as hostile: whatever it returns has been checked
// against the size of the file. Opens nothing; joining split files is gguf.cc's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "weights/checkpoint.h"

namespace invar {

struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  // Hugging Face order: GGUF's dims reversed
  WeightFormat format = WeightFormat::kF32;
  uint64_t begin = 0;  // from the start of the file
  uint64_t num_bytes = 0;
};

struct GgufFile {
  uint32_t version = 0;
  uint64_t alignment = 32;
  uint64_t data_begin = 0;  // where the header and its padding end, at most the file's size
  Json metadata = Json::object();
  Json generation_config;  // from general.sampling.*, with Hugging Face's names
  std::optional<Checkpoint::GgufVocabulary> vocabulary;
  std::vector<std::pair<std::string, std::string>> chat_templates;
  std::vector<GgufTensor> tensors;
};

// Errors do not name the file; the caller does.
Result<GgufFile> parse_gguf(std::span<const uint8_t> bytes);

}  // namespace invar
