// GgufWriter: writes small GGUF files for tests, good ones and, through fields(), broken ones.
//
//   GgufWriter gguf;
//   gguf.add("general.architecture", "llama");
//   gguf.add("llama.block_count", uint32_t{2});
//   gguf.add_array<float>("tokenizer.ggml.scores", {0, -1, -2});
//   gguf.add_strings("tokenizer.ggml.tokens", {"a", "b", "c"});
//   gguf.add_f32("output_norm.weight", {64}, values);                  // shape as Hugging Face has
//   it gguf.add_tensor("output.weight", {16, 64}, 8 /* Q8_0 */, blocks);  // bytes as stored
//   gguf.write(path);
//
// Written from specs/weights.md section 3.1, apart from the reader: it shares no code with it.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <type_traits>
#include <vector>

namespace invar::testing {

class GgufWriter {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;  // of the data; add() the key "general.alignment" yourself

  // Where a number or a text stands in the last bytes().
  struct Field {
    size_t offset;
    size_t size;
    bool is_number;
  };

  void add(const std::string& key, const std::string& value) {
    Part kv = begin_key(key, 8);
    kv.text(value);
    keys_.push_back(kv);
  }
  void add(const std::string& key, const char* value) { add(key, std::string(value)); }
  // T: (u)int8_t to (u)int64_t, float, double, bool.
  template <typename T>
    requires std::is_arithmetic_v<T>
  void add(const std::string& key, T value) {
    Part kv = begin_key(key, type_id<T>());
    kv.number(value);
    keys_.push_back(kv);
  }
  template <typename T>
  void add_array(const std::string& key, const std::vector<T>& values) {
    Part kv = begin_array(key, type_id<T>(), values.size());
    for (const T value : values) kv.number(value);
    keys_.push_back(kv);
  }
  void add_strings(const std::string& key, const std::vector<std::string>& values) {
    Part kv = begin_array(key, 8, values.size());
    for (const std::string& value : values) kv.text(value);
    keys_.push_back(kv);
  }
  // An array of arrays of T.
  template <typename T>
  void add_nested(const std::string& key, const std::vector<std::vector<T>>& values) {
    Part kv = begin_array(key, 9, values.size());
    for (const std::vector<T>& inner : values) {
      kv.number(type_id<T>());
      kv.number(uint64_t{inner.size()});
      for (const T value : inner) kv.number(value);
    }
    keys_.push_back(kv);
  }
  // A value of any type id, its bytes as given.
  void add_raw(const std::string& key, uint32_t type, const std::vector<uint8_t>& value) {
    Part kv = begin_key(key, type);
    kv.bytes.insert(kv.bytes.end(), value.begin(), value.end());
    keys_.push_back(kv);
  }

  void add_tensor(const std::string& name, const std::vector<int64_t>& shape, uint32_t type,
                  const std::vector<uint8_t>& data) {
    Part info;
    info.text(name);
    info.number(static_cast<uint32_t>(shape.size()));
    for (size_t i = shape.size(); i-- > 0;) info.number(static_cast<uint64_t>(shape[i]));
    info.number(type);
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    info.number(uint64_t{data_.size()});
    data_.insert(data_.end(), data.begin(), data.end());
    tensors_.push_back(info);
  }
  void add_f32(const std::string& name, const std::vector<int64_t>& shape,
               const std::vector<float>& values) {
    std::vector<uint8_t> data(values.size() * 4);
    std::memcpy(data.data(), values.data(), data.size());
    add_tensor(name, shape, 0, data);
  }

  std::vector<uint8_t> bytes() {
    Part file;
    file.bytes = {'G', 'G', 'U', 'F'};
    file.fields.push_back({0, 4, true});
    file.number(version);
    file.number(uint64_t{tensors_.size()});
    file.number(uint64_t{keys_.size()});
    for (const Part& part : keys_) file.append(part);
    for (const Part& part : tensors_) file.append(part);
    file.bytes.resize((file.bytes.size() + alignment - 1) / alignment * alignment);
    header_bytes_ = file.bytes.size();
    file.bytes.insert(file.bytes.end(), data_.begin(), data_.end());
    fields_ = file.fields;
    return file.bytes;
  }
  void write(const std::string& path) {
    const std::vector<uint8_t> all = bytes();
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(all.data()), static_cast<std::streamsize>(all.size()));
  }

  // Of the last bytes() or write().
  const std::vector<Field>& fields() const { return fields_; }
  size_t header_bytes() const { return header_bytes_; }

 private:
  struct Part {
    std::vector<uint8_t> bytes;
    std::vector<Field> fields;

    template <typename T>
    void number(T value) {
      fields.push_back({bytes.size(), sizeof(T), true});
      const auto* raw = reinterpret_cast<const uint8_t*>(&value);
      bytes.insert(bytes.end(), raw, raw + sizeof(T));
    }
    void text(const std::string& value) {
      number(uint64_t{value.size()});
      fields.push_back({bytes.size(), value.size(), false});
      bytes.insert(bytes.end(), value.begin(), value.end());
    }
    void append(const Part& part) {
      for (Field field : part.fields) {
        field.offset += bytes.size();
        fields.push_back(field);
      }
      bytes.insert(bytes.end(), part.bytes.begin(), part.bytes.end());
    }
  };

  template <typename T>
  static uint32_t type_id() {
    if constexpr (std::is_same_v<T, bool>) return 7;
    if constexpr (std::is_same_v<T, float>) return 6;
    if constexpr (std::is_same_v<T, double>) return 12;
    const uint32_t is_signed = std::is_signed_v<T> ? 1 : 0;
    switch (sizeof(T)) {
      case 1:
        return 0 + is_signed;
      case 2:
        return 2 + is_signed;
      case 4:
        return 4 + is_signed;
      default:
        return 10 + is_signed;
    }
  }
  static Part begin_key(const std::string& key, uint32_t type) {
    Part kv;
    kv.text(key);
    kv.number(type);
    return kv;
  }
  static Part begin_array(const std::string& key, uint32_t element_type, size_t count) {
    Part kv = begin_key(key, 9);
    kv.number(element_type);
    kv.number(uint64_t{count});
    return kv;
  }

  std::vector<Part> keys_;
  std::vector<Part> tensors_;
  std::vector<uint8_t> data_;
  std::vector<Field> fields_;
  size_t header_bytes_ = 0;
};

}  // namespace invar::testing
