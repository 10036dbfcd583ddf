#include "backend/cuda/step_runner.h"

#include <algorithm>

#include "backend/cuda/cuda_check.h"
#include "backend/cuda/linear.h"
#include "backend/cuda/row_ops.h"
#include "base/check.h"

namespace invar::cuda {
namespace {

// Steps of so many rows at most become graphs: what decodes. A longer one is bound by its kernels,
// and the host is far ahead of them.
constexpr int kGraphRows = 64;
constexpr size_t kMaxPrograms = 64;
// Beyond, lin_decode is better started at once (measured).
constexpr int kLateGroups = 8;

int rows_of(const StepRecord& record, const StepTensor& t) {
  return record.buffers[static_cast<size_t>(t.buffer)].num_rows;
}
int stride_of(const StepRecord& record, const StepTensor& t) {
  return record.buffers[static_cast<size_t>(t.buffer)].num_cols;
}
OutputType type_of(const StepRecord& record, const StepTensor& t) {
  return record.buffers[static_cast<size_t>(t.buffer)].type;
}

}  // namespace

StepRunner::StepRunner(cudaStream_t stream, const StepSwitches& switches)
    : stream_(stream), switches_(switches), arrays_(DeviceMemory::make_or_end(kArrayBytes)) {
  for (Slot& slot : slots_) {
    slot.memory = PinnedMemory(kArrayBytes);
    CUDA_CHECK(cudaEventCreateWithFlags(&slot.read, cudaEventDisableTiming));
  }
  for (cudaEvent_t& event : ended_)
    CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
}

StepRunner::~StepRunner() {
  cudaStreamSynchronize(stream_);
  for (const Slot& slot : slots_) cudaEventDestroy(slot.read);
  for (const cudaEvent_t event : ended_) cudaEventDestroy(event);
}

uint8_t* StepRunner::next_arrays() {
  slot_ = (slot_ + 1) % kSlots;
  CUDA_CHECK(cudaEventSynchronize(slots_[slot_].read));  // at once if never recorded
  return slots_[slot_].memory.data();
}

const void* StepRunner::array_data(const StepRecord& record, int index) const {
  return array<uint8_t>(record, index);
}

void StepRunner::wait_for_last_but_one() {
  std::swap(ended_[0], ended_[1]);
  CUDA_CHECK(cudaEventRecord(ended_[0], stream_));
  CUDA_CHECK(cudaEventSynchronize(ended_[1]));
}

void* StepRunner::buffer(int index) const {
  return memory_.data() + last_plan_->offsets[static_cast<size_t>(index)];
}

StepRunner::Program& StepRunner::program_of(const StepRecord& record) {
  ++clock_;
  for (const auto& program : programs_) {
    if (!(program->record == record)) continue;
    program->last_used = clock_;
    return *program;
  }
  if (programs_.size() == kMaxPrograms) {
    const auto oldest =
        std::min_element(programs_.begin(), programs_.end(),
                         [](const auto& a, const auto& b) { return a->last_used < b->last_used; });
    CUDA_CHECK(cudaStreamSynchronize(stream_));  // its graph may be running
    programs_.erase(oldest);
  }
  auto program = std::make_unique<Program>();
  program->record = record;
  program->plan = plan_step(record, switches_, false);
  program->last_used = clock_;
  programs_.push_back(std::move(program));
  return *programs_.back();
}

// Graphs hold addresses, so they go when the memory moves.
void StepRunner::reserve(size_t num_bytes, bool keep) {
  if (num_bytes <= memory_bytes_) return;
  CUDA_CHECK(cudaStreamSynchronize(stream_));
  for (const auto& program : programs_) {
    if (program->graph != nullptr) CUDA_CHECK(cudaGraphExecDestroy(program->graph));
    program->graph = nullptr;
  }
  const size_t larger = num_bytes + num_bytes / 4;
  DeviceMemory memory;
  if (keep) {
    memory = DeviceMemory::make_or_end(larger);
    copy_now(memory.data(), memory_.data(), memory_bytes_, cudaMemcpyDeviceToDevice);
  } else {
    memory_ = DeviceMemory();
    memory = DeviceMemory::make_or_end(larger);
  }
  memory_ = std::move(memory);
  memory_bytes_ = larger;
}

void StepRunner::copy_arrays(const StepRecord& record) {
  if (record.arrays.empty()) return;
  const StepArray& last = record.arrays.back();
  CUDA_CHECK(cudaMemcpyAsync(arrays_.data(), slots_[slot_].memory.data(),
                             last.offset + last.reserved_bytes, cudaMemcpyHostToDevice, stream_));
  CUDA_CHECK(cudaEventRecord(slots_[slot_].read, stream_));
}

void StepRunner::run(const StepRecord& record) {
  if (record.ops.empty()) return;
  Program& program = program_of(record);
  reserve(program.plan.num_bytes, false);
  last_plan_ = &program.plan;
  ++counts_.steps;
  const int rows = record.buffers.front().num_rows;
  const bool wants_graph = switches_.graph && rows <= kGraphRows && ++program.num_runs > 1;
  if (wants_graph && program.graph == nullptr) capture(program);
  copy_arrays(record);
  note_cuda_work(program.graph != nullptr ? "graph of a step" : "step", rows,
                 static_cast<int>(record.ops.size()));
  if (program.graph != nullptr) {
    ++counts_.graph_steps;
    CUDA_CHECK(cudaGraphLaunch(program.graph, stream_));
  } else {
    launch_ops(record, program.plan, 0);
  }
}

void StepRunner::run_from(const StepRecord& record, size_t first_op) {
  recorded_plan_ = plan_step(record, switches_, true);
  reserve(recorded_plan_.num_bytes, true);
  last_plan_ = &recorded_plan_;
  copy_arrays(record);
  launch_ops(record, recorded_plan_, first_op);
}

void StepRunner::drop() {
  cudaStreamCaptureStatus status;
  CUDA_CHECK(cudaStreamIsCapturing(stream_, &status));
  if (status != cudaStreamCaptureStatusNone) {
    cudaGraph_t graph = nullptr;
    CUDA_CHECK(cudaStreamEndCapture(stream_, &graph));
    CUDA_CHECK(cudaGraphDestroy(graph));
  }
  CUDA_CHECK(cudaStreamSynchronize(stream_));
}

void StepRunner::capture(Program& program) {
  ++counts_.captures;
  cudaGraph_t graph;
  CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  launch_ops(program.record, program.plan, 0);
  CUDA_CHECK(cudaStreamEndCapture(stream_, &graph));
  CUDA_CHECK(cudaGraphInstantiate(&program.graph, graph, 0));
  CUDA_CHECK(cudaGraphDestroy(graph));
}

void StepRunner::launch_ops(const StepRecord& record, const StepPlan& plan, size_t first) {
  for (size_t i = first; i < plan.ops.size(); ++i) {
    const StepOp& op = plan.ops[i].op;
    note_cuda_work(step_op_name(op.kind), rows_of(record, op.y), static_cast<int>(i));
    launch_op(record, plan, plan.ops[i]);
  }
}

void StepRunner::launch_op(const StepRecord& record, const StepPlan& plan, const PlannedOp& p) {
  const StepOp& op = p.op;
  // Typed start of a tensor's rows.
  const auto at = [&](const StepTensor& t) -> uint8_t* {
    if (t.buffer < 0) return nullptr;
    return memory_.data() + plan.offsets[static_cast<size_t>(t.buffer)] +
           static_cast<size_t>(t.first_col) * (type_of(record, t) == OutputType::kF32 ? 4 : 2);
  };
  const bool dependent = switches_.dependent;
  const int rows = rows_of(record, op.y), y_stride = stride_of(record, op.y);
  switch (op.kind) {
    case StepOpKind::kEmbed:
      return embed(stream_, op.matrix->front().matrix, array<int32_t>(record, op.array), rows,
                   op.value, reinterpret_cast<float*>(at(op.y)), y_stride);
    case StepOpKind::kRmsNorm: {
      const auto* x = reinterpret_cast<const float*>(at(op.x));
      if (op.residual.buffer < 0)
        return rms_norm(stream_, x, stride_of(record, op.x), op.vector, op.value, rows,
                        op.x.num_cols, at(op.y), y_stride, dependent);
      return rms_norm_add(stream_, x, stride_of(record, op.x), op.vector, op.value, rows,
                          op.x.num_cols, reinterpret_cast<const float*>(at(op.residual)),
                          stride_of(record, op.residual), reinterpret_cast<float*>(at(op.y)),
                          y_stride, dependent);
    }
    case StepOpKind::kHeadRmsNorm:
      return head_rms_norm(stream_, OutputType::kF32, at(op.x), y_stride, op.vector, op.value, rows,
                           op.x.num_cols / op.head_dim, op.head_dim, dependent);
    case StepOpKind::kRope:
      return rope(stream_, OutputType::kF32, at(op.x), y_stride, array<int32_t>(record, op.array),
                  op.inv_freq, op.num_freqs, op.value, rows, op.x.num_cols / op.head_dim,
                  op.head_dim, dependent);
    case StepOpKind::kGatherRows: {
      const int64_t size = type_of(record, op.x) == OutputType::kF32 ? 4 : 2;
      return gather_rows(stream_, at(op.x), size * stride_of(record, op.x),
                         array<int32_t>(record, op.array), rows, size * op.x.num_cols, at(op.y),
                         size * y_stride);
    }
    case StepOpKind::kBestIds:
      return best_ids(stream_, reinterpret_cast<const float*>(at(op.x)), stride_of(record, op.x),
                      rows, op.x.num_cols, op.num_ids, op.banned,
                      const_cast<unsigned long long*>(array<unsigned long long>(record, op.array)),
                      dependent);
    case StepOpKind::kAttention:
      return launch_attention(record, plan, p);
    case StepOpKind::kLinear:
    case StepOpKind::kGatedLinear:
    case StepOpKind::kLmHead:
      return launch_matrix(record, plan, p);
  }
}

void StepRunner::launch_matrix(const StepRecord& record, const StepPlan& plan, const PlannedOp& p) {
  const StepOp& op = p.op;
  const auto start = [&](const StepTensor& t) {
    return memory_.data() + plan.offsets[static_cast<size_t>(t.buffer)];
  };
  for (const MatrixSegment& segment : *op.matrix) {
    LinearArgs args;
    args.w = segment.matrix;
    args.x = start(op.x);
    args.x_stride = stride_of(record, op.x);
    args.num_tokens = rows_of(record, op.x);
    args.norm_weight = p.norm_weight;
    args.norm_eps = p.norm_eps;
    INVAR_CHECK((type_of(record, op.x) == OutputType::kF32) == (p.norm_weight != nullptr) &&
                    op.x.first_col == 0,
                "input of %s", step_op_name(op.kind));
    Epilogue& e = args.epilogue;
    const int64_t at = segment.first_row;
    e.y_type = type_of(record, op.y);
    e.y = start(op.y) + at * (e.y_type == OutputType::kF32 ? 4 : 2);
    e.y_stride = stride_of(record, op.y);
    e.activation = op.activation;
    if (op.kind == StepOpKind::kLmHead) e.softcap = op.value;
    if (op.vector != nullptr) e.bias = op.vector + at;
    if (op.residual.buffer >= 0) {
      e.residual = reinterpret_cast<const float*>(start(op.residual)) + at;
      e.residual_stride = stride_of(record, op.residual);
    }
    linear(stream_, args,
           {.dependent = switches_.dependent,
            .trigger_late = switches_.late && plan.max_groups <= kLateGroups});
  }
}

void StepRunner::launch_attention(const StepRecord& record, const StepPlan& plan,
                                  const PlannedOp& p) {
  const StepOp& op = p.op;
  const auto at = [&](const StepTensor& t) {
    return memory_.data() + plan.offsets[static_cast<size_t>(t.buffer)] +
           static_cast<size_t>(t.first_col) * 4;
  };
  AttentionCall call;
  call.shape = op.shape;
  call.input_type = OutputType::kF32;
  call.q = at(op.x);
  call.k = at(op.k);
  call.v = at(op.v);
  call.q_stride = stride_of(record, op.x);
  call.k_stride = stride_of(record, op.k);
  call.v_stride = stride_of(record, op.v);
  call.y = memory_.data() + plan.offsets[static_cast<size_t>(op.y.buffer)];
  call.y_stride = stride_of(record, op.y);
  call.windows = array<DeviceWindow>(record, op.windows_array);
  call.num_windows = op.num_windows;
  call.pages = array<int32_t>(record, op.pages_array);
  call.row_window = array<int32_t>(record, op.row_window_array);
  call.num_rows = rows_of(record, op.y);
  call.max_window_rows = op.max_window_rows;
  call.max_groups = op.max_groups;
  call.cache = op.pages;
  call.workspace = reinterpret_cast<float*>(memory_.data() + p.workspace_offset);
  call.workspace_bytes = p.workspace_bytes;
  if (p.rotate) {
    auto* table = reinterpret_cast<float2*>(memory_.data() + p.rotation_offset);
    if (p.make_rotation)
      rope_table(stream_, array<int32_t>(record, p.positions_array), p.inv_freq, p.num_freqs,
                 p.magnitude, call.num_rows, table, switches_.dependent);
    call.rotation = table;
    call.num_freqs = p.num_freqs;
  }
  attention(stream_, call,
            {.token = switches_.token_attention ? 0 : 1,
             .stream = switches_.stream_attention ? 0 : 1,
             .dependent = switches_.dependent});
}

}  // namespace invar::cuda
