// One layer of a HybridDecoder, or of its MTP head: weights, how they are loaded, what they
// compute.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/hybrid_decoder.h"

namespace invar {

// Softmax attention, its output perhaps gated by a sigmoid.
class GatedAttention {
 public:
  // `prefix`: "model.layers.3.self_attn."
  Result<void> load(const HybridConfig& config, float norm_add, const std::string& prefix,
                    const ModelSource& source, Packer& packer);
  void add_(ops::Context& ctx, const Batch& batch, const HybridConfig& config, int kv_layer,
            Tensor x, Tensor h) const;

 private:
  std::unique_ptr<PackedWeight> qkv_, o_;  // rows: queries, keys, values, gates
  std::vector<float> q_norm_, k_norm_;
};

class GatedDeltaNet {
 public:
  Result<void> load(const HybridConfig& config, const std::string& prefix,
                    const ModelSource& source, Packer& packer);
  void add_(ops::Context& ctx, const Batch& batch, const HybridConfig& config, int state_layer,
            Tensor x, Tensor h) const;

 private:
  std::unique_ptr<PackedWeight> in_, out_;  // rows of in_: q, k, v, z, b, a
  std::vector<float> conv_;                 // [conv_kernel][conv_size]
  std::vector<float> decay_, dt_bias_, norm_;
};

struct HybridLayer {
  std::vector<float> input_norm, post_attention_norm;
  std::unique_ptr<GatedAttention> attention;  // or
  std::unique_ptr<GatedDeltaNet> delta;
  std::unique_ptr<PackedWeight> gate_up, down;  // or
  std::unique_ptr<MoeBlock> moe;
  int cache_layer = 0;  // of the KV cache or of the state cache

  // `prefix`: "model.layers.3."
  Result<void> load(const HybridConfig& config, HybridConfig::Layer kind, float norm_add,
                    const std::string& prefix, const ModelSource& source, Packer& packer);
  // x becomes what comes behind the layer.
  void run_(ops::Context& ctx, const Batch& batch, const HybridConfig& config, Tensor x) const;
};

}  // namespace invar
