// The two readers behind Checkpoint::open, and what they share.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "weights/checkpoint.h"

namespace invar {

Result<std::unique_ptr<Checkpoint>> open_gguf(const std::string& path);

// `folder` holds config.json; `single_file` is the one .safetensors file to read, or empty for all
// that belong to the folder's model.
Result<std::unique_ptr<Checkpoint>> open_safetensors(const std::string& folder,
                                                     const std::string& single_file);

// "model.gguf" of "/a/b/model.gguf", and "/a/b" ("." when there is none).
std::string base_name(const std::string& path);
std::string folder_of(const std::string& path);

// Names in a folder, sorted; empty when it cannot be read.
std::vector<std::string> list_folder(const std::string& folder);

// Asked before a file is opened: opening a pipe would wait for ever.
Result<void> check_regular(const std::string& path);

// An error with the remedy when the bytes are a well-known something else: an HTML page, a Git LFS
// pointer, a pickle.
Result<void> check_not_foreign(const std::string& path, std::span<const uint8_t> bytes);

// A mapped weight file and the end of its header.
struct WeightFile {
  MappedFile file;
  size_t header_bytes = 0;
};
// SHA-256 over `extra`, and of each file its size, its header and samples evenly spread over its
// data.
std::string weight_fingerprint(const std::vector<WeightFile>& files, const std::string& extra);

// Lets the pages of [data, data + size) go in the file that holds them.
void drop_pages_of(const std::vector<WeightFile>& files, const uint8_t* data, size_t size);

}  // namespace invar
