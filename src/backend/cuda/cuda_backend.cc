// Records the ops of a step (step.h) and hands it to StepRunner when the host wants to see
// something: in synchronize(), or op by op for whoever times single ops. Until then nothing runs,
// so a model's hundreds of calls become one graph launch.
#include "backend/cuda/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <unordered_map>

#include "backend/cuda/attention.h"
#include "backend/cuda/ceilings.h"
#include "backend/cuda/cuda_check.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/linear.h"
#include "backend/cuda/pack.h"
#include "backend/cuda/row_ops.h"
#include "backend/cuda/step.h"
#include "backend/cuda/step_runner.h"
#include "base/check.h"
#include "base/log.h"
#include "base/threads.h"

namespace invar {
namespace cuda {
namespace {

// Set aside for the buffers of a step, its graphs and the driver.
constexpr uint64_t kReservedBytes = uint64_t{1} << 30;

// Parts of different kinds stand in segments of their own, each a matrix for the kernels.
class CudaWeight : public PackedWeight {
 public:
  uint64_t id = 0;
  std::vector<MatrixSegment> segments;
  std::vector<DeviceMemory> memory;
};

class CudaKvCache : public KvCache {
 public:
  std::vector<KvLayerShape> layers;
  std::vector<DeviceMemory> pages;  // of each layer
};

// Small arrays of the host that belong to a model (norm weights, biases, frequencies), kept on the
// device by address. An address may come to hold another array once a model has gone; the next one
// begins with pack(), after which contents are compared in full. Else their ends are.
class ConstantCache {
 public:
  template <typename T>
  const T* get(std::span<const T> values) {
    if (values.empty()) return nullptr;
    Entry& entry = entries_[values.data()];
    const size_t size = values.size_bytes();
    const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
    if (entry.host.size() == size) {
      const bool whole = entry.checked != generation_;
      const size_t end = whole ? size : std::min<size_t>(size, 64);
      if (std::memcmp(entry.host.data(), bytes, end) == 0 &&
          std::memcmp(entry.host.data() + size - end, bytes + size - end, end) == 0) {
        entry.checked = generation_;
        return reinterpret_cast<const T*>(entry.device.data());
      }
    }
    entry.device = DeviceMemory::make_or_end(size);  // the old copy is freed when nothing runs
    entry.host.assign(bytes, bytes + size);
    entry.checked = generation_;
    copy_now(entry.device.data(), bytes, size, cudaMemcpyHostToDevice);
    return reinterpret_cast<const T*>(entry.device.data());
  }
  void check_all_again() { ++generation_; }

 private:
  struct Entry {
    std::vector<uint8_t> host;
    DeviceMemory device;
    uint64_t checked = 0;
  };
  std::unordered_map<const void*, Entry> entries_;
  uint64_t generation_ = 1;
};

// Counts that grow from step to step are rounded up, so that a graph serves many steps: 1, 2, 3, 4,
// 6, 8, 12, 16, ...
int round_up_count(int n) {
  int power = 1;
  while (power < n) power *= 2;
  return power >= 4 && n <= power / 4 * 3 ? power / 4 * 3 : power;
}

// Said once for a format: a matrix that is stored as bf16 takes two to four times its memory and
// time.
void warn_of_bf16(const MatrixView& matrix, PackedKind kind) {
  static std::mutex mutex;
  static std::set<WeightFormat> said;
  const bool is_plain = matrix.format == WeightFormat::kBF16 ||
                        matrix.format == WeightFormat::kF16 || matrix.format == WeightFormat::kF32;
  if (kind != PackedKind::kBf16 || is_plain) return;
  const std::lock_guard lock(mutex);
  if (!said.insert(matrix.format).second) return;
  log(LogLevel::kWarning,
      "%s (and maybe others) is stored as bf16: the cuda backend has no form of its own for %s "
      "here, "
      "so that it takes more memory and time than in the file",
      matrix.name.c_str(), format_name(matrix.format));
}

class CudaBackend : public Backend {
 public:
  CudaBackend(const char* device_name, const StepSwitches& switches, int num_threads)
      : pool_(num_threads > 0 ? num_threads : default_num_threads()) {
    info_.name = "cuda";
    info_.arithmetic_id = "cuda-sm90-1";
    info_.isa = "sm_90a";
    info_.why = device_name;
    info_.num_threads = pool_.num_threads();
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    runner_ = std::make_unique<StepRunner>(stream_, switches);
  }
  ~CudaBackend() override {
    runner_.reset();
    cudaStreamDestroy(stream_);
  }

  const BackendInfo& info() const override { return info_; }
  const CudaStepCounts& counts() const { return runner_->counts(); }

  std::optional<DeviceRoom> device_room() const override {
    size_t free = 0, total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return DeviceRoom{free > kReservedBytes ? free - kReservedBytes : 0, info_.why};
  }

  DeviceRates measure_rates() override { return measure_device_rates(stream_); }

  Result<std::unique_ptr<PackedWeight>> pack(const PackRequest& request) override {
    constants_.check_all_again();
    auto weight = std::make_unique<CudaWeight>();
    weight->id = ++num_weights_;
    const bool gated = request.order == PartOrder::kGateAndUp;
    const PackOptions options = {
        .gated = gated, .head = request.role == MatrixRole::kHead, .pool = &pool_};
    weight->num_cols = request.parts[0].num_cols;
    std::span<const MatrixView> left = request.parts;
    while (!left.empty()) {
      size_t count = 1;
      while (count < left.size() && (gated || native_kind(left[count]) == native_kind(left[0])))
        ++count;
      INVAR_TRY(HostPacked packed, pack_matrix(left.first(count), options));
      INVAR_TRY(DeviceMemory memory, DeviceMemory::make(packed.num_bytes));
      copy_now(memory.data(), packed.bytes.get(), packed.num_bytes, cudaMemcpyHostToDevice);
      warn_of_bf16(left.front(), packed.matrix.kind);
      packed.matrix.data = memory.data();
      weight->segments.push_back({packed.matrix, weight->num_rows});
      weight->memory.push_back(std::move(memory));
      weight->num_rows += packed.matrix.num_rows;
      weight->num_bytes += packed.num_bytes;
      left = left.subspan(count);
    }
    return std::unique_ptr<PackedWeight>(std::move(weight));
  }

  Result<std::unique_ptr<KvCache>> make_kv_cache(std::span<const KvLayerShape> layers,
                                                 int num_pages) override {
    auto cache = std::make_unique<CudaKvCache>();
    cache->num_pages = num_pages;
    cache->num_bytes = kv_page_bytes(layers) * static_cast<size_t>(num_pages);
    for (const KvLayerShape& layer : layers) {
      if (layer.head_dim != 64 && layer.head_dim != 128 && layer.head_dim != 256)
        return unsupported("head_dim %d; the cuda backend has 64, 128 and 256", layer.head_dim);
      const size_t size = page_bytes(layer) * static_cast<size_t>(num_pages);
      INVAR_TRY(DeviceMemory memory, DeviceMemory::make(size));
      clear_now(memory.data(), size);
      cache->layers.push_back(layer);
      cache->pages.push_back(std::move(memory));
    }
    return std::unique_ptr<KvCache>(std::move(cache));
  }

  size_t kv_page_bytes(std::span<const KvLayerShape> layers) const override {
    size_t bytes = 0;
    for (const KvLayerShape& layer : layers) bytes += page_bytes(layer);
    return bytes;
  }

  void copy_page(KvCache& cache, int from, int to) override {
    INVAR_CHECK(num_run_ == record_.ops.size(), "a page is copied within a step");
    auto& kv = static_cast<CudaKvCache&>(cache);
    for (size_t i = 0; i < kv.layers.size(); ++i) {
      const size_t size = page_bytes(kv.layers[i]);
      CUDA_CHECK(cudaMemcpyAsync(kv.pages[i].data() + static_cast<size_t>(to) * size,
                                 kv.pages[i].data() + static_cast<size_t>(from) * size, size,
                                 cudaMemcpyDeviceToDevice, stream_));
    }
  }

  Tensor logits_memory(Arena&, int64_t num_rows, int64_t num_cols) override {
    const size_t bytes = static_cast<size_t>(num_rows * num_cols) * 4;
    if (bytes > logits_bytes_) {
      CUDA_CHECK(cudaStreamSynchronize(stream_));
      logits_ = PinnedMemory();
      logits_ = PinnedMemory(bytes);
      logits_bytes_ = bytes;
    }
    return {logits_.data(), DType::kF32, num_rows, num_cols, num_cols};
  }

  // ---- A step

  void begin_step() override {
    INVAR_CHECK(num_run_ == record_.ops.size(), "the step before was not synchronized");
    record_.clear();
    ranges_.clear();
    contents_.clear();
    host_copies_.clear();
    num_run_ = 0;
    wanted_best_.clear();
    best_.clear();
    best_array_ = -1;
    op_by_op_ = false;
    array_memory_ = nullptr;
    array_bytes_ = 0;
    windows_of_step_ = {};
  }

  void embed(Tensor y, std::span<const int32_t> ids, const PackedWeight& table,
             float scale) override {
    StepOp op;
    op.kind = StepOpKind::kEmbed;
    set_matrix(op, table);
    INVAR_CHECK(op.matrix->size() == 1, "an embedding of %zu parts", op.matrix->size());
    op.array = array(ids);
    op.value = scale;
    op.y = output(y, OutputType::kF32);
    record_.ops.push_back(op);
  }

  void rms_norm(Tensor y, Tensor x, std::span<const float> weight, float eps,
                Tensor residual) override {
    StepOp op;
    op.kind = StepOpKind::kRmsNorm;
    op.x = input(x);
    op.vector = constants_.get(weight);
    op.value = eps;
    const bool adds = residual.data != nullptr;
    if (adds) op.residual = input(residual);
    op.y = output(y, adds ? OutputType::kF32 : OutputType::kBF16);
    record_.ops.push_back(op);
  }

  void head_rms_norm(Tensor x, int head_dim, std::span<const float> weight, float eps) override {
    StepOp op;
    op.kind = StepOpKind::kHeadRmsNorm;
    op.x = op.y = input(x);
    op.vector = constants_.get(weight);
    op.value = eps;
    op.head_dim = head_dim;
    record_.ops.push_back(op);
  }

  void linear(Tensor y, Tensor x, const PackedWeight& w, std::span<const float> bias,
              Tensor residual) override {
    StepOp op;
    op.kind = StepOpKind::kLinear;
    set_matrix(op, w);
    op.x = input(x);
    op.vector = constants_.get(bias);
    if (residual.data != nullptr) op.residual = input(residual);
    op.y = output(y, OutputType::kF32);
    record_.ops.push_back(op);
  }

  void gated_linear(Tensor y, Tensor x, const PackedWeight& w, Activation activation) override {
    StepOp op;
    op.kind = StepOpKind::kGatedLinear;
    set_matrix(op, w);
    op.x = input(x);
    op.activation =
        activation == Activation::kSilu ? GateActivation::kSilu : GateActivation::kGeluTanh;
    op.y = output(y, OutputType::kBF16);
    record_.ops.push_back(op);
  }

  void rope(Tensor x, int head_dim, std::span<const int32_t> positions,
            const RopeSpec& spec) override {
    StepOp op;
    op.kind = StepOpKind::kRope;
    op.x = op.y = input(x);
    op.head_dim = head_dim;
    op.array = array(positions);
    op.inv_freq = constants_.get(std::span<const double>(spec.inv_freq));
    op.num_freqs = static_cast<int>(spec.inv_freq.size());
    op.value = static_cast<float>(spec.magnitude);
    record_.ops.push_back(op);
  }

  void attention(Tensor y, Tensor q, Tensor k, Tensor v, std::span<const Window> windows,
                 KvCache& cache, const AttentionArgs& args) override {
    StepOp op;
    op.kind = StepOpKind::kAttention;
    op.x = input(q);
    op.k = input(k);
    op.v = input(v);
    op.shape = {args.num_heads,
                args.num_kv_heads,
                args.head_dim,
                args.scale,
                static_cast<int>(args.sliding_window),
                args.softcap};
    op.pages = static_cast<CudaKvCache&>(cache).pages[static_cast<size_t>(args.layer)].data();
    set_windows(op, windows);
    op.y = output(y, OutputType::kBF16);
    record_.ops.push_back(op);
  }

  void gather_rows(Tensor y, Tensor x, std::span<const int32_t> rows) override {
    StepOp op;
    op.kind = StepOpKind::kGatherRows;
    op.x = input(x);
    op.array = array(rows);
    op.all_rows = static_cast<int64_t>(rows.size()) == x.num_rows;
    for (size_t i = 0; i < rows.size(); ++i) op.all_rows &= rows[i] == static_cast<int32_t>(i);
    op.y = output(y, record_.buffers[static_cast<size_t>(op.x.buffer)].type);
    record_.ops.push_back(op);
  }

  void lm_head(Tensor logits, Tensor x, const PackedWeight& w, float softcap) override {
    StepOp op;
    op.kind = StepOpKind::kLmHead;
    set_matrix(op, w);
    op.x = input(x);
    op.value = softcap;
    op.y = output(logits, OutputType::kF32);
    record_.ops.push_back(op);
    host_copies_.push_back({op.y.buffer, logits});
    if (static_cast<int64_t>(wanted_best_.size()) == logits.num_rows) add_best(op.y);
  }

  void want_best(std::span<const uint8_t> rows, int32_t num_ids,
                 std::span<const int32_t> never) override {
    if (std::all_of(rows.begin(), rows.end(), [](uint8_t wanted) { return wanted == 0; })) return;
    wanted_best_.assign(rows.begin(), rows.end());
    num_ids_ = num_ids;
    if (never.data() == never_.data() && never.size() == never_.size()) return;
    never_ = never;
    banned_.assign((static_cast<size_t>(std::max(num_ids, never.back() + 1)) + 31) / 32, 0);
    for (const int32_t id : never) banned_[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
    constants_.check_all_again();
  }
  std::span<const int32_t> best_ids() const override { return best_; }

  void synchronize() override {
    if (op_by_op_) return synchronize_op();
    const bool has_logits = !host_copies_.empty();
    if (num_run_ < record_.ops.size()) runner_->run(record_);
    num_run_ = record_.ops.size();
    copy_to_host();
    // Without logits nobody can look at anything, so that a prompt's chunks follow each other
    // without a gap.
    if (!has_logits) return runner_->wait_for_last_but_one();
    CUDA_CHECK(cudaStreamSynchronize(stream_));
    read_best();
  }

  void drop_step() override {
    runner_->drop();
    record_.clear();
    num_run_ = 0;
    best_of_ = {};
  }

  void synchronize_op() override {
    op_by_op_ = true;
    if (num_run_ < record_.ops.size()) runner_->run_from(record_, num_run_);
    num_run_ = record_.ops.size();
    copy_to_host();
    CUDA_CHECK(cudaStreamSynchronize(stream_));
    read_best();
  }

 private:
  struct HostRange {
    uintptr_t begin = 0, end = 0;
  };
  struct HostCopy {
    int buffer = -1;
    Tensor to;
  };
  // Of an array that was recorded: several ops name the same one.
  struct Content {
    const void* data = nullptr;
    size_t num_bytes = 0;
  };

  static size_t page_bytes(const KvLayerShape& layer) {
    return static_cast<size_t>(page_elements(layer.num_kv_heads, layer.head_dim)) * 2;
  }

  static void set_matrix(StepOp& op, const PackedWeight& w) {
    const auto& weight = static_cast<const CudaWeight&>(w);
    op.matrix = &weight.segments;
    op.matrix_id = weight.id;
  }

  // Which buffer a host address names. The residual stream is the first one; else the last ones
  // are asked for.
  int find(Tensor t) const {
    const auto at = reinterpret_cast<uintptr_t>(t.data);
    const auto holds = [&](const HostRange& range) { return at >= range.begin && at < range.end; };
    if (!ranges_.empty() && holds(ranges_.front())) return 0;
    for (size_t i = ranges_.size(); i-- > 0;)
      if (holds(ranges_[i])) return static_cast<int>(i);
    return -1;
  }

  StepTensor view(int buffer, Tensor t) const {
    const StepBuffer& b = record_.buffers[static_cast<size_t>(buffer)];
    const auto offset = static_cast<int64_t>(
        (reinterpret_cast<uintptr_t>(t.data) - ranges_[static_cast<size_t>(buffer)].begin) / 4);
    INVAR_CHECK(t.dtype == DType::kF32 && t.num_rows == b.num_rows &&
                    (t.row_stride == b.num_cols || t.num_rows == 1) &&
                    offset + t.num_cols <= b.num_cols,
                "[%ld, %ld] from column %ld of [%d, %d]", long{t.num_rows}, long{t.num_cols},
                long{offset}, b.num_rows, b.num_cols);
    return {buffer, static_cast<int>(offset), static_cast<int>(t.num_cols)};
  }

  StepTensor input(Tensor t) const {
    const int buffer = find(t);
    INVAR_CHECK(buffer >= 0, "a tensor [%ld, %ld] that no op of this step has written",
                long{t.num_rows}, long{t.num_cols});
    return view(buffer, t);
  }

  // In place, or a new buffer.
  StepTensor output(Tensor t, OutputType type) {
    if (const int buffer = find(t); buffer >= 0) {
      INVAR_CHECK(record_.buffers[static_cast<size_t>(buffer)].type == type,
                  "a tensor changes its type in place");
      return view(buffer, t);
    }
    INVAR_CHECK(t.contiguous(), "a result with gaps");
    const auto begin = reinterpret_cast<uintptr_t>(t.data);
    record_.buffers.push_back({static_cast<int>(t.num_rows), static_cast<int>(t.num_cols), type});
    ranges_.push_back({begin, begin + static_cast<size_t>(t.num_rows * t.num_cols) * 4});
    return view(static_cast<int>(ranges_.size()) - 1, t);
  }

  template <typename T>
  int array(std::span<const T> values, size_t reserve = 0) {
    const size_t bytes = values.size_bytes();
    for (size_t i = 0; i < contents_.size(); ++i)
      if (contents_[i].data == values.data() && contents_[i].num_bytes == bytes &&
          (bytes == 0 ||
           std::memcmp(array_memory_ + record_.arrays[i].offset, values.data(), bytes) == 0))
        return static_cast<int>(i);
    if (array_memory_ == nullptr) array_memory_ = runner_->next_arrays();
    const size_t reserved = (std::max(bytes, reserve) + 15) / 16 * 16;
    INVAR_CHECK(array_bytes_ + reserved <= StepRunner::kArrayBytes, "%zu bytes of arrays",
                array_bytes_ + reserved);
    std::memcpy(array_memory_ + array_bytes_, values.data(), bytes);
    record_.arrays.push_back({array_bytes_, reserved});
    contents_.push_back({values.data(), bytes});
    array_bytes_ += reserved;
    return static_cast<int>(contents_.size()) - 1;
  }

  // The windows are the same for every layer of a step.
  void set_windows(StepOp& op, std::span<const Window> windows) {
    if (windows_of_step_.data != windows.data() || windows_of_step_.num != windows.size()) {
      WindowsOfStep& w = windows_of_step_;
      w = {windows.data(), windows.size()};
      device_windows_.clear();
      pages_.clear();
      row_window_.clear();
      int64_t max_rows = 0, max_groups = 0;
      for (const Window& window : windows) {
        const int64_t groups = (window.start + window.num_rows - 1) / kPagePositions + 1;
        device_windows_.push_back(
            {static_cast<int32_t>(window.first_row), static_cast<int32_t>(window.num_rows),
             static_cast<int32_t>(window.start), static_cast<int32_t>(pages_.size())});
        pages_.insert(pages_.end(), window.pages.begin(), window.pages.begin() + groups);
        row_window_.insert(row_window_.end(), static_cast<size_t>(window.num_rows),
                           static_cast<int32_t>(device_windows_.size()) - 1);
        max_rows = std::max(max_rows, window.num_rows);
        max_groups = std::max(max_groups, groups);
      }
      const auto num_pages = static_cast<int>(pages_.size());
      w.windows_array = array(std::span<const DeviceWindow>(device_windows_));
      w.pages_array = array(std::span<const int32_t>(pages_),
                            sizeof(int32_t) * static_cast<size_t>(round_up_count(num_pages)));
      w.row_window_array = array(std::span<const int32_t>(row_window_));
      w.max_rows = static_cast<int>(max_rows);
      w.max_groups = round_up_count(static_cast<int>(max_groups));
    }
    op.windows_array = windows_of_step_.windows_array;
    op.pages_array = windows_of_step_.pages_array;
    op.row_window_array = windows_of_step_.row_window_array;
    op.num_windows = static_cast<int>(windows_of_step_.num);
    op.max_window_rows = windows_of_step_.max_rows;
    op.max_groups = windows_of_step_.max_groups;
  }

  void add_best(StepTensor logits) {
    const std::vector<unsigned long long> none(wanted_best_.size(), 0);
    StepOp op;
    op.kind = StepOpKind::kBestIds;
    op.x = op.y = logits;
    op.array = array(std::span<const unsigned long long>(none));
    op.num_ids = num_ids_;
    op.banned = never_.empty() ? nullptr : constants_.get(std::span<const uint32_t>(banned_));
    record_.ops.push_back(op);
    best_array_ = op.array;
  }

  void copy_rows(const HostCopy& copy, int64_t first, int64_t num_rows) {
    const Tensor& to = copy.to;
    const size_t row_bytes = static_cast<size_t>(to.num_cols) * 4;
    const auto* from = static_cast<const uint8_t*>(runner_->buffer(copy.buffer));
    CUDA_CHECK(cudaMemcpy2DAsync(to.row(first), static_cast<size_t>(to.row_stride) * 4,
                                 from + static_cast<size_t>(first) * row_bytes, row_bytes,
                                 row_bytes, static_cast<size_t>(num_rows), cudaMemcpyDeviceToHost,
                                 stream_));
  }

  void copy_to_host() {
    for (const HostCopy& copy : host_copies_) {
      if (best_array_ < 0) {
        copy_rows(copy, 0, copy.to.num_rows);
        continue;
      }
      for (int64_t row = 0; row < copy.to.num_rows; ++row)
        if (wanted_best_[static_cast<size_t>(row)] == 0) copy_rows(copy, row, 1);
      const size_t bytes = wanted_best_.size() * sizeof(unsigned long long);
      if (best_host_bytes_ < bytes) {
        best_host_ = PinnedMemory(2 * bytes);
        best_host_bytes_ = 2 * bytes;
      }
      CUDA_CHECK(cudaMemcpyAsync(best_host_.data(), runner_->array_data(record_, best_array_),
                                 bytes, cudaMemcpyDeviceToHost, stream_));
      best_of_ = copy;
    }
    host_copies_.clear();
  }

  // A row in which nothing was found is the host's to look at: it says what is wrong.
  void read_best() {
    if (best_of_.buffer < 0) return;
    const auto* found = reinterpret_cast<const unsigned long long*>(best_host_.data());
    bool copied = false;
    best_.assign(wanted_best_.size(), -1);
    for (size_t row = 0; row < best_.size(); ++row) {
      if (wanted_best_[row] == 0) continue;
      best_[row] = decode_best(found[row]);
      if (best_[row] >= 0) continue;
      copy_rows(best_of_, static_cast<int64_t>(row), 1);
      copied = true;
    }
    if (copied) CUDA_CHECK(cudaStreamSynchronize(stream_));
    best_of_ = {};
  }

  ThreadPool pool_;  // packs
  BackendInfo info_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<StepRunner> runner_;
  ConstantCache constants_;
  uint64_t num_weights_ = 0;
  PinnedMemory logits_;
  size_t logits_bytes_ = 0;

  // The step being recorded.
  StepRecord record_;
  std::vector<HostRange> ranges_;  // of record_.buffers: the host addresses that name them
  std::vector<Content> contents_;  // of record_.arrays
  uint8_t* array_memory_ = nullptr;
  size_t array_bytes_ = 0;
  std::vector<HostCopy> host_copies_;
  std::vector<uint8_t> wanted_best_;  // by logit row
  int32_t num_ids_ = 0;
  std::span<const int32_t> never_;
  std::vector<uint32_t> banned_;  // never_, a bit an id
  int best_array_ = -1;
  HostCopy best_of_;
  PinnedMemory best_host_;
  size_t best_host_bytes_ = 0;
  std::vector<int32_t> best_;
  size_t num_run_ = 0;  // ops that ran already
  bool op_by_op_ = false;
  struct WindowsOfStep {
    const Window* data = nullptr;
    size_t num = 0;
    int windows_array = -1, pages_array = -1, row_window_array = -1;
    int max_rows = 0, max_groups = 0;
  };
  WindowsOfStep windows_of_step_;
  std::vector<DeviceWindow> device_windows_;
  std::vector<int32_t> pages_, row_window_;
};

}  // namespace
}  // namespace cuda

CudaStepCounts cuda_step_counts(const Backend& backend) {
  return static_cast<const cuda::CudaBackend&>(backend).counts();
}

Result<std::unique_ptr<Backend>> make_cuda_backend(const BackendOptions& options) {
  INVAR_TRY(const cuda::StepSwitches switches, cuda::parse_switches(options.switches));
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    cudaGetLastError();
    return unsupported("no CUDA device, or its driver is older than this build");
  }
  static cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  if (properties.major != 9 || properties.minor != 0)
    return unsupported("%s has compute capability %d.%d; the cuda backend is built for 9.0",
                       properties.name, properties.major, properties.minor);
  CUDA_CHECK(cudaSetDevice(0));
  return std::unique_ptr<Backend>(
      std::make_unique<cuda::CudaBackend>(properties.name, switches, options.num_threads));
}

}  // namespace invar
