// GGUF header parser. Order of business: fixed header, key/value pairs, tensor infos, then the data
// section's ranges. Limits are far above any real model and keep a hostile file to a second or so
// and about 256 MiB.
#include "weights/gguf_parse.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "base/keyed_hash.h"
#include "weights/byte_reader.h"
#include "weights/checked.h"
#include "weights/quoted.h"

namespace invar {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF numbers are read as they stand");

constexpr uint64_t kMaxHeaderBytes = 128ull << 20;
constexpr uint64_t kMaxKeys = 65'536;
constexpr uint64_t kMaxKeyBytes = 64ull << 10;
constexpr uint64_t kMaxStringBytes = 1ull << 20;
constexpr uint64_t kMaxTensors = 262'144;
constexpr uint64_t kMaxTensorNameBytes = 64;
constexpr uint32_t kMaxDims = 4;
constexpr uint64_t kMaxVocabulary = 1ull << 22;
constexpr uint64_t kMaxMetadataValues = 500'000;  // array elements outside the vocabulary
constexpr int kMaxArrayDepth = 4;

enum ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kFloat64
};

// Bytes of a value at least: what a count can be checked with. 0: no such type.
uint64_t min_value_bytes(uint32_t type) {
  switch (type) {
    case kU8:
    case kI8:
    case kBool:
      return 1;
    case kU16:
    case kI16:
      return 2;
    case kU32:
    case kI32:
    case kFloat32:
      return 4;
    case kU64:
    case kI64:
    case kFloat64:
    case kString:
      return 8;
    case kArray:
      return 12;
    default:
      return 0;
  }
}

struct TensorType {
  uint32_t id;
  const char* name;
  std::optional<WeightFormat> format;  // nothing: known, but not read by this build
};
constexpr TensorType kTensorTypes[] = {
    {0, "F32", WeightFormat::kF32},
    {1, "F16", WeightFormat::kF16},
    {2, "Q4_0", WeightFormat::kQ4_0},
    {3, "Q4_1", WeightFormat::kQ4_1},
    {6, "Q5_0", WeightFormat::kQ5_0},
    {7, "Q5_1", WeightFormat::kQ5_1},
    {8, "Q8_0", WeightFormat::kQ8_0},
    {9, "Q8_1", {}},
    {10, "Q2_K", WeightFormat::kQ2_K},
    {11, "Q3_K", WeightFormat::kQ3_K},
    {12, "Q4_K", WeightFormat::kQ4_K},
    {13, "Q5_K", WeightFormat::kQ5_K},
    {14, "Q6_K", WeightFormat::kQ6_K},
    {15, "Q8_K", {}},
    {16, "IQ2_XXS", {}},
    {17, "IQ2_XS", {}},
    {18, "IQ3_XXS", {}},
    {19, "IQ1_S", {}},
    {20, "IQ4_NL", WeightFormat::kIQ4_NL},
    {21, "IQ3_S", {}},
    {22, "IQ2_S", {}},
    {23, "IQ4_XS", WeightFormat::kIQ4_XS},
    {24, "I8", {}},
    {25, "I16", {}},
    {26, "I32", {}},
    {27, "I64", {}},
    {28, "F64", {}},
    {29, "IQ1_M", {}},
    {30, "BF16", WeightFormat::kBF16},
    {34, "TQ1_0", {}},
    {35, "TQ2_0", {}},
    {39, "MXFP4", WeightFormat::kMXFP4},
    {40, "NVFP4", {}},
    {41, "Q1_0", {}},
    {42, "Q2_0", {}},
};

unsigned long long ull(uint64_t value) { return value; }

class Parser {
 public:
  explicit Parser(std::span<const uint8_t> bytes)
      : file_size_(bytes.size()),
        in_(bytes.first(std::min<uint64_t>(bytes.size(), kMaxHeaderBytes))) {}

  Result<GgufFile> parse() {
    INVAR_TRY_VOID(fixed_header());
    for (uint64_t i = 0; i < num_keys_; ++i) INVAR_TRY_VOID(key_value());
    INVAR_TRY_VOID(check_alignment());
    INVAR_TRY_VOID(check_vocabulary());
    file_.tensors.reserve(num_tensors_);
    for (uint64_t i = 0; i < num_tensors_; ++i) INVAR_TRY_VOID(tensor_info());
    INVAR_TRY_VOID(check_ranges());
    return std::move(file_);
  }

 private:
  Result<void> fixed_header() {
    INVAR_TRY(const uint32_t magic, in_.number<uint32_t>("the magic 'GGUF'"));
    if (magic != 0x46554747) return corrupt("is no GGUF file: it does not begin with 'GGUF'");
    INVAR_TRY(file_.version, in_.number<uint32_t>("the version"));
    if ((file_.version & 0xffff) == 0 && file_.version != 0)
      return unsupported("is a big-endian GGUF file; convert it to little-endian");
    if (file_.version != 2 && file_.version != 3)
      return unsupported(
          "GGUF version %u is not supported, expected 2 or 3; convert the model again",
          file_.version);
    // Both counts come first: the smallest pair is 13 bytes, the smallest tensor info 33.
    INVAR_TRY(num_tensors_, in_.number<uint64_t>("the tensor count"));
    INVAR_TRY(num_keys_, in_.count("the key count", 13, kMaxKeys));
    return in_.check_count(num_tensors_, "the tensor count", 33, kMaxTensors);
  }

  Result<void> key_value() {
    INVAR_TRY(const std::string_view key, in_.string("a key", kMaxKeyBytes));
    if (key.empty()) return corrupt("the key at byte %llu is empty", ull(in_.position()));
    INVAR_TRY(const uint32_t type, in_.number<uint32_t>("a value type"));
    auto result = value_of(key, type);
    if (!result) return with_context(format("key %s", quoted(key).c_str()), result.error());
    return {};
  }

  Result<void> value_of(std::string_view key, uint32_t type) {
    if (!keys_.insert(key).second) return corrupt("stands twice");
    constexpr std::string_view kTokenizer = "tokenizer.ggml.";
    constexpr std::string_view kTemplate = "tokenizer.chat_template";
    constexpr std::string_view kSampling = "general.sampling.";
    if (type == kArray && key.starts_with(kTokenizer)) {
      const std::string_view name = key.substr(kTokenizer.size());
      if (name == "tokens") return strings(vocabulary().tokens);
      if (name == "merges") return strings(vocabulary().merges);
      if (name == "scores") return scores();
      if (name == "token_type") return token_types();
    }
    if (key == "tokenizer.huggingface.json" && type == kString) {
      // A whole tokenizer.json, several MB, that some converters add; the keys above say the same.
      INVAR_TRY_VOID(in_.string("a string", kMaxHeaderBytes));
      return {};
    }
    INVAR_TRY(Json value, json_value(type, 0));
    if (key.starts_with(kTokenizer) && !value.is_array()) {
      const std::string_view name = key.substr(kTokenizer.size());
      if (name == "tokens" || name == "merges" || name == "scores" || name == "token_type")
        return corrupt("is %s, expected an array", value.kind_name());
      if (name == "model" || name == "pre") {
        if (!value.is_string()) return corrupt("is %s, expected a string", value.kind_name());
        (name == "model" ? vocabulary().model : vocabulary().pre) = value.as_string();
      }
      vocabulary().keys.set(name, std::move(value));
      return {};
    }
    if (key == kTemplate || (key.starts_with(kTemplate) && key[kTemplate.size()] == '.')) {
      if (!value.is_string()) return corrupt("is %s, expected a string", value.kind_name());
      const std::string_view name = key == kTemplate ? "default" : key.substr(kTemplate.size() + 1);
      file_.chat_templates.emplace_back(name, value.as_string());
      return {};
    }
    if (key.starts_with(kSampling)) sampling(key.substr(kSampling.size()), value);
    file_.metadata.set(key, std::move(value));
    return {};
  }

  // Hugging Face's names, so that what reads generation_config need not know the container.
  // do_sample is what a temperature in such a file means.
  void sampling(std::string_view name, const Json& value) {
    if (!value.is_number()) return;
    if (file_.generation_config.is_null()) file_.generation_config = Json::object();
    Json& config = file_.generation_config;
    if (name == "temp") {
      config.set("do_sample", value.as_double() > 0);
      config.set("temperature", value);
    } else if (name == "penalty_repeat") {
      config.set("repetition_penalty", value);
    } else {
      config.set(name, value);
    }
  }

  Checkpoint::GgufVocabulary& vocabulary() {
    if (!file_.vocabulary) {
      file_.vocabulary.emplace();
      file_.vocabulary->keys = Json::object();
    }
    return *file_.vocabulary;
  }

  // The array header of a vocabulary list.
  Result<uint64_t> vocabulary_count(uint32_t& type) {
    INVAR_TRY(type, in_.number<uint32_t>("an array's element type"));
    const uint64_t min_bytes = min_value_bytes(type);
    if (min_bytes == 0) return corrupt("has elements of the unknown type %u", type);
    return in_.count("its number of elements", min_bytes, kMaxVocabulary);
  }

  Result<void> strings(std::vector<std::string>& out) {
    uint32_t type = 0;
    INVAR_TRY(const uint64_t count, vocabulary_count(type));
    if (type != kString) return corrupt("is an array of type %u, expected strings", type);
    out.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      INVAR_TRY(const std::string_view text, in_.string("a string", kMaxKeyBytes));
      out.emplace_back(text);
    }
    return {};
  }

  Result<void> scores() {
    uint32_t type = 0;
    INVAR_TRY(const uint64_t count, vocabulary_count(type));
    if (type != kFloat32 && type != kFloat64)
      return corrupt("is an array of type %u, expected floats", type);
    std::vector<float>& out = vocabulary().scores;
    out.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      if (type == kFloat32) {
        INVAR_TRY(const float score, in_.number<float>("a score"));
        out.push_back(score);
      } else {
        INVAR_TRY(const double score, in_.number<double>("a score"));
        out.push_back(static_cast<float>(score));
      }
    }
    return {};
  }

  Result<void> token_types() {
    uint32_t type = 0;
    INVAR_TRY(const uint64_t count, vocabulary_count(type));
    std::vector<int32_t>& out = vocabulary().token_types;
    out.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      INVAR_TRY(const Json value, scalar(type));
      if (!value.is_int() || value.as_int() < 0 || value.as_int() > 255)
        return corrupt("element %llu is %s, expected a token type from 0 to 255", ull(i),
                       value.dump().substr(0, 40).c_str());
      out.push_back(static_cast<int32_t>(value.as_int()));
    }
    return {};
  }

  template <typename T>
  Result<Json> integer() {
    INVAR_TRY(const T value, in_.number<T>("a value"));
    if constexpr (std::is_same_v<T, uint64_t>) {
      // As Json::parse does with integers that int64 cannot hold.
      if (value > static_cast<uint64_t>(INT64_MAX)) return Json(static_cast<double>(value));
    }
    return Json(static_cast<int64_t>(value));
  }

  Result<Json> finite(double value) {
    if (!std::isfinite(value)) return corrupt("is not a finite number");
    return Json(value);
  }

  Result<Json> scalar(uint32_t type) {
    switch (type) {
      case kU8:
        return integer<uint8_t>();
      case kI8:
        return integer<int8_t>();
      case kU16:
        return integer<uint16_t>();
      case kI16:
        return integer<int16_t>();
      case kU32:
        return integer<uint32_t>();
      case kI32:
        return integer<int32_t>();
      case kU64:
        return integer<uint64_t>();
      case kI64:
        return integer<int64_t>();
      case kFloat32: {
        INVAR_TRY(const float value, in_.number<float>("a value"));
        return finite(double{value});
      }
      case kFloat64: {
        INVAR_TRY(const double value, in_.number<double>("a value"));
        return finite(value);
      }
      case kBool: {
        INVAR_TRY(const uint8_t value, in_.number<uint8_t>("a value"));
        if (value > 1) return corrupt("is the boolean %u, expected 0 or 1", unsigned{value});
        return Json(value != 0);
      }
      case kString: {
        INVAR_TRY(const std::string_view text, in_.string("a string", kMaxStringBytes));
        return Json(text);
      }
      default:
        return corrupt("has the unknown type %u", type);
    }
  }

  Result<Json> json_value(uint32_t type, int depth) {
    if (type != kArray) return scalar(type);
    if (depth == kMaxArrayDepth) return corrupt("nests arrays more than %d deep", kMaxArrayDepth);
    INVAR_TRY(const uint32_t element_type, in_.number<uint32_t>("an array's element type"));
    const uint64_t min_bytes = min_value_bytes(element_type);
    if (min_bytes == 0) return corrupt("has elements of the unknown type %u", element_type);
    INVAR_TRY(const uint64_t count, in_.count("its number of elements", min_bytes,
                                              kMaxMetadataValues - num_metadata_values_));
    num_metadata_values_ += count;
    Json array = Json::array();
    std::vector<Json>& items = array.items();
    items.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      INVAR_TRY(Json item, json_value(element_type, depth + 1));
      items.push_back(std::move(item));
    }
    return array;
  }

  Result<void> check_alignment() {
    const Json* alignment = file_.metadata.find("general.alignment");
    if (alignment == nullptr) return {};
    if (!alignment->is_int() || alignment->as_int() < 8 || alignment->as_int() > 65'536 ||
        !std::has_single_bit(static_cast<uint64_t>(alignment->as_int())))
      return corrupt("key 'general.alignment' is %s, expected a power of two from 8 to 65536",
                     alignment->dump().substr(0, 40).c_str());
    file_.alignment = static_cast<uint64_t>(alignment->as_int());
    return {};
  }

  Result<void> check_vocabulary() {
    if (!file_.vocabulary) return {};
    const Checkpoint::GgufVocabulary& v = *file_.vocabulary;
    if (!v.scores.empty() && v.scores.size() != v.tokens.size())
      return corrupt(
          "key 'tokenizer.ggml.scores' has %zu elements, 'tokenizer.ggml.tokens' has %zu",
          v.scores.size(), v.tokens.size());
    if (!v.token_types.empty() && v.token_types.size() != v.tokens.size())
      return corrupt(
          "key 'tokenizer.ggml.token_type' has %zu elements, 'tokenizer.ggml.tokens' has %zu",
          v.token_types.size(), v.tokens.size());
    return {};
  }

  Result<void> tensor_info() {
    INVAR_TRY(const std::string_view name, in_.string("a tensor name", kMaxTensorNameBytes));
    if (name.empty()) return corrupt("the tensor name at byte %llu is empty", ull(in_.position()));
    auto result = tensor_of(name);
    if (!result) return with_context(format("tensor %s", quoted(name).c_str()), result.error());
    return {};
  }

  Result<void> tensor_of(std::string_view name) {
    if (!tensor_names_.insert(name).second) return corrupt("stands twice");
    GgufTensor tensor;
    tensor.name = name;
    INVAR_TRY(const uint32_t num_dims, in_.number<uint32_t>("the number of dimensions"));
    if (num_dims < 1 || num_dims > kMaxDims)
      return corrupt("has %u dimensions, expected 1 to %u", num_dims, kMaxDims);
    Checked num_elements(1);
    for (uint32_t i = 0; i < num_dims; ++i) {
      INVAR_TRY(const uint64_t dim, in_.number<uint64_t>("a dimension"));
      num_elements = num_elements * Checked(dim);
      if (dim == 0 || !num_elements.at_most(INT64_MAX))
        return corrupt("dimension %u is %llu, expected at least 1 and a product below 2^63", i,
                       ull(dim));
      tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(dim));
    }
    INVAR_TRY(const uint32_t type, in_.number<uint32_t>("the tensor type"));
    INVAR_TRY(tensor.begin, in_.number<uint64_t>("the tensor's offset"));
    INVAR_TRY(tensor.format, weight_format(type));

    const BlockShape block = block_shape(tensor.format);
    const auto num_cols = static_cast<uint64_t>(tensor.shape.back());
    if (num_cols % static_cast<uint64_t>(block.num_elements) != 0)
      return corrupt("rows of %llu elements are no multiple of the %d of a %s block", ull(num_cols),
                     block.num_elements, format_name(tensor.format));
    const Checked num_bytes =
        Checked(num_elements.value() / static_cast<uint64_t>(block.num_elements)) *
        Checked(static_cast<uint64_t>(block.num_bytes));
    if (!num_bytes.at_most(file_size_))
      return corrupt("%llu elements of %s do not fit a file of %llu bytes (truncated or damaged)",
                     ull(num_elements.value()), format_name(tensor.format), ull(file_size_));
    tensor.num_bytes = num_bytes.value();
    if (tensor.begin % file_.alignment != 0)
      return corrupt("offset %llu is no multiple of the alignment %llu", ull(tensor.begin),
                     ull(file_.alignment));
    file_.tensors.push_back(std::move(tensor));
    return {};
  }

  Result<WeightFormat> weight_format(uint32_t type) {
    const auto* found = std::ranges::find(kTensorTypes, type, &TensorType::id);
    if (found == std::end(kTensorTypes))
      return unsupported("has the unknown tensor type %u; convert the model again", type);
    if (!found->format)
      return unsupported(
          "tensor type %s (%u) is not supported; take a file with F32, F16, BF16, Q4_0, Q4_1, "
          "Q5_0, "
          "Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS or MXFP4 tensors, such as Q4_K_M or Q8_0",
          found->name, type);
    return *found->format;
  }

  // Offsets become positions in the file. Gaps are padding; overlaps are nothing that a converter
  // makes.
  Result<void> check_ranges() {
    const Checked data_begin = Checked(in_.position()).aligned(file_.alignment);
    // A file without tensors (a vocabulary, part 1 of a split model) may end unpadded.
    file_.data_begin = std::min(data_begin.value(), file_size_);
    for (GgufTensor& tensor : file_.tensors) {
      const Checked begin = data_begin + Checked(tensor.begin);
      if (!(begin + Checked(tensor.num_bytes)).at_most(file_size_))
        return corrupt(
            "tensor %s: %llu bytes at data offset %llu end beyond the file's %llu bytes "
            "(truncated download? fetch the file again)",
            quoted(tensor.name).c_str(), ull(tensor.num_bytes), ull(tensor.begin), ull(file_size_));
      tensor.begin = begin.value();
    }
    std::vector<const GgufTensor*> by_begin;
    by_begin.reserve(file_.tensors.size());
    for (const GgufTensor& tensor : file_.tensors) by_begin.push_back(&tensor);
    std::ranges::sort(by_begin, {}, &GgufTensor::begin);
    for (size_t i = 1; i < by_begin.size(); ++i) {
      const GgufTensor &a = *by_begin[i - 1], &b = *by_begin[i];
      if (b.begin < a.begin + a.num_bytes)
        return corrupt("tensors %s and %s overlap", quoted(a.name).c_str(), quoted(b.name).c_str());
    }
    return {};
  }

  uint64_t file_size_;
  ByteReader in_;
  GgufFile file_;
  uint64_t num_tensors_ = 0;
  uint64_t num_keys_ = 0;
  uint64_t num_metadata_values_ = 0;
  // These two point into the file's bytes.
  std::unordered_set<std::string_view, KeyedHash> keys_, tensor_names_;
};

}  // namespace

Result<GgufFile> parse_gguf(std::span<const uint8_t> bytes) { return Parser(bytes).parse(); }

}  // namespace invar
