#include "weights/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/json.h"
#include "base/log.h"
#include "weights/checked.h"

namespace invar {
namespace {

constexpr uint64_t kMaxHeaderBytes = 32ull << 20;
constexpr uint64_t kMaxTensors = 262'144;
constexpr size_t kMaxDims = 8;
constexpr JsonLimits kHeaderLimits = {.max_depth = 8, .max_nodes = 2'500'000};
constexpr JsonLimits kIndexLimits = {.max_depth = 8, .max_nodes = 600'000};

struct DtypeBits {
  const char* name;
  uint64_t bits;
};
constexpr DtypeBits kDtypes[] = {
    {"BOOL", 8},        {"U8", 8},          {"I8", 8},   {"F8_E4M3", 8}, {"F8_E5M2", 8},
    {"F8_E8M0", 8},     {"I16", 16},        {"U16", 16}, {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},        {"F32", 32}, {"I64", 64},    {"U64", 64},
    {"F64", 64},        {"C64", 64},        {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6},
    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
};

unsigned long long ull(uint64_t value) { return value; }

Result<uint64_t> size_field(const Json& value, const char* what) {
  if (!value.is_int() || value.as_int() < 0)
    return corrupt("%s holds %s, expected integers from 0 up", what,
                   value.dump().substr(0, 40).c_str());
  return static_cast<uint64_t>(value.as_int());
}

Result<SafetensorsTensor> tensor_entry(const std::string& name, const Json& entry) {
  SafetensorsTensor tensor;
  tensor.name = name;
  INVAR_TRY(tensor.dtype, entry.required<std::string>("dtype"));
  const auto* dtype = std::ranges::find_if(
      kDtypes, [&](const DtypeBits& known) { return tensor.dtype == known.name; });
  if (dtype == std::end(kDtypes))
    return unsupported("has the unknown dtype '%s'",
                       escape_control(tensor.dtype).substr(0, 40).c_str());

  const Json* shape = entry.find("shape");
  if (shape == nullptr || !shape->is_array() || shape->items().size() > kMaxDims)
    return corrupt("'shape' is no array of at most %zu dimensions", kMaxDims);
  Checked num_elements(1);
  for (const Json& item : shape->items()) {
    INVAR_TRY(const uint64_t dim, size_field(item, "'shape'"));
    num_elements = num_elements * Checked(dim);
    tensor.shape.push_back(static_cast<int64_t>(dim));
  }
  const Checked num_bits = num_elements * Checked(dtype->bits);

  const Json* offsets = entry.find("data_offsets");
  if (offsets == nullptr || !offsets->is_array() || offsets->items().size() != 2)
    return corrupt("'data_offsets' is no array of two integers");
  INVAR_TRY(tensor.begin, size_field(offsets->items()[0], "'data_offsets'"));
  INVAR_TRY(const uint64_t end, size_field(offsets->items()[1], "'data_offsets'"));
  if (end < tensor.begin)
    return corrupt("'data_offsets' end at %llu, before their begin %llu", ull(end),
                   ull(tensor.begin));
  tensor.num_bytes = end - tensor.begin;
  if (!num_bits.ok() || num_bits.value() % 8 != 0 || num_bits.value() / 8 != tensor.num_bytes)
    return corrupt("has %llu bytes, its %s shape %s needs another number", ull(tensor.num_bytes),
                   tensor.dtype.c_str(), shape->dump().c_str());
  return tensor;
}

std::string quoted(std::string_view text) {
  return format("'%s'", escape_control(text).substr(0, 200).c_str());
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::span<const uint8_t> bytes) {
  if (bytes.size() < 8)
    return corrupt("%zu bytes are too few for a safetensors file (truncated download?)",
                   bytes.size());
  uint64_t header_bytes;
  std::memcpy(&header_bytes, bytes.data(), 8);
  if (header_bytes > bytes.size() - 8)
    return corrupt(
        "the safetensors header should have %llu bytes, the file has %zu (truncated "
        "download, or another format)",
        ull(header_bytes), bytes.size());
  if (header_bytes > kMaxHeaderBytes)
    return corrupt("the safetensors header has %llu bytes, expected at most %llu",
                   ull(header_bytes), ull(kMaxHeaderBytes));
  auto parsed =
      Json::parse({reinterpret_cast<const char*>(bytes.data()) + 8, header_bytes}, kHeaderLimits);
  if (!parsed) return with_context("the safetensors header", parsed.error());
  if (!parsed->is_object())
    return corrupt("the safetensors header is %s, expected an object", parsed->kind_name());
  if (parsed->members().size() > kMaxTensors + 1)
    return corrupt("has %zu tensors, expected at most %llu", parsed->members().size(),
                   ull(kMaxTensors));

  SafetensorsHeader header;
  header.data_begin = 8 + header_bytes;
  header.tensors.reserve(parsed->members().size());
  for (const auto& [name, entry] : parsed->members()) {
    if (name == "__metadata__") continue;
    if (!entry.is_object())
      return corrupt("tensor %s is %s, expected an object", quoted(name).c_str(),
                     entry.kind_name());
    auto tensor = tensor_entry(name, entry);
    if (!tensor) return with_context(format("tensor %s", quoted(name).c_str()), tensor.error());
    header.tensors.push_back(std::move(*tensor));
  }

  // The format has no gaps and no overlaps: in order of their begins, each tensor begins where the
  // last one ended. Empty tensors sort before what begins at the same place.
  std::ranges::sort(header.tensors, [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.num_bytes < b.num_bytes;
  });
  const uint64_t data_bytes = bytes.size() - header.data_begin;
  uint64_t end = 0;
  for (SafetensorsTensor& tensor : header.tensors) {
    if (tensor.begin != end)
      return corrupt(
          "tensor %s begins at data offset %llu, expected %llu: tensors must follow each "
          "other without gap or overlap",
          quoted(tensor.name).c_str(), ull(tensor.begin), ull(end));
    if (tensor.num_bytes > data_bytes - end)
      return corrupt(
          "tensor %s ends beyond the file's %zu bytes (truncated download? fetch the file "
          "again)",
          quoted(tensor.name).c_str(), bytes.size());
    end += tensor.num_bytes;
    tensor.begin += header.data_begin;
  }
  if (end != data_bytes)
    return corrupt("%llu bytes follow the last tensor's data", ull(data_bytes - end));
  return header;
}

Result<SafetensorsIndex> parse_safetensors_index(std::string_view text) {
  INVAR_TRY(const Json json, Json::parse(text, kIndexLimits));
  const Json* map = json.find("weight_map");
  if (map == nullptr || !map->is_object())
    return corrupt("key 'weight_map' is missing or no object");
  SafetensorsIndex index;
  std::set<std::string> files;
  for (const auto& [name, file] : map->members()) {
    if (!file.is_string())
      return corrupt("key 'weight_map': tensor %s has %s, expected a file name",
                     quoted(name).c_str(), file.kind_name());
    // Plain names only: an index must not reach outside of its folder.
    const std::string& file_name = file.as_string();
    if (file_name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos ||
        !file_name.ends_with(".safetensors") || file_name.starts_with('.'))
      return corrupt(
          "key 'weight_map': tensor %s is in file %s, expected a plain name that ends in "
          ".safetensors",
          quoted(name).c_str(), quoted(file_name).c_str());
    files.insert(file_name);
    index.tensor_names.push_back(name);
  }
  if (files.empty()) return corrupt("key 'weight_map' is empty");
  index.files.assign(files.begin(), files.end());
  return index;
}

}  // namespace invar
