// A made-up model for the tests of the packed cache: weight files, sections derived from them, and
// a load that does what a backend does.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cache/packed_cache.h"
#include "cache/temporary_folder.h"

namespace invar::testing {

namespace fs = std::filesystem;

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<long>(bytes.size()));
}

inline std::string file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::string random_bytes(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

// "Packing" turns every byte of the weights around and adds the section's number.
struct FakeModel {
  std::string weights;  // path
  std::vector<size_t> section_bytes;
  std::string fingerprint = std::string(64, 'a');
  std::string layout = "test-1";

  std::vector<uint8_t> packed(size_t section) const {
    const std::string source = file_bytes(weights);
    std::vector<uint8_t> bytes(section_bytes[section]);
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<uint8_t>(~static_cast<uint8_t>(source[i % source.size()]) + section);
    return bytes;
  }

  PackedCacheOptions options(const std::string& folder) const {
    PackedCacheOptions options;
    options.folder = folder;
    options.max_bytes = uint64_t{1} << 30;
    options.backend = "cpu";
    options.layout = layout;
    options.fingerprint = fingerprint;
    options.source.paths = {weights};
    const auto state = file_state(weights);
    EXPECT_TRUE(state.ok());
    options.source.states = {*state};
    return options;
  }
};

struct Loaded {
  bool was_filled = false;
  size_t num_read = 0, num_packed = 0;
  DiskPackedCache::State state = DiskPackedCache::State::kNotWritten;
};

// Loads the model as pack.cc does and waits for the writer. Every section must hold what packing
// would have given: that is the promise under test.
inline Loaded load(const FakeModel& model, PackedCacheOptions options) {
  Loaded loaded;
  std::unique_ptr<DiskPackedCache> cache = DiskPackedCache::open(std::move(options));
  if (cache == nullptr) return loaded;
  loaded.was_filled = cache->is_filled();
  ThreadPool pool(1);
  for (size_t i = 0; i < model.section_bytes.size(); ++i) {
    const size_t size = model.section_bytes[i];
    const std::vector<uint8_t> expected = model.packed(i);
    const std::string name = "section of \xff tensor " + std::to_string(i % 2);
    std::shared_ptr<const uint8_t[]> memory = cache->find(name, size, pool);
    if (memory != nullptr) {
      ++loaded.num_read;
    } else {
      ++loaded.num_packed;
      const std::shared_ptr<uint8_t[]> packed(new uint8_t[size]);
      std::memcpy(packed.get(), expected.data(), size);
      memory = packed;
      cache->keep(name, memory, size);
    }
    EXPECT_EQ(std::memcmp(memory.get(), expected.data(), size), 0) << "wrong bytes in " << i;
  }
  cache->finish();
  cache->wait();
  loaded.state = cache->state();
  return loaded;
}
inline Loaded load(const FakeModel& model, const std::string& folder) {
  return load(model, model.options(folder));
}

inline std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace invar::testing
