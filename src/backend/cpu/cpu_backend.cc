// (8) The cpu backend: before it ops/ops.cc (7); logits go back to engine/model_runner.cc (5) and
// on to sampling/sampler.cc (9). Every call goes on to its op's file (linear.cc, attention.cc,
// ...); nothing is computed here.
#include "backend/cpu/cpu_backend.h"

#include <cstring>

#include "backend/cpu/attention.h"
#include "backend/cpu/kv_cache.h"
#include "backend/cpu/panels.h"
#include "backend/cpu/rms_norm.h"
#include "base/check.h"

namespace invar::cpu {

CpuBackend::CpuBackend(BackendInfo info, Isa isa, const LinearOptions& linear_options)
    : info_(std::move(info)),
      isa_(isa),
      linear_options_(linear_options),
      pool_(info_.num_threads) {}

Result<std::unique_ptr<PackedWeight>> CpuBackend::pack(const PackRequest& request) {
  return pack_panels(request, pool_, linear_options_);
}

Result<std::unique_ptr<KvCache>> CpuBackend::make_kv_cache(std::span<const KvLayerShape> layers,
                                                           int num_pages) {
  return CpuKvCache::make(layers, num_pages);
}

size_t CpuBackend::kv_page_bytes(std::span<const KvLayerShape> layers) const {
  return cpu::kv_page_bytes(layers);
}

void CpuBackend::copy_page(KvCache& cache, int from, int to) {
  static_cast<CpuKvCache&>(cache).copy_page(from, to);
}

std::vector<uint8_t> CpuBackend::read_page(const KvCache& cache, int page) const {
  return static_cast<const CpuKvCache&>(cache).read_page(page);
}

void CpuBackend::write_page(KvCache& cache, int page, std::span<const uint8_t> bytes) {
  static_cast<CpuKvCache&>(cache).write_page(page, bytes);
}

void CpuBackend::embed(Tensor y, std::span<const int32_t> ids, const PackedWeight& table,
                       float scale) {
  cpu::embed(pool_, isa_, y, ids, table, scale);
}

void CpuBackend::rms_norm(Tensor y, Tensor x, std::span<const float> weight, float eps,
                          Tensor residual) {
  cpu::rms_norm(pool_, isa_, y, x, weight, eps, residual);
}

void CpuBackend::head_rms_norm(Tensor x, int head_dim, std::span<const float> weight, float eps) {
  cpu::head_rms_norm(pool_, isa_, x, head_dim, weight, eps);
}

void CpuBackend::linear(Tensor y, Tensor x, const PackedWeight& w, std::span<const float> bias,
                        Tensor residual) {
  cpu::linear(pool_, isa_, y, x, w, bias, residual, crossovers_);
}

void CpuBackend::gated_linear(Tensor y, Tensor x, const PackedWeight& w, Activation activation) {
  cpu::gated_linear(pool_, isa_, y, x, w, activation, crossovers_);
}

void CpuBackend::rope(Tensor x, int head_dim, std::span<const int32_t> positions,
                      const RopeSpec& spec) {
  cpu::rope(pool_, isa_, x, head_dim, positions, spec, rope_tables_);
}

void CpuBackend::attention(Tensor y, Tensor q, Tensor k, Tensor v, std::span<const Window> windows,
                           KvCache& cache, const AttentionArgs& args) {
  cpu::attention(pool_, isa_, attention_workspace_, y, q, k, v, windows,
                 static_cast<CpuKvCache&>(cache), args);
}

// A few rows at most (those whose logits are wanted): not worth a phase of the pool.
void CpuBackend::gather_rows(Tensor y, Tensor x, std::span<const int32_t> rows) {
  const size_t row_bytes = static_cast<size_t>(x.num_cols) * sizeof(float);
  for (size_t i = 0; i < rows.size(); ++i) {
    INVAR_CHECK(rows[i] >= 0 && rows[i] < x.num_rows, "row %d of %ld", rows[i], long{x.num_rows});
    std::memcpy(y.row(static_cast<int64_t>(i)), x.row(rows[i]), row_bytes);
  }
}

void CpuBackend::lm_head(Tensor logits, Tensor x, const PackedWeight& w, float softcap) {
  cpu::lm_head(pool_, isa_, logits, x, w, softcap, crossovers_);
}

}  // namespace invar::cpu

namespace invar {

Result<std::unique_ptr<Backend>> make_cpu_backend(const BackendOptions& options);

Result<std::unique_ptr<Backend>> make_cpu_backend(const BackendOptions& options) {
  constexpr int kMaxThreads = 1024;
  if (options.num_threads < 0 || options.num_threads > kMaxThreads)
    return invalid_argument("%d threads; 1 to %d, or 0 for one a physical core",
                            options.num_threads, kMaxThreads);
  if (options.activation_bits != 8 && options.activation_bits != 12)
    return invalid_argument("%d activation bits; the cpu backend has 8 (the head 12) and 12",
                            options.activation_bits);
  INVAR_TRY(const cpu::IsaChoice choice, cpu::choose_isa(options.isa));

  BackendInfo info;
  info.name = "cpu";
  info.arithmetic_id = options.activation_bits == 12 ? "cpu-1-a12" : "cpu-1";
  info.isa = cpu::isa_name(choice.isa);
  info.why = choice.why;
  info.packed_layout = cpu::kPanelLayout;
  info.num_threads = options.num_threads > 0 ? options.num_threads : default_num_threads();
  return std::unique_ptr<Backend>(std::make_unique<cpu::CpuBackend>(
      std::move(info), choice.isa, cpu::LinearOptions{options.activation_bits}));
}

}  // namespace invar
