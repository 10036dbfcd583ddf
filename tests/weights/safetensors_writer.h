// SafetensorsWriter and ModelFolder: small Hugging Face and MLX folders for tests.
//
//   ModelFolder folder;                         // a temporary folder, removed with the object
//   folder.write("config.json", "{}");
//   SafetensorsWriter weights;
//   weights.add("norm.weight", "F32", {4}, bytes_of<float>({1, 2, 3, 4}));
//   weights.write(folder.path() + "/model.safetensors");
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace invar::testing {

template <typename T>
std::vector<uint8_t> bytes_of(const std::vector<T>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

class SafetensorsWriter {
 public:
  size_t header_padding = 0;  // extra spaces, to put the data at any alignment

  void add(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape,
           const std::vector<uint8_t>& data) {
    std::string dims;
    for (const int64_t dim : shape) dims += (dims.empty() ? "" : ",") + std::to_string(dim);
    header_ += header_.empty() ? "" : ",";
    header_ += "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + dims +
               "],\"data_offsets\":[" + std::to_string(data_.size()) + "," +
               std::to_string(data_.size() + data.size()) + "]}";
    data_.insert(data_.end(), data.begin(), data.end());
  }
  static std::vector<uint8_t> file(const std::string& header, const std::vector<uint8_t>& data) {
    const uint64_t size = header.size();
    std::vector<uint8_t> bytes(8 + header.size() + data.size());
    std::memcpy(bytes.data(), &size, 8);
    std::memcpy(bytes.data() + 8, header.data(), header.size());
    if (!data.empty()) std::memcpy(bytes.data() + 8 + header.size(), data.data(), data.size());
    return bytes;
  }
  std::vector<uint8_t> bytes() const {
    return file("{" + header_ + "}" + std::string(header_padding, ' '), data_);
  }
  void write(const std::string& path) const {
    const std::vector<uint8_t> all = bytes();
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(all.data()), static_cast<std::streamsize>(all.size()));
  }

 private:
  std::string header_;
  std::vector<uint8_t> data_;
};

class ModelFolder {
 public:
  ModelFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "invar-weights-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~ModelFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(file(name), std::ios::binary) << text;
  }
  void write(const std::string& name, const std::vector<uint8_t>& bytes) const {
    write(name, std::string(bytes.begin(), bytes.end()));
  }

 private:
  std::string path_;
};

}  // namespace invar::testing
