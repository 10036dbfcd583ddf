// Safetensors headers and indexes: each member's JSON is parsed by base/json, sizes and ranges are
// checked here. What dtypes and names mean is hf_tensors.cc's.
#include "weights/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <unordered_set>

#include "base/json.h"
#include "base/keyed_hash.h"
#include "weights/checked.h"
#include "weights/quoted.h"

namespace invar {
namespace {

constexpr uint64_t kMaxHeaderBytes = 32ull << 20;
constexpr uint64_t kMaxTensors = 262'144;
constexpr size_t kMaxDims = 8;
constexpr uint64_t kMaxEntryBytes = 4096;  // one tensor's object
constexpr JsonLimits kEntryLimits = {.max_depth = 8, .max_nodes = 64};
constexpr JsonLimits kMetadataLimits = {.max_depth = 8, .max_nodes = 100'000};
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
    return unsupported("has the unknown dtype %s", quoted(tensor.dtype).c_str());

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

// Cuts the header's object into its members without building a tree of it: 262,144 tensors would
// make one of hundreds of MB. Only finds where each name and value ends; their JSON is checked
// afterwards.
class MemberScanner {
 public:
  explicit MemberScanner(std::string_view text) : text_(text) {}

  // False after the last member.
  Result<bool> next(std::string_view& name, std::string_view& value) {
    if (num_members_ == 0) {
      if (!take('{')) return corrupt("the safetensors header is no JSON object");
      if (take('}')) return at_end();
    } else if (!take(',')) {
      if (!take('}')) return damaged("',' or '}'");
      return at_end();
    }
    ++num_members_;
    skip_space();
    const size_t name_begin = at_;
    if (!skip_string()) return damaged("a tensor's name");
    name = text_.substr(name_begin, at_ - name_begin);
    if (!take(':')) return damaged("':'");
    skip_space();
    const size_t value_begin = at_;
    if (!skip_object()) return damaged("an object");
    value = text_.substr(value_begin, at_ - value_begin);
    return true;
  }

 private:
  void skip_space() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }
  bool take(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  Result<bool> at_end() {
    skip_space();
    if (at_ != text_.size()) return damaged("spaces only");
    return false;
  }
  bool skip_string() {
    if (at_ == text_.size() || text_[at_] != '"') return false;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == '"') {
        ++at_;
        return true;
      }
      if (text_[at_] == '\\') ++at_;
    }
    at_ = text_.size();
    return false;
  }
  bool skip_object() {
    if (at_ == text_.size() || text_[at_] != '{') return false;
    size_t depth = 0;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        if (!skip_string()) return false;
        continue;
      }
      ++at_;
      if (c == '{' || c == '[') ++depth;
      if ((c == '}' || c == ']') && --depth == 0) return true;
    }
    return false;
  }
  Error damaged(const char* expected) const {
    return corrupt("the safetensors header is damaged at byte %zu: expected %s", 8 + at_, expected);
  }

  std::string_view text_;
  size_t at_ = 0;
  size_t num_members_ = 0;
};

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
  SafetensorsHeader header;
  header.data_begin = 8 + header_bytes;
  MemberScanner members({reinterpret_cast<const char*>(bytes.data()) + 8, header_bytes});
  std::unordered_set<std::string, KeyedHash> names;
  for (std::string_view name_text, value_text;;) {
    INVAR_TRY(const bool more, members.next(name_text, value_text));
    if (!more) break;
    const auto name = Json::parse(name_text, kEntryLimits);
    if (!name) return with_context("a tensor's name", name.error());
    const std::string where = format("tensor %s", quoted(name->as_string()).c_str());
    if (!names.insert(name->as_string()).second) return corrupt("%s stands twice", where.c_str());
    const bool is_metadata = name->as_string() == "__metadata__";
    if (!is_metadata && value_text.size() > kMaxEntryBytes)
      return corrupt("%s has an entry of %zu bytes, expected at most %llu", where.c_str(),
                     value_text.size(), ull(kMaxEntryBytes));
    const auto entry = Json::parse(value_text, is_metadata ? kMetadataLimits : kEntryLimits);
    if (!entry) return with_context(where, entry.error());
    if (is_metadata) continue;
    if (header.tensors.size() == kMaxTensors)
      return corrupt("has more than %llu tensors", ull(kMaxTensors));
    auto tensor = tensor_entry(name->as_string(), *entry);
    if (!tensor) return with_context(where, tensor.error());
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
