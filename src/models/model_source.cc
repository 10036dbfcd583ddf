// Names and shapes: where a module's tensors stand in either container, and what is said when one
// is missing or has another shape.
#include "models/model_source.h"

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

const GgufNames& common_gguf_names() {
  static const GgufNames names = {
      {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"}, {"post_attention_layernorm", "ffn_norm"},
      {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},
  };
  return names;
}

ModelSource::ModelSource(const Checkpoint& checkpoint, Json config)
    : checkpoint_(checkpoint), config_(std::move(config)), gguf_names_(&common_gguf_names()) {}

std::string ModelSource::stored_name(const std::string& module, std::string_view suffix,
                                     std::string_view prefix) const {
  if (!is_gguf()) {
    // "model.language_model." replaces "model.", "language_model." stands before it.
    std::string name = module;
    if (prefix == "model.language_model." && name.starts_with("model."))
      name = name.substr(std::string_view("model.").size());
    return std::string(prefix) + name + std::string(suffix);
  }
  if (module == "model.embed_tokens") return "token_embd" + std::string(suffix);
  if (module == "model.norm") return "output_norm" + std::string(suffix);
  if (module == "lm_head") return "output" + std::string(suffix);
  constexpr std::string_view kLayers = "model.layers.";
  if (module.starts_with(kLayers)) {
    const size_t dot = module.find('.', kLayers.size());
    const std::string number = module.substr(kLayers.size(), dot - kLayers.size());
    const std::string_view stem = std::string_view(module).substr(dot + 1);
    for (const auto& [hf, gguf] : *gguf_names_)
      if (hf == stem) return "blk." + number + "." + std::string(gguf) + std::string(suffix);
  }
  return module + std::string(suffix);
}

const TensorInfo* ModelSource::find(const std::string& module, std::string_view suffix) const {
  for (const std::string_view prefix : kPrefixes) {
    if (const TensorInfo* tensor = checkpoint_.find(stored_name(module, suffix, prefix))) {
      used_.insert(tensor);
      return tensor;
    }
    if (is_gguf()) break;
  }
  return nullptr;
}

Error ModelSource::wrong_shape(const TensorInfo& tensor, const std::string& expected) const {
  return corrupt("%s is %s, expected %s by %s", tensor.matrix.name.c_str(),
                 shape_text(tensor.shape).c_str(), expected.c_str(),
                 is_gguf() ? "the file's metadata" : "config.json");
}

Result<MatrixView> ModelSource::matrix(const std::string& module, int64_t num_rows,
                                       int64_t num_cols) const {
  const std::string expected = shape_text({num_rows, num_cols});
  const TensorInfo* tensor = find(module);
  if (tensor == nullptr)
    return corrupt("%s: tensor '%s' is missing, expected with shape %s", checkpoint_.path.c_str(),
                   stored_name(module, ".weight", "").c_str(), expected.c_str());
  if (without_ones(tensor->shape) != without_ones({num_rows, num_cols}) ||
      tensor->matrix.num_cols != num_cols)
    return wrong_shape(*tensor, expected);
  return tensor->matrix;
}

Result<std::vector<float>> ModelSource::vector(const std::string& module, std::string_view suffix,
                                               int64_t size, float add) const {
  const std::string expected = shape_text({size});
  const TensorInfo* tensor = find(module, suffix);
  if (tensor == nullptr)
    return corrupt("%s: tensor '%s' is missing, expected with shape %s", checkpoint_.path.c_str(),
                   stored_name(module, suffix, "").c_str(), expected.c_str());
  if (without_ones(tensor->shape) != without_ones({size}) || tensor->matrix.num_cols != size)
    return wrong_shape(*tensor, expected);
  std::vector<float> values(static_cast<size_t>(size));
  dequantize_row(tensor->matrix, 0, values.data());
  for (float& value : values) value += add;
  return values;
}

int ModelSource::layer_of(std::string_view stored_name) {
  for (const std::string_view before : {"blk.", "model.layers.", "language_model.layers."}) {
    const size_t at = stored_name.find(before);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = stored_name.substr(at + before.size());
    int layer = -1;
    std::from_chars(rest.data(), rest.data() + rest.size(), layer);
    return layer;
  }
  return -1;
}

std::vector<std::string> ModelSource::unused_tensors() const {
  std::vector<std::string> names;
  for (const TensorInfo& tensor : checkpoint_.tensors())
    if (!used_.contains(&tensor)) names.push_back(tensor.name);
  return names;
}

}  // namespace invar
