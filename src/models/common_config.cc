#include "models/common_config.h"

#include <algorithm>
#include <cmath>

namespace invar {
namespace {

// Attention kernels take all query heads of a KV head together. Published models have up to 16.
constexpr int kMaxHeadsPerKv = 64;

}  // namespace

float CommonConfig::default_attention_scale() const {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
}

ModelInfo CommonConfig::info() const {
  ModelInfo info;
  info.num_layers = num_layers;
  info.hidden_size = hidden_size;
  info.vocab_size = vocab_size;
  info.max_position_embeddings = max_position_embeddings;
  return info;
}

Result<int> int_in_range(const Json& config, const char* key, int fallback, int max) {
  INVAR_TRY(const int value,
            fallback < 0 ? config.required<int>(key) : config.optional<int>(key, fallback));
  if (value < 1 || value > max)
    return invalid_argument("'%s' is %d, expected 1 to %d", key, value, max);
  return value;
}

void set_default(Json& config, const char* key, Json value) {
  const Json* found = config.find(key);
  if (found == nullptr || found->is_null()) config.set(key, std::move(value));
}

Result<void> expect_activation(const Json& config, const char* key, std::string_view expected) {
  INVAR_TRY(const auto name, config.optional<std::string>(key, std::string(expected)));
  if (name != expected)
    return unsupported("'%s' is '%s', expected '%s'", key, name.c_str(),
                       std::string(expected).c_str());
  return {};
}

Result<void> parse_common_config(CommonConfig& c, const ModelSource& source, const Json& config) {
  INVAR_TRY(c.hidden_size, int_in_range(config, "hidden_size", -1, 1 << 17));
  INVAR_TRY(c.num_layers, int_in_range(config, "num_hidden_layers", -1, 1024));
  INVAR_TRY(c.num_heads, int_in_range(config, "num_attention_heads", -1, 1024));
  INVAR_TRY(c.num_kv_heads, int_in_range(config, "num_key_value_heads", c.num_heads, 1024));
  INVAR_TRY(c.head_dim,
            int_in_range(config, "head_dim", std::max(1, c.hidden_size / c.num_heads), 1024));
  INVAR_TRY(c.vocab_size, int_in_range(config, "vocab_size", -1, 1 << 22));
  INVAR_TRY(c.max_position_embeddings,
            int_in_range(config, "max_position_embeddings", 2048, 1 << 24));
  if (c.num_heads % c.num_kv_heads != 0)
    return invalid_argument("'num_attention_heads' %d is no multiple of 'num_key_value_heads' %d",
                            c.num_heads, c.num_kv_heads);
  if (c.num_heads / c.num_kv_heads > kMaxHeadsPerKv)
    return unsupported("'num_attention_heads' %d is more than %d times 'num_key_value_heads' %d",
                       c.num_heads, kMaxHeadsPerKv, c.num_kv_heads);
  if (c.head_dim % 2 != 0) return unsupported("'head_dim' %d is odd", c.head_dim);
  INVAR_TRY(const double eps, config.required<double>("rms_norm_eps"));
  if (!(eps > 0 && eps < 1)) return invalid_argument("'rms_norm_eps' is %g, expected 0 to 1", eps);
  c.rms_norm_eps = static_cast<float>(eps);
  INVAR_TRY(c.tied, config.optional<bool>("tie_word_embeddings", source.is_gguf()));
  return {};
}

}  // namespace invar
