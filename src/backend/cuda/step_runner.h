// Runs recorded steps on one stream. A small step that comes again is captured into a CUDA graph
// and from then on launched as one; everything else goes launch by launch, with the same kernels
// and arguments, so the bits are equal.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/step.h"
#include "backend/cuda/step_plan.h"

namespace invar::cuda {

class StepRunner {
 public:
  StepRunner(cudaStream_t stream, const StepSwitches& switches);
  ~StepRunner();
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  // Where the host writes the arrays of the next step, pinned; kArrayBytes of it.
  static constexpr size_t kArrayBytes = size_t{8} << 20;
  uint8_t* next_arrays();

  // The whole step. Reads the arrays of the last next_arrays().
  void run(const StepRecord& record);
  // Op by op: those of `record` from `first_op` on; `record` begins with what ran before.
  void run_from(const StepRecord& record, size_t first_op);
  // Of a step that was given up, maybe in the middle of a launch: waits for what has begun.
  void drop();

  // Of the step that ran last, on the device.
  void* buffer(int index) const;
  const void* array_data(const StepRecord& record, int index) const;

  // The host stays one step ahead and no more: for steps whose results nobody reads.
  void wait_for_last_but_one();

  const CudaStepCounts& counts() const { return counts_; }

 private:
  // A step of a certain shape.
  struct Program {
    StepRecord record;
    StepPlan plan;
    cudaGraphExec_t graph = nullptr;
    int num_runs = 0;
    uint64_t last_used = 0;
    ~Program() {
      if (graph != nullptr) cudaGraphExecDestroy(graph);
    }
  };
  Program& program_of(const StepRecord& record);
  void reserve(size_t num_bytes, bool keep);
  void copy_arrays(const StepRecord& record);
  void launch_ops(const StepRecord& record, const StepPlan& plan, size_t first);
  void launch_op(const StepRecord& record, const StepPlan& plan, const PlannedOp& p);
  void launch_matrix(const StepRecord& record, const StepPlan& plan, const PlannedOp& p);
  void launch_attention(const StepRecord& record, const StepPlan& plan, const PlannedOp& p);
  void capture(Program& program);

  template <typename T>
  const T* array(const StepRecord& record, int index) const {
    return reinterpret_cast<const T*>(arrays_.data() +
                                      record.arrays[static_cast<size_t>(index)].offset);
  }

  static constexpr size_t kSlots = 3;  // steps that the host may be ahead
  struct Slot {
    PinnedMemory memory;
    cudaEvent_t read = nullptr;
  };

  const cudaStream_t stream_;
  const StepSwitches switches_;
  std::array<Slot, kSlots> slots_;
  size_t slot_ = 0;
  DeviceMemory arrays_;  // of the running step
  DeviceMemory memory_;  // its buffers
  size_t memory_bytes_ = 0;
  std::vector<std::unique_ptr<Program>> programs_;
  uint64_t clock_ = 0;
  cudaEvent_t ended_[2] = {};
  StepPlan recorded_plan_;  // of a step run op by op
  const StepPlan* last_plan_ = nullptr;
  CudaStepCounts counts_;
};

}  // namespace invar::cuda
