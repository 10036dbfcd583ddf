#include "backend/cuda/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "backend/cuda/attention.h"
#include "backend/cuda/cuda_check.h"
#include "backend/cuda/device_mirror.h"
#include "backend/cuda/linear.h"
#include "backend/cuda/pack.h"
#include "backend/cuda/row_ops.h"
#include "base/check.h"

namespace invar {
namespace cuda {
namespace {

// Memory that lives long: weights, pages. Nothing if there is none left.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(DeviceMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  static Result<DeviceMemory> make(size_t num_bytes) {
    DeviceMemory memory;
    const cudaError_t error = cudaMalloc(&memory.data_, std::max<size_t>(num_bytes, 1));
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // not sticky: clear it
      size_t free = 0, total = 0;
      CUDA_CHECK(cudaMemGetInfo(&free, &total));
      return resource_exhausted("no device memory for %zu bytes; %zu of %zu are free", num_bytes,
                                free, total);
    }
    CUDA_CHECK(error);
    return memory;
  }
  uint8_t* data() const { return static_cast<uint8_t*>(data_); }

 private:
  void* data_ = nullptr;
};

// Parts of different kinds stand in segments of their own, each a matrix for the kernels.
class CudaWeight : public PackedWeight {
 public:
  struct Segment {
    PackedMatrix matrix;
    int64_t first_row = 0;
    DeviceMemory memory;
  };
  std::vector<Segment> segments;
};

class CudaKvCache : public KvCache {
 public:
  std::vector<KvLayerShape> layers;
  std::vector<DeviceMemory> pages;  // of each layer
};

// Small arrays of the host that do not change (norm weights, biases, frequencies), kept on the
// device by address. The contents are compared on every use: an address may come to hold another.
class ConstantCache {
 public:
  template <typename T>
  const T* get(std::span<const T> values) {
    if (values.empty()) return nullptr;
    Entry& entry = entries_[values.data()];
    const size_t size = values.size_bytes();
    if (entry.host.size() != size || std::memcmp(entry.host.data(), values.data(), size) != 0) {
      auto memory = DeviceMemory::make(size);
      INVAR_CHECK(memory.ok(), "no device memory for %zu bytes", size);
      entry.device = *std::move(memory);  // the old copy is freed when the device is done with it
      const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
      entry.host.assign(bytes, bytes + size);
      CUDA_CHECK(cudaMemcpy(entry.device.data(), bytes, size, cudaMemcpyHostToDevice));
    }
    return reinterpret_cast<const T*>(entry.device.data());
  }

 private:
  struct Entry {
    std::vector<uint8_t> host;
    DeviceMemory device;
  };
  std::unordered_map<const void*, Entry> entries_;
};

class CudaBackend : public Backend {
 public:
  explicit CudaBackend(const char* device_name) {
    info_.name = "cuda";
    info_.arithmetic_id = "cuda-sm90-1";
    info_.isa = "sm_90a";
    info_.why = device_name;
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    mirror_ = std::make_unique<DeviceMirror>(stream_);
  }
  ~CudaBackend() override {
    mirror_.reset();
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }

  const BackendInfo& info() const override { return info_; }

  Result<std::unique_ptr<PackedWeight>> pack(const PackRequest& request) override {
    auto weight = std::make_unique<CudaWeight>();
    const bool gated = request.order == PartOrder::kGateAndUp;
    const PackOptions options = {.gated = gated, .head = request.role == MatrixRole::kHead};
    weight->num_cols = request.parts[0].num_cols;
    std::span<const MatrixView> left = request.parts;
    while (!left.empty()) {
      size_t count = 1;
      while (count < left.size() && (gated || native_kind(left[count]) == native_kind(left[0])))
        ++count;
      INVAR_TRY(HostPacked packed, pack_matrix(left.first(count), options));
      INVAR_TRY(DeviceMemory memory, DeviceMemory::make(packed.bytes.size()));
      CUDA_CHECK(cudaMemcpy(memory.data(), packed.bytes.data(), packed.bytes.size(),
                            cudaMemcpyHostToDevice));
      packed.matrix.data = memory.data();
      weight->segments.push_back({packed.matrix, weight->num_rows, std::move(memory)});
      weight->num_rows += packed.matrix.num_rows;
      weight->num_bytes += packed.bytes.size();
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
      CUDA_CHECK(cudaMemset(memory.data(), 0, size));
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
    auto& kv = static_cast<CudaKvCache&>(cache);
    for (size_t i = 0; i < kv.layers.size(); ++i) {
      const size_t size = page_bytes(kv.layers[i]);
      auto* base = kv.pages[i].data();
      CUDA_CHECK(cudaMemcpyAsync(base + static_cast<size_t>(to) * size,
                                 base + static_cast<size_t>(from) * size, size,
                                 cudaMemcpyDeviceToDevice, stream_));
    }
  }

  void embed(Tensor y, std::span<const int32_t> ids, const PackedWeight& table,
             float scale) override {
    const auto& weight = static_cast<const CudaWeight&>(table);
    INVAR_CHECK(weight.segments.size() == 1, "an embedding of %zu parts", weight.segments.size());
    const Upload<int32_t> device_ids(*this, ids);
    cuda::embed(stream_, weight.segments[0].matrix, device_ids.data(), static_cast<int>(ids.size()),
                scale, static_cast<float*>(mirror_->output(y)), y.row_stride);
  }

  void rms_norm(Tensor y, Tensor x, std::span<const float> weight, float eps,
                Tensor residual) override {
    void* out = mirror_->output(y);
    const auto* in = static_cast<const float*>(mirror_->input(x));
    const float* w = constants_.get(weight);
    const int rows = static_cast<int>(x.num_rows), cols = static_cast<int>(x.num_cols);
    if (residual.data == nullptr) {
      cuda::rms_norm(stream_, in, x.row_stride, w, eps, rows, cols, out, 2 * y.row_stride);
      return;
    }
    const auto* add = static_cast<const float*>(mirror_->input(residual));
    cuda::rms_norm_add(stream_, in, x.row_stride, w, eps, rows, cols, add, residual.row_stride,
                       static_cast<float*>(out), y.row_stride);
  }

  void head_rms_norm(Tensor x, int head_dim, std::span<const float> weight, float eps) override {
    cuda::head_rms_norm(stream_, OutputType::kF32, mirror_->input(x), x.row_stride,
                        constants_.get(weight), eps, static_cast<int>(x.num_rows),
                        static_cast<int>(x.num_cols) / head_dim, head_dim);
  }

  void linear(Tensor y, Tensor x, const PackedWeight& w, std::span<const float> bias,
              Tensor residual) override {
    Epilogue epilogue;
    mirror_->output(y);
    if (residual.data != nullptr) {
      epilogue.residual = static_cast<const float*>(mirror_->input(residual));
      epilogue.residual_stride = residual.row_stride;
    }
    epilogue.bias = constants_.get(bias);
    run_linear(y, x, w, epilogue);
  }

  void gated_linear(Tensor y, Tensor x, const PackedWeight& w, Activation activation) override {
    Epilogue epilogue;
    epilogue.activation =
        activation == Activation::kSilu ? GateActivation::kSilu : GateActivation::kGeluTanh;
    epilogue.y_type = OutputType::kBF16;
    run_linear(y, x, w, epilogue);
  }

  void rope(Tensor x, int head_dim, std::span<const int32_t> positions,
            const RopeSpec& spec) override {
    const Upload<int32_t> device_positions(*this, positions);
    cuda::rope(stream_, OutputType::kF32, mirror_->input(x), x.row_stride, device_positions.data(),
               constants_.get(std::span<const double>(spec.inv_freq)),
               static_cast<int>(spec.inv_freq.size()), static_cast<float>(spec.magnitude),
               static_cast<int>(x.num_rows), static_cast<int>(x.num_cols) / head_dim, head_dim);
  }

  void attention(Tensor y, Tensor q, Tensor k, Tensor v, std::span<const Window> windows,
                 KvCache& cache, const AttentionArgs& args) override {
    std::vector<DeviceWindow> device_windows;
    std::vector<int32_t> pages, row_window;
    AttentionCall call;
    for (const Window& window : windows) {
      device_windows.push_back(
          {static_cast<int32_t>(window.first_row), static_cast<int32_t>(window.num_rows),
           static_cast<int32_t>(window.start), static_cast<int32_t>(pages.size())});
      pages.insert(pages.end(), window.pages.begin(), window.pages.end());
      row_window.insert(row_window.end(), static_cast<size_t>(window.num_rows),
                        static_cast<int32_t>(device_windows.size()) - 1);
      call.max_window_rows = std::max(call.max_window_rows, static_cast<int>(window.num_rows));
      call.max_groups =
          std::max(call.max_groups,
                   static_cast<int>((window.start + window.num_rows - 1) / kPagePositions + 1));
    }
    const Upload<DeviceWindow> upload_windows(*this, device_windows);
    const Upload<int32_t> upload_pages(*this, pages), upload_rows(*this, row_window);
    call.shape = {args.num_heads,
                  args.num_kv_heads,
                  args.head_dim,
                  args.scale,
                  static_cast<int>(args.sliding_window),
                  args.softcap};
    call.input_type = OutputType::kF32;
    call.y = mirror_->output(y);
    call.q = mirror_->input(q);
    call.k = mirror_->input(k);
    call.v = mirror_->input(v);
    call.q_stride = q.row_stride;
    call.k_stride = k.row_stride;
    call.v_stride = v.row_stride;
    call.y_stride = 2 * y.row_stride;
    call.windows = upload_windows.data();
    call.num_windows = static_cast<int>(device_windows.size());
    call.pages = upload_pages.data();
    call.row_window = upload_rows.data();
    call.num_rows = static_cast<int>(q.num_rows);
    call.cache = static_cast<CudaKvCache&>(cache).pages[static_cast<size_t>(args.layer)].data();
    // Splitting over groups is for few rows; the loop path needs no workspace.
    if (call.max_window_rows <= 16)
      call.workspace_bytes = attention_workspace_bytes(call.shape, call.num_rows, call.max_groups);
    const Scratch workspace(*this, call.workspace_bytes);
    call.workspace = static_cast<float*>(workspace.data());
    cuda::attention(stream_, call);
  }

  void gather_rows(Tensor y, Tensor x, std::span<const int32_t> rows) override {
    const Upload<int32_t> device_rows(*this, rows);
    void* out = mirror_->output(y);
    cuda::gather_rows(stream_, mirror_->input(x), 4 * x.row_stride, device_rows.data(),
                      static_cast<int>(rows.size()), 4 * x.num_cols, out, 4 * y.row_stride);
  }

  void lm_head(Tensor logits, Tensor x, const PackedWeight& w, float softcap) override {
    Epilogue epilogue;
    epilogue.softcap = softcap;
    run_linear(logits, x, w, epilogue);
    CUDA_CHECK(cudaMemcpy2DAsync(
        logits.data, static_cast<size_t>(logits.row_stride) * 4, mirror_->input(logits),
        static_cast<size_t>(logits.row_stride) * 4, static_cast<size_t>(logits.num_cols) * 4,
        static_cast<size_t>(logits.num_rows), cudaMemcpyDeviceToHost, stream_));
  }

  void synchronize() override { CUDA_CHECK(cudaStreamSynchronize(stream_)); }

 private:
  // Stream-ordered memory for one call.
  class Scratch {
   public:
    Scratch(CudaBackend& backend, size_t num_bytes) : backend_(backend) {
      if (num_bytes > 0) CUDA_CHECK(cudaMallocAsync(&data_, num_bytes, backend.stream_));
    }
    ~Scratch() {
      if (data_ != nullptr) CUDA_CHECK(cudaFreeAsync(data_, backend_.stream_));
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    void* data() const { return data_; }

   private:
    CudaBackend& backend_;
    void* data_ = nullptr;
  };
  template <typename T>
  class Upload {
   public:
    Upload(CudaBackend& backend, std::span<const T> values)
        : scratch_(backend, values.size_bytes()) {
      // From pageable memory the call returns once the values are staged.
      if (!values.empty())
        CUDA_CHECK(cudaMemcpyAsync(scratch_.data(), values.data(), values.size_bytes(),
                                   cudaMemcpyHostToDevice, backend.stream_));
    }
    const T* data() const { return static_cast<const T*>(scratch_.data()); }

   private:
    Scratch scratch_;
  };

  static size_t page_bytes(const KvLayerShape& layer) {
    return static_cast<size_t>(page_elements(layer.num_kv_heads, layer.head_dim)) * 2;
  }

  void run_linear(Tensor y, Tensor x, const PackedWeight& w, const Epilogue& epilogue) {
    void* out = mirror_->output(y);
    for (const CudaWeight::Segment& segment : static_cast<const CudaWeight&>(w).segments) {
      LinearArgs args;
      args.w = segment.matrix;
      args.x = mirror_->input(x);
      args.x_stride = 2 * x.row_stride;
      args.num_tokens = static_cast<int>(x.num_rows);
      args.epilogue = epilogue;
      const int64_t at = segment.first_row;
      if (epilogue.y_type == OutputType::kBF16) {
        args.epilogue.y = static_cast<uint16_t*>(out) + at;
        args.epilogue.y_stride = 2 * y.row_stride;
      } else {
        args.epilogue.y = static_cast<float*>(out) + at;
        args.epilogue.y_stride = y.row_stride;
      }
      if (epilogue.bias != nullptr) args.epilogue.bias += at;
      if (epilogue.residual != nullptr) args.epilogue.residual += at;
      cuda::linear(stream_, args);
    }
  }

  BackendInfo info_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<DeviceMirror> mirror_;
  ConstantCache constants_;
};

}  // namespace
}  // namespace cuda

Result<std::unique_ptr<Backend>> make_cuda_backend(const BackendOptions&) {
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
  return std::unique_ptr<Backend>(std::make_unique<cuda::CudaBackend>(properties.name));
}

}  // namespace invar
