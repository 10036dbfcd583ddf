// The expert ops of the cpu backend. Arithmetic "cpu-1": a pair (row, slot) goes through its
// expert's matrices as through linear() and gated_linear(), alone; the router is an fma chain along
// k in fp32, lane = expert; a row's slots are folded in order (moe_inl.h). How rows are gathered by
// experts and split over threads changes no bit.
#pragma once

#include <vector>

#include "backend/cpu/linear_phase.h"
#include "backend/cpu/moe_route.h"
#include "backend/moe_ops.h"
#include "backend/tunable.h"

namespace invar::cpu {

class CpuMoeOps final : public MoeOps {
 public:
  // `pool` and `crossovers` outlive it.
  CpuMoeOps(ThreadPool& pool, Isa isa, const std::vector<KernelCrossover>& crossovers)
      : pool_(pool), isa_(isa), crossovers_(crossovers) {}

  void router(Tensor logits, Tensor x, const PackedWeight& w) override;
  void moe(Tensor y, Tensor x, Tensor logits, const PackedWeight& up, const PackedWeight& down,
           const MoeArgs& args, Tensor residual) override;
  int num_experts_read() const override { return num_experts_read_; }
  void add_gated(Tensor y, Tensor x, Tensor gate) override;

 private:
  void route(Tensor logits, const MoeArgs& args);
  // A job an expert that has rows: its pairs, its units of w. Where their tiles stand is open.
  std::vector<Job> jobs_of(const PackedPanels& w) const;
  // For each pair its row of x, quantized once.
  void gather_inputs(Tensor x, const PackedPanels& w, std::span<Job> jobs);
  void gather_tiles(const Tiles& tiles_of_x, int64_t num_tiles, std::span<const Job> jobs);
  void quantize_pairs(Tensor pairs, const PackedPanels& w, std::span<Job> jobs);
  void run(Tensor y, const PackedPanels& w, std::span<const Job> jobs, const MoeArgs* activation);
  void fold(Tensor y, Tensor outputs, int num_slots, Tensor residual);

  ThreadPool& pool_;
  const Isa isa_;
  const std::vector<KernelCrossover>& crossovers_;

  // Kept from call to call, so that a step allocates little.
  std::vector<int32_t> experts_;  // [num_rows * num_slots], as the next
  std::vector<float> weights_;
  PairOrder order_;
  Activations activations_;  // of pairs: first their inputs, then what `up` made of them
  Scratch inputs_, hidden_, outputs_;
  int num_experts_read_ = 0;
};

}  // namespace invar::cpu
