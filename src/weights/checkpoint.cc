// Checkpoint::open: finds out what a path holds and hands it to its reader; and what the readers
// share.
#include "weights/checkpoint.h"

#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "weights/readers.h"

namespace invar {

const TensorInfo* Checkpoint::find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

Result<std::unique_ptr<Checkpoint>> Checkpoint::open(const std::string& path) {
  return open_gguf(path);
}

std::string base_name(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string weight_fingerprint(const std::vector<WeightFile>& files, const std::string& extra) {
  constexpr size_t kNumSamples = 128, kSampleBytes = 4096;
  Sha256 hash;
  const auto update_text = [&](const std::string& text) {
    hash.update({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  };
  update_text(format("invar checkpoint 1\n%zu\n", extra.size()));
  update_text(extra);
  for (const WeightFile& weights : files) {
    const std::span<const uint8_t> bytes = weights.file.bytes();
    update_text(format("\n%zu %zu\n", bytes.size(), weights.header_bytes));
    hash.update(bytes.first(weights.header_bytes));
    const std::span<const uint8_t> data = bytes.subspan(weights.header_bytes);
    if (data.size() <= kNumSamples * kSampleBytes) {
      hash.update(data);
      continue;
    }
    const size_t step = (data.size() - kSampleBytes) / (kNumSamples - 1);
    for (size_t i = 0; i < kNumSamples; ++i) hash.update(data.subspan(i * step, kSampleBytes));
  }
  return hash.hex_digest();
}

void drop_pages_of(const std::vector<WeightFile>& files, const uint8_t* data, size_t size) {
  for (const WeightFile& weights : files) {
    const std::span<const uint8_t> bytes = weights.file.bytes();
    if (data < bytes.data() || data >= bytes.data() + bytes.size()) continue;
    weights.file.drop_pages(static_cast<size_t>(data - bytes.data()), size);
    return;
  }
}

}  // namespace invar
