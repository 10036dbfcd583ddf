// Weight files that a test changes: read whole, edited in memory, written to a temporary folder.
// Only what the golden files have: safetensors of floats, GGUF version 3.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "models/harness.h"
#include "tensor/quant.h"

namespace invar::testing {

// A folder that goes away with its files.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    path_ = ::testing::TempDir() + "invar_weights_XXXXXX";
    EXPECT_NE(::mkdtemp(path_.data()), nullptr);
  }
  ~TemporaryFolder() {
    for (const char* name : {"/config.json", "/model.safetensors", "/model.gguf"})
      std::remove((path_ + name).c_str());
    std::remove(path_.c_str());
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct EditedTensor {
  std::string type;            // safetensors: "F32", "BF16"
  uint32_t gguf_type = 0;      // GGUF: 0 F32, 30 BF16
  std::vector<int64_t> shape;  // Hugging Face's order
  std::string bytes;

  int64_t num_rows() const { return shape.size() > 1 ? shape[shape.size() - 2] : 1; }
  size_t num_matrices() const { return shape.size() > 2 ? static_cast<size_t>(shape[0]) : 1; }
};

// As fp32, `add` on each value.
inline EditedTensor with_added(const EditedTensor& tensor, float add) {
  EditedTensor result = tensor;
  const bool is_bf16 = tensor.type == "BF16";
  const size_t count = tensor.bytes.size() / (is_bf16 ? 2 : 4);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    uint16_t half;
    std::memcpy(&half, tensor.bytes.data() + i * 2, 2);
    if (is_bf16)
      values[i] = bf16_to_f32(half);
    else
      std::memcpy(&values[i], tensor.bytes.data() + i * 4, 4);
    values[i] += add;
  }
  result.type = "F32";
  result.bytes.assign(reinterpret_cast<const char*>(values.data()), count * 4);
  return result;
}

// A part of a tensor's bytes: matrix `m` of `num_matrices` that lie one behind the other.
inline std::string part_of(const EditedTensor& tensor, size_t m, size_t num_matrices) {
  const size_t size = tensor.bytes.size() / num_matrices;
  return tensor.bytes.substr(m * size, size);
}

// A Hugging Face folder.
class EditedSafetensors {
 public:
  explicit EditedSafetensors(const std::string& golden) {
    config = *Json::parse(*read_file(golden_path(golden) + "/config.json", 1 << 20));
    const std::string bytes = *read_file(golden_path(golden) + "/model.safetensors", 1 << 24);
    uint64_t header_size;
    std::memcpy(&header_size, bytes.data(), 8);
    const Json header = *Json::parse(bytes.substr(8, header_size));
    for (const auto& [name, entry] : header.members()) {
      if (name == "__metadata__") continue;
      EditedTensor tensor;
      tensor.type = entry.find("dtype")->as_string();
      for (const Json& dim : entry.find("shape")->items()) tensor.shape.push_back(dim.as_int());
      const auto& offsets = entry.find("data_offsets")->items();
      const auto begin = static_cast<size_t>(offsets[0].as_int());
      tensor.bytes =
          bytes.substr(8 + header_size + begin, static_cast<size_t>(offsets[1].as_int()) - begin);
      tensors.emplace(name, std::move(tensor));
    }
  }

  // The path of the folder, with what `config` and `tensors` are now.
  const std::string& write() {
    std::ofstream(folder_.path() + "/config.json") << config.dump(1);
    Json header = Json::object();
    std::string data;
    for (const auto& [name, tensor] : tensors) {
      Json entry = Json::object(), shape = Json::array(), offsets = Json::array();
      for (const int64_t dim : tensor.shape) shape.push_back(dim);
      offsets.push_back(static_cast<int64_t>(data.size()));
      data += tensor.bytes;
      offsets.push_back(static_cast<int64_t>(data.size()));
      entry.set("dtype", tensor.type);
      entry.set("shape", std::move(shape));
      entry.set("data_offsets", std::move(offsets));
      header.set(name, std::move(entry));
    }
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const uint64_t size = text.size();
    std::ofstream out(folder_.path() + "/model.safetensors", std::ios::binary);
    out.write(reinterpret_cast<const char*>(&size), 8);
    out << text << data;
    return folder_.path();
  }

  Json config;
  std::map<std::string, EditedTensor> tensors;

 private:
  TemporaryFolder folder_;
};

// What mlx-lm makes of a folder, in floats: other names, the convolution turned round, 1 added to
// the gains of the model's norms and not to the DeltaNet's own, experts stacked a matrix each.
inline void make_mlx(EditedSafetensors& folder) {
  std::map<std::string, EditedTensor> turned;
  for (auto& [name, tensor] : folder.tensors) {
    std::string other = name;
    if (other.starts_with("model.language_model."))
      other = "language_model.model." + other.substr(21);
    else if (!other.starts_with("model.visual."))
      other = "language_model." + other;
    if (name.ends_with("conv1d.weight")) std::swap(tensor.shape[1], tensor.shape[2]);
    const bool is_gain = name.ends_with("norm.weight") ||
                         name.find("layernorm") != std::string::npos ||
                         name.find("pre_fc_norm") != std::string::npos;
    if (is_gain && name.find("linear_attn") == std::string::npos) tensor = with_added(tensor, 1);
    if (name.ends_with("experts.gate_up_proj") || name.ends_with("experts.down_proj")) {
      const std::string stem = other.substr(0, other.rfind("experts."));
      const size_t num_experts = tensor.num_matrices();
      const bool is_down = name.ends_with("down_proj");
      for (size_t half = 0; half < (is_down ? 1u : 2u); ++half) {
        EditedTensor stack = tensor;
        if (!is_down) {
          stack.shape[1] /= 2;
          stack.bytes.clear();
          for (size_t e = 0; e < num_experts; ++e)
            stack.bytes += part_of(tensor, 2 * e + half, 2 * num_experts);
        }
        const char* which = is_down ? "down_proj" : half == 0 ? "gate_proj" : "up_proj";
        turned.emplace(stem + "switch_mlp." + which + ".weight", std::move(stack));
      }
      continue;
    }
    turned.emplace(other, std::move(tensor));
  }
  folder.tensors = std::move(turned);
}

// A GGUF file whose tensors change and whose integer keys may.
class EditedGguf {
 public:
  explicit EditedGguf(const std::string& golden) {
    bytes_ = *read_file(golden_path(golden) + "/model.gguf", 1 << 24);
    at_ = 8;
    const auto num_tensors = take<uint64_t>();
    num_keys_ = take<uint64_t>();
    const size_t keys_begin = at_;
    for (uint64_t i = 0; i < num_keys_; ++i) {
      const std::string key = take_string();
      const auto kind = take<uint32_t>();
      if (kind == 4) key_at_[key] = at_ - keys_begin;
      skip_value(kind);
    }
    keys_ = bytes_.substr(keys_begin, at_ - keys_begin);
    std::vector<std::pair<std::string, uint64_t>> offsets;
    for (uint64_t i = 0; i < num_tensors; ++i) {
      const std::string name = take_string();
      EditedTensor tensor;
      tensor.shape.resize(take<uint32_t>());
      for (size_t d = tensor.shape.size(); d-- > 0;)
        tensor.shape[d] = static_cast<int64_t>(take<uint64_t>());
      tensor.gguf_type = take<uint32_t>();
      EXPECT_TRUE(tensor.gguf_type == 0 || tensor.gguf_type == 30) << name;
      offsets.emplace_back(name, take<uint64_t>());
      tensors.emplace(name, std::move(tensor));
    }
    const size_t data = aligned(at_);
    for (const auto& [name, offset] : offsets) {
      EditedTensor& tensor = tensors.at(name);
      size_t size = tensor.gguf_type == 0 ? 4 : 2;
      for (const int64_t dim : tensor.shape) size *= static_cast<size_t>(dim);
      tensor.bytes = bytes_.substr(data + offset, size);
    }
  }

  // A key of type uint32.
  void set(const std::string& key, uint32_t value) {
    ASSERT_TRUE(key_at_.contains(key)) << key;
    std::memcpy(keys_.data() + key_at_[key], &value, 4);
  }

  std::string write() {
    std::string head = bytes_.substr(0, 8);
    put(head, uint64_t{tensors.size()});
    put(head, num_keys_);
    head += keys_;
    std::string data;
    for (const auto& [name, tensor] : tensors) {
      put(head, uint64_t{name.size()});
      head += name;
      put(head, static_cast<uint32_t>(tensor.shape.size()));
      for (size_t d = tensor.shape.size(); d-- > 0;)
        put(head, static_cast<uint64_t>(tensor.shape[d]));
      put(head, tensor.gguf_type);
      put(head, uint64_t{data.size()});
      data += tensor.bytes;
      data.resize(aligned(data.size()));
    }
    head.resize(aligned(head.size()));
    const std::string path = folder_.path() + "/model.gguf";
    std::ofstream(path, std::ios::binary) << head << data;
    return path;
  }

  std::map<std::string, EditedTensor> tensors;

 private:
  static size_t aligned(size_t size) { return (size + 31) / 32 * 32; }
  template <typename T>
  T take() {
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  template <typename T>
  static void put(std::string& to, T value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  std::string take_string() {
    const auto size = take<uint64_t>();
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  void skip_value(uint32_t kind) {
    constexpr size_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (kind == 8) {
      take_string();
    } else if (kind == 9) {
      const auto item = take<uint32_t>();
      const auto count = take<uint64_t>();
      for (uint64_t i = 0; i < count; ++i) skip_value(item);
    } else {
      at_ += kSizes[kind];
    }
  }

  TemporaryFolder folder_;
  std::string bytes_, keys_;
  size_t at_ = 0;
  uint64_t num_keys_ = 0;
  std::map<std::string, size_t> key_at_;
};

}  // namespace invar::testing
