// The cpu backend: kernels for x86-64 (AVX2, AVX-512) and a portable form with the same bits. This
// class only routes: choice of the instruction set, threads, and one call a kernel. The arithmetic
// (id "cpu-1") is design/cpu-kernels.md; each op's file says how it is split over threads.
#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/attention.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/moe.h"
#include "backend/cpu/recurrent.h"
#include "backend/cpu/rope.h"
#include "backend/page_access.h"
#include "backend/tunable.h"
#include "base/threads.h"

namespace invar::cpu {

class CpuBackend final : public Backend, public PageAccess, public Tunable {
 public:
  CpuBackend(BackendInfo info, Isa isa, const LinearOptions& linear_options);

  const BackendInfo& info() const override { return info_; }
  RecurrentOps* recurrent_ops() override { return recurrent_ops_.get(); }
  MoeOps* moe_ops() override { return &moe_ops_; }

  Result<std::unique_ptr<PackedWeight>> pack(const PackRequest& request) override;
  Result<std::unique_ptr<KvCache>> make_kv_cache(std::span<const KvLayerShape> layers,
                                                 int num_pages) override;
  size_t kv_page_bytes(std::span<const KvLayerShape> layers) const override;
  void copy_page(KvCache& cache, int from, int to) override;
  std::string kv_layout() const override { return "cpu-kv-1"; }
  std::vector<uint8_t> read_page(const KvCache& cache, int page) const override;
  void write_page(KvCache& cache, int page, std::span<const uint8_t> bytes) override;

  void embed(Tensor y, std::span<const int32_t> ids, const PackedWeight& table,
             float scale) override;
  void rms_norm(Tensor y, Tensor x, std::span<const float> weight, float eps,
                Tensor residual) override;
  void head_rms_norm(Tensor x, int head_dim, std::span<const float> weight, float eps) override;
  void linear(Tensor y, Tensor x, const PackedWeight& w, std::span<const float> bias,
              Tensor residual) override;
  void gated_linear(Tensor y, Tensor x, const PackedWeight& w, Activation activation) override;
  void rope(Tensor x, int head_dim, std::span<const int32_t> positions,
            const RopeSpec& spec) override;
  void attention(Tensor y, Tensor q, Tensor k, Tensor v, std::span<const Window> windows,
                 KvCache& cache, const AttentionArgs& args) override;
  void gather_rows(Tensor y, Tensor x, std::span<const int32_t> rows) override;
  void lm_head(Tensor logits, Tensor x, const PackedWeight& w, float softcap) override;
  void set_crossovers(std::span<const KernelCrossover> crossovers) override {
    crossovers_.assign(crossovers.begin(), crossovers.end());
  }

 private:
  BackendInfo info_;
  Isa isa_;
  LinearOptions linear_options_;
  std::vector<KernelCrossover> crossovers_;
  ThreadPool pool_;
  RopeTables rope_tables_;
  AttentionWorkspace attention_workspace_;
  CpuMoeOps moe_ops_{pool_, isa_, crossovers_};
  std::unique_ptr<RecurrentOps> recurrent_ops_ = make_recurrent_ops(pool_, isa_);
};

}  // namespace invar::cpu
