// Layouts: specs/weights.md sections 2 (MLX) and 4 (the others, which are turned away here).
#include "weights/hf_tensors.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "base/keyed_hash.h"
#include "base/log.h"
#include "weights/quoted.h"

namespace invar {
namespace {

using Index = std::unordered_map<std::string_view, const StoredTensor*, KeyedHash>;

constexpr int kMlxBits[] = {2, 3, 4, 5, 6, 8};
constexpr int kMlxGroups[] = {32, 64, 128};

struct Quantization {
  int bits = 4;
  int group_size = 64;
};

std::string label(const StoredTensor& tensor) {
  return format("%s: %s", tensor.file.c_str(), quoted(tensor.name).c_str());
}

std::string shape_text(const std::vector<int64_t>& shape) {
  Json list = Json::array();
  for (const int64_t dim : shape) list.push_back(dim);
  return list.dump();
}

std::optional<DType> float_dtype(const std::string& dtype) {
  if (dtype == "F32") return DType::kF32;
  if (dtype == "F16") return DType::kF16;
  if (dtype == "BF16") return DType::kBF16;
  return {};
}

const StoredTensor* find(const Index& index, const std::string& name) {
  const auto found = index.find(name);
  return found == index.end() ? nullptr : found->second;
}

// The module "X" of "X.weight", or nothing.
std::optional<std::string> module_of(const std::string& name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return {};
  return name.substr(0, name.size() - suffix.size());
}

// An integer or 8-bit float tensor that stands for a quantized weight of a layout that this build
// does not read; the layout's name, or null.
const char* foreign_layout(const StoredTensor& tensor, const Index& index) {
  const auto has = [&](const std::string& name) { return find(index, name) != nullptr; };
  if (const auto module = module_of(tensor.name, ".weight")) {
    if (has(*module + ".weight_scale_2")) return "ModelOpt NVFP4";
    if (has(*module + ".weight_scale_inv")) return "FP8 in blocks";
    if (has(*module + ".weight_scale"))
      return tensor.dtype == "U8" ? "packed FP4" : "FP8 (or MXFP8) with scales";
    if (has(*module + ".SCB") || tensor.dtype == "I8") return "int8";
    if (tensor.dtype == "U8") return "bitsandbytes or another packed 4-bit layout";
    if (tensor.dtype.starts_with("F8")) return "FP8";
    return "integer weights";
  }
  if (tensor.name.ends_with(".weight_packed")) return "compressed-tensors packed weights";
  if (tensor.name.ends_with(".qweight") || tensor.name.ends_with(".qzeros")) return "GPTQ or AWQ";
  if (tensor.name.ends_with("_blocks")) return "gpt-oss MXFP4";
  if (tensor.dtype.starts_with("F8") || tensor.dtype.starts_with("F4") ||
      tensor.dtype.starts_with("F6"))
    return tensor.dtype.c_str();
  if (tensor.dtype == "F64" || tensor.dtype == "C64") return tensor.dtype.c_str();
  return nullptr;
}

// config.json's default or per-module setting. mode affine is the only one here.
Result<Quantization> configured(const Json& config, const std::string& module) {
  // Multimodal wrappers may have it inside.
  const Json* settings = nullptr;
  for (const Json* level : {&config, config.find("text_config")})
    for (const char* key : {"quantization", "quantization_config"}) {
      const Json* found = level == nullptr ? nullptr : level->find(key);
      if (settings == nullptr && found != nullptr && found->is_object()) settings = found;
    }
  Quantization q;
  if (settings == nullptr) return q;
  // A per-module object that leaves something out means the mode's own default, not the file's;
  // true means the file's. false on a module that has scales contradicts the tensors, which win.
  const Json* own = settings->find(module);
  const Json& from = own != nullptr && own->is_object() ? *own : *settings;
  const std::string key = format("config.json: key 'quantization'%s%s", &from == own ? " of " : "",
                                 &from == own ? quoted(module).c_str() : "");
  auto mode = from.optional<std::string>("mode", "affine");
  if (!mode) return with_context(key, mode.error());
  if (*mode != "affine")
    return unsupported(
        "%s: mode %s is not supported, expected 'affine'; take an affine "
        "conversion of the model",
        key.c_str(), quoted(*mode).c_str());
  auto bits = from.optional<int>("bits", 4);
  if (!bits) return with_context(key, bits.error());
  auto group_size = from.optional<int>("group_size", 64);
  if (!group_size) return with_context(key, group_size.error());
  q.bits = *bits;
  q.group_size = *group_size;
  return q;
}

bool known(const Quantization& q) {
  bool bits = false, group = false;
  for (const int b : kMlxBits) bits = bits || q.bits == b;
  for (const int g : kMlxGroups) group = group || q.group_size == g;
  return bits && group;
}

// 32 bits a word: a row's words * 32 / bits and its groups * group_size are both its columns.
bool fits(const Quantization& q, int64_t num_words, int64_t num_groups) {
  return known(q) && num_words <= INT64_MAX / 32 && num_groups <= INT64_MAX / 1024 &&
         num_words * 32 == num_groups * q.group_size * q.bits;
}

// The configured pair if the shapes agree with it; else the tensors decide, as far as only one
// reading is left: the same groups with other bits (mixed-width conversions), the same bits with
// other groups, the only pair there is.
std::optional<Quantization> solve(const Quantization& wanted, int64_t num_words,
                                  int64_t num_groups) {
  if (fits(wanted, num_words, num_groups)) return wanted;
  std::optional<Quantization> same_group, same_bits, any;
  int num_any = 0;
  for (const int b : kMlxBits) {
    for (const int g : kMlxGroups) {
      const Quantization q{b, g};
      if (!fits(q, num_words, num_groups)) continue;
      if (g == wanted.group_size) same_group = q;
      if (b == wanted.bits) same_bits = q;
      any = q;
      ++num_any;
    }
  }
  if (same_group) return same_group;
  if (same_bits) return same_bits;
  if (num_any == 1) return any;
  return {};
}

Result<TensorInfo> mlx_module(const StoredTensor& weight, const std::string& module,
                              const Index& index, const Json& config) {
  const StoredTensor* scales = find(index, module + ".scales");
  const StoredTensor* biases = find(index, module + ".biases");
  INVAR_TRY(const Quantization wanted, configured(config, module));
  if (biases == nullptr || scales->dtype == "U8")
    return unsupported(
        "%s: quantized in an MLX mode without biases (mxfp4, nvfp4, mxfp8), which is "
        "not supported; take an affine conversion of the model",
        label(weight).c_str());
  const auto scale_dtype = float_dtype(scales->dtype);
  if (!scale_dtype || scales->dtype != biases->dtype)
    return unsupported("%s is %s and %s is %s, expected both F32, F16 or BF16",
                       label(*scales).c_str(), scales->dtype.c_str(), label(*biases).c_str(),
                       biases->dtype.c_str());
  const std::vector<int64_t>&w = weight.shape, &s = scales->shape;
  if (w.size() < 2 || s.size() != w.size() || !std::equal(w.begin(), w.end() - 1, s.begin()) ||
      biases->shape != s)
    return corrupt("%s is %s, its scales %s, its biases %s: all but the last dimension must agree",
                   label(weight).c_str(), shape_text(w).c_str(), shape_text(s).c_str(),
                   shape_text(biases->shape).c_str());
  const auto q = solve(wanted, w.back(), s.back());
  if (!q)
    return corrupt(
        "%s: %lld words and %lld groups a row do not fit the configured %d bits in groups "
        "of %d, nor another pair alone; set 'bits' and 'group_size' of %s in "
        "config.json's 'quantization'",
        label(weight).c_str(), static_cast<long long>(w.back()), static_cast<long long>(s.back()),
        wanted.bits, wanted.group_size, quoted(module).c_str());
  TensorInfo info;
  info.shape = w;
  info.shape.back() = s.back() * q->group_size;
  info.matrix.format = WeightFormat::kMlxAffine;
  info.matrix.row_bytes = w.back() * 4;
  info.matrix.bits = q->bits;
  info.matrix.group_size = q->group_size;
  info.matrix.scale_dtype = *scale_dtype;
  info.matrix.scales = scales->data;
  info.matrix.biases = biases->data;
  return info;
}

// `name` is "X.scales" or "X.biases" of a module that is folded into "X.weight".
bool is_mlx_companion(const StoredTensor& tensor, const Index& index) {
  for (const char* suffix : {".scales", ".biases"}) {
    const auto module = module_of(tensor.name, suffix);
    if (!module) continue;
    const StoredTensor* weight = find(index, *module + ".weight");
    return weight != nullptr && weight->dtype == "U32";
  }
  return false;
}

}  // namespace

Result<std::vector<TensorInfo>> fold_tensors(const std::vector<StoredTensor>& stored,
                                             const Json& config) {
  Index index;
  for (const StoredTensor& tensor : stored) index.emplace(tensor.name, &tensor);
  std::vector<TensorInfo> out;
  for (const StoredTensor& tensor : stored) {
    if (is_mlx_companion(tensor, index)) continue;
    if (std::ranges::find(tensor.shape, 0) != tensor.shape.end()) continue;  // nothing in it
    TensorInfo info;
    const auto module = module_of(tensor.name, ".weight");
    if (const auto dtype = float_dtype(tensor.dtype)) {
      info.shape = tensor.shape;
      info.matrix.format = *dtype == DType::kF32   ? WeightFormat::kF32
                           : *dtype == DType::kF16 ? WeightFormat::kF16
                                                   : WeightFormat::kBF16;
      const int64_t num_cols = info.shape.empty() ? 1 : info.shape.back();
      info.matrix.row_bytes = num_cols * static_cast<int64_t>(dtype_bytes(*dtype));
    } else if (tensor.dtype == "U32" && module && find(index, *module + ".scales") != nullptr) {
      INVAR_TRY(info, mlx_module(tensor, *module, index, config));
    } else if (const char* layout = foreign_layout(tensor, index)) {
      return unsupported(
          "%s is %s, layout: %s, which is not supported; take the BF16, the MLX "
          "(affine) or a GGUF version of the model",
          label(tensor).c_str(), tensor.dtype.c_str(), layout);
    } else {
      log(LogLevel::kDebug, "weights tensor=%s dtype=%s skipped=no_weight",
          quoted(tensor.name).c_str(), tensor.dtype.c_str());
      continue;
    }
    info.name = tensor.name;
    info.matrix.name = label(tensor);
    info.matrix.data = tensor.data;
    info.matrix.num_cols = info.shape.empty() ? 1 : info.shape.back();
    info.matrix.num_rows = 1;
    for (size_t i = 0; i + 1 < info.shape.size(); ++i) info.matrix.num_rows *= info.shape[i];
    out.push_back(std::move(info));
  }
  return out;
}

}  // namespace invar
