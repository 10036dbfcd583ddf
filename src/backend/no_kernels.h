// NoKernels: a Backend for models that compute nothing with it. Calling a kernel is a mistake.
#pragma once

#include "backend/backend.h"
#include "base/check.h"

namespace invar {

class NoKernels : public Backend {
 public:
  Result<std::unique_ptr<PackedWeight>> pack(const PackRequest&) override {
    return unsupported("the %s backend has no weights", info().name.c_str());
  }
  void embed(Tensor, std::span<const int32_t>, const PackedWeight&, float) override { none(); }
  void rms_norm(Tensor, Tensor, std::span<const float>, float, Tensor) override { none(); }
  void head_rms_norm(Tensor, int, std::span<const float>, float) override { none(); }
  void linear(Tensor, Tensor, const PackedWeight&, std::span<const float>, Tensor) override {
    none();
  }
  void gated_linear(Tensor, Tensor, const PackedWeight&, Activation) override { none(); }
  void rope(Tensor, int, std::span<const int32_t>, const RopeSpec&) override { none(); }
  void attention(Tensor, Tensor, Tensor, Tensor, std::span<const Window>, KvCache&,
                 const AttentionArgs&) override {
    none();
  }
  void gather_rows(Tensor, Tensor, std::span<const int32_t>) override { none(); }
  void lm_head(Tensor, Tensor, const PackedWeight&, float) override { none(); }

 private:
  void none() const { INVAR_CHECK(false, "the %s backend has no kernels", info().name.c_str()); }
};

}  // namespace invar
