// Names and shapes: where a module's tensors stand in either container, and what is said when one
// is missing or has another shape.
#include "models/model_source.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace invar {
namespace {

// Where the text model stands in a checkpoint: plain, in a multimodal wrapper, in a wrapper of
// transformers 5.
constexpr std::array<std::string_view, 3> kPrefixes = {"", "language_model.",
                                                       "model.language_model."};

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

// Dims of 1 carry no information and differ between converters.
std::vector<int64_t> without_ones(const std::vector<int64_t>& shape) {
  std::vector<int64_t> kept;
  for (const int64_t dim : shape)
    if (dim != 1) kept.push_back(dim);
  return kept;
}

}  // namespace

const Json* uniform_value(const Json* value) {
  if (value == nullptr || !value->is_array() || value->items().empty()) return value;
  const std::vector<Json>& items = value->items();
  const bool is_same =
      std::ranges::all_of(items, [&](const Json& item) { return item == items.front(); });
  return is_same ? &items.front() : value;
}

const GgufNames& common_gguf_names() {
  static const GgufNames names = {
      {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"}, {"post_attention_layernorm", "ffn_norm"},
      {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},       {"model.embed_tokens", "token_embd"},
      {"model.norm", "output_norm"},       {"lm_head", "output"},
  };
  return names;
}

ModelSource::ModelSource(const Checkpoint& checkpoint, Json config)
    : checkpoint_(checkpoint), config_(std::move(config)), gguf_names_(&common_gguf_names()) {}

std::string ModelSource::gguf_name(const std::string& module) const {
  const bool is_mtp = module.starts_with("mtp.");
  for (const auto& [hf, gguf] : *gguf_names_)
    if (hf == module)
      return (is_mtp ? "blk." + std::to_string(mtp_block_) + "." : "") + std::string(gguf);
  constexpr std::string_view kLayers = "layers.";
  const size_t layers = module.find(kLayers);
  if (layers == std::string::npos) return module;
  const size_t number = layers + kLayers.size();
  const size_t dot = module.find('.', number);
  if (dot == std::string::npos) return module;
  const std::string block =
      is_mtp ? std::to_string(mtp_block_) : module.substr(number, dot - number);
  const std::string_view stem = std::string_view(module).substr(dot + 1);
  for (const auto& [hf, gguf] : *gguf_names_)
    if (hf == stem) return "blk." + block + "." + std::string(gguf);
  return module;
}

std::string ModelSource::stored_name(const std::string& module, std::string_view suffix,
                                     std::string_view prefix) const {
  if (is_gguf()) return gguf_name(module) + std::string(suffix);
  // "model.language_model." replaces "model.", "language_model." stands before it.
  std::string name = module;
  if (prefix == "model.language_model." && name.starts_with("model."))
    name = name.substr(std::string_view("model.").size());
  return std::string(prefix) + name + std::string(suffix);
}

const TensorInfo* ModelSource::look_up(const std::string& module, std::string_view suffix) const {
  for (const std::string_view prefix : kPrefixes) {
    if (const TensorInfo* tensor = checkpoint_.find(stored_name(module, suffix, prefix)))
      return tensor;
    if (is_gguf()) break;
  }
  return nullptr;
}

const TensorInfo* ModelSource::find(const std::string& module, std::string_view suffix) const {
  const TensorInfo* tensor = look_up(module, suffix);
  if (tensor != nullptr) used_.insert(tensor);
  return tensor;
}

bool ModelSource::has(const std::string& module, std::string_view suffix) const {
  return look_up(module, suffix) != nullptr;
}

Result<const TensorInfo*> ModelSource::shaped(const std::string& module, std::string_view suffix,
                                              const std::vector<int64_t>& shape) const {
  const TensorInfo* tensor = find(module, suffix);
  if (tensor == nullptr)
    return corrupt("%s: tensor '%s' is missing, expected with shape %s", checkpoint_.path.c_str(),
                   stored_name(module, suffix, "").c_str(), shape_text(shape).c_str());
  if (without_ones(tensor->shape) != without_ones(shape))
    return corrupt("%s is %s, expected %s by %s", tensor->matrix.name.c_str(),
                   shape_text(tensor->shape).c_str(), shape_text(shape).c_str(),
                   is_gguf() ? "the file's metadata" : "config.json");
  return tensor;
}

Result<MatrixView> ModelSource::matrix(const std::string& module, int64_t num_rows,
                                       int64_t num_cols) const {
  return stack(module, ".weight", {num_rows, num_cols});
}

Result<MatrixView> ModelSource::stack(const std::string& module, std::string_view suffix,
                                      const std::vector<int64_t>& shape) const {
  INVAR_TRY(const TensorInfo* tensor, shaped(module, suffix, shape));
  if (tensor->matrix.num_cols != shape.back())
    return corrupt("%s is %s, expected %s by %s", tensor->matrix.name.c_str(),
                   shape_text(tensor->shape).c_str(), shape_text(shape).c_str(),
                   is_gguf() ? "the file's metadata" : "config.json");
  return tensor->matrix;
}

Result<std::vector<float>> ModelSource::vector(const std::string& module, std::string_view suffix,
                                               int64_t size, float add) const {
  return values(module, suffix, {size}, add);
}

Result<std::vector<float>> ModelSource::values(const std::string& module, std::string_view suffix,
                                               const std::vector<int64_t>& shape, float add) const {
  INVAR_TRY(const TensorInfo* tensor, shaped(module, suffix, shape));
  const MatrixView& m = tensor->matrix;
  std::vector<float> values(static_cast<size_t>(m.num_rows * m.num_cols));
  for (int64_t r = 0; r < m.num_rows; ++r) dequantize_row(m, r, values.data() + r * m.num_cols);
  for (float& value : values) value += add;
  return values;
}

Result<int> ModelSource::blocks_before_mtp(int block_count) const {
  const auto has_tensor = [&](int block, const char* stem) {
    return checkpoint_.find("blk." + std::to_string(block) + "." + stem) != nullptr;
  };
  const Json* announced = gguf_key("nextn_predict_layers");
  const int64_t num_announced =
      announced != nullptr && announced->is_int() ? announced->as_int() : 0;
  int layers = block_count;
  while (layers > 0 &&
         (has_tensor(layers - 1, "nextn.eh_proj.weight") ||
          (block_count - layers < num_announced && !has_tensor(layers - 1, "attn_norm.weight"))))
    --layers;
  if (layers < block_count && !has_tensor(0, "attn_norm.weight"))
    return unsupported(
        "the file holds an MTP head alone; give the file that has the model's layers");
  return layers;
}

const Json* ModelSource::gguf_key(std::string_view key) const {
  const Json* arch = config_.find("gguf_architecture");
  if (arch == nullptr) return nullptr;
  return uniform_value(checkpoint_.metadata.find(arch->as_string() + "." + std::string(key)));
}

int ModelSource::layer_of(std::string_view stored_name) {
  for (const std::string_view before :
       {"blk.", "model.layers.", "language_model.layers.", "backbone.layers."}) {
    const size_t at = stored_name.find(before);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = stored_name.substr(at + before.size());
    int layer = -1;
    std::from_chars(rest.data(), rest.data() + rest.size(), layer);
    return layer;
  }
  return -1;
}

ModelSource::Part ModelSource::part_of(std::string_view stored_name) const {
  constexpr std::string_view kVision[] = {
      "visual",           "vision_tower",          "vision_model",    "vision_encoder",
      "embed_vision",     "multi_modal_projector", "mm_projector",    "vision_projection",
      "vision_projector", "image_newline",         "patch_embedding", "vision_embed_tokens"};
  constexpr std::string_view kAudio[] = {"audio_tower",    "audio_model",   "audio_encoder",
                                         "embed_audio",    "sound_encoder", "sound_projection",
                                         "audio_projector"};
  if (is_gguf())
    return mtp_block_ >= 0 && layer_of(stored_name) >= mtp_block_ ? Part::kMtp : Part::kText;
  for (size_t begin = 0; begin < stored_name.size();) {
    const size_t end = std::min(stored_name.find('.', begin), stored_name.size());
    const std::string_view word = stored_name.substr(begin, end - begin);
    if (word == "layers") break;  // inside of layers names mean something else
    if (word == "mtp") return Part::kMtp;
    if (std::ranges::find(kVision, word) != std::end(kVision)) return Part::kVision;
    if (std::ranges::find(kAudio, word) != std::end(kAudio)) return Part::kAudio;
    begin = end + 1;
  }
  return Part::kText;
}

bool ModelSource::is_wanted(std::string_view stored_name) const {
  const Part part = part_of(stored_name);
  return part == Part::kText || (part == Part::kMtp && wants_mtp_);
}

bool ModelSource::is_expert(std::string_view stored_name) {
  for (const std::string_view mark : {".experts.", ".switch_mlp.", "_exps."})
    if (stored_name.find(mark) != std::string_view::npos) return true;
  return false;
}

std::vector<std::string> ModelSource::unused_tensors() const {
  std::vector<std::string> names;
  for (const TensorInfo& tensor : checkpoint_.tensors())
    if (is_wanted(tensor.name) && !used_.contains(&tensor)) names.push_back(tensor.name);
  return names;
}

}  // namespace invar
