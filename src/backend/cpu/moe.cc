// Phases of a call: rows choose, pairs are sorted by expert, then `up` over all chosen experts'
// panels as one list of units, the activated rows quantized, `down` in the same way into one row a
// pair, and last each row sums its slots. So few rows stream the panels of all their experts with
// both threads and no barrier between experts, and many rows use the kernels made for many.
#include "backend/cpu/moe.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/linear.h"
#include "backend/cpu/row_phase.h"
#include "backend/cpu/simd_kernels.h"
#include "base/math.h"

namespace invar::cpu {
namespace {

// Columns of a row that one unit of the last phase sums.
constexpr int64_t kFoldCols = 512;

void relu2(float* y, const float* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] > 0 ? x[i] * x[i] : x[i] != x[i] ? x[i] : 0;
}

// One quantized row from a slot to another one.
void copy_slot(const ActivationTile& from, int from_slot, const ActivationTile& to, int to_slot,
               int64_t num_groups) {
  for (int64_t g = 0; g < num_groups; ++g) {
    const int64_t source = (g * kTileSlots + from_slot) * kGroup;
    const int64_t target = (g * kTileSlots + to_slot) * kGroup;
    if (from.bytes != nullptr) std::memcpy(to.bytes + target, from.bytes + source, kGroup);
    if (from.quads != nullptr) std::memcpy(to.quads + target, from.quads + source, 2 * kGroup);
    const GroupSums& a = from.sums[g];
    GroupSums& b = to.sums[g];
    b.scale[to_slot] = a.scale[from_slot];
    b.scaled_sum[to_slot] = a.scaled_sum[from_slot];
    b.sum[to_slot] = a.sum[from_slot];
    b.start[to_slot] = a.start[from_slot];
    for (int half = 0; half < 2; ++half) {
      b.scaled_sum_half[half][to_slot] = a.scaled_sum_half[half][from_slot];
      b.sum_half[half][to_slot] = a.sum_half[half][from_slot];
      b.start_half[half][to_slot] = a.start_half[half][from_slot];
    }
  }
}

Forms forms_of(const LinearKernels& kernels, const PackedPanels& w, std::span<const Job> jobs) {
  const size_t per_expert = w.segments.size() / static_cast<size_t>(w.num_experts);
  Forms forms;
  for (const Job& job : jobs) {
    const Forms read =
        forms_read(kernels, w, std::span(w.segments).subspan(job.first_segment, per_expert));
    forms.bytes |= read.bytes;
    forms.quads |= read.quads;
    forms.floats |= read.floats;
  }
  return forms;
}

}  // namespace

void CpuMoeOps::router(Tensor logits, Tensor x, const PackedWeight& w) {
  INVAR_CHECK(panels_of(w).role == MatrixRole::kRouter, "a router packed for something else");
  linear(pool_, isa_, logits, x, w, {}, Tensor{}, crossovers_);
}

void CpuMoeOps::moe(Tensor y, Tensor x, Tensor logits, const PackedWeight& up_weight,
                    const PackedWeight& down_weight, const MoeArgs& args, Tensor residual) {
  const PackedPanels& up = panels_of(up_weight);
  const PackedPanels& down = panels_of(down_weight);
  const bool gated = args.activation != Activation::kRelu2;
  INVAR_CHECK(up.order == (gated ? PartOrder::kGateAndUp : PartOrder::kStacked) &&
                  down.order == PartOrder::kStacked,
              "experts' weights do not suit the activation");
  num_experts_read_ = 0;
  if (x.num_rows == 0) return;
  route(logits, args);
  const int64_t num_pairs = x.num_rows * args.num_experts_per_tok;

  std::vector<Job> jobs = jobs_of(up);
  num_experts_read_ = static_cast<int>(jobs.size());
  gather_inputs(x, up, jobs);
  const Tensor hidden = hidden_.rows(num_pairs, up.num_rows);
  run(hidden, up, jobs, &args);

  jobs = jobs_of(down);
  quantize_pairs(hidden, down, jobs);
  const Tensor outputs = outputs_.rows(num_pairs, down.num_rows);
  run(outputs, down, jobs, nullptr);
  fold(y, outputs, args.num_experts_per_tok, residual);
}

void CpuMoeOps::route(Tensor logits, const MoeArgs& args) {
  const int num_slots = args.num_experts_per_tok;
  const auto num_pairs = static_cast<size_t>(logits.num_rows * num_slots);
  experts_.resize(num_pairs);
  weights_.resize(num_pairs);
  constexpr int64_t kValuesPerExpert = 8;  // an exp takes as long as that many simple values
  for_rows(pool_, logits.num_rows, kValuesPerExpert * args.num_experts, [&](int64_t t) {
    route_row(logits.row(t), args, experts_.data() + t * num_slots,
              weights_.data() + t * num_slots);
  });
  order_.sort(experts_, num_slots, args.num_experts);
}

std::vector<Job> CpuMoeOps::jobs_of(const PackedPanels& w) const {
  const int max_rows = linear_kernels(isa_).max_rows;
  const auto num_experts = static_cast<size_t>(w.num_experts);
  std::vector<Job> jobs;
  for (size_t e = 0; e < num_experts; ++e) {
    const int64_t num_rows = order_.first[e + 1] - order_.first[e];
    if (num_rows == 0) continue;
    Job& job = jobs.emplace_back();
    job.tiles = Tiles(num_rows, max_rows);
    job.tiles.first_row = order_.first[e];
    job.first_segment = e * (w.segments.size() / num_experts);
    job.num_units = w.num_units / w.num_experts;
    job.first_unit = static_cast<int64_t>(e) * job.num_units;
  }
  return jobs;
}

void CpuMoeOps::gather_inputs(Tensor x, const PackedPanels& w, std::span<Job> jobs) {
  const LinearKernels& kernels = linear_kernels(isa_);
  const Forms forms = forms_of(kernels, w, jobs);
  Activations& a = activations_;
  // x in tiles; behind them tiles for experts with several rows. An expert's only row is read where
  // it stands.
  const Tiles tiles_of_x(x.num_rows, kernels.max_rows);
  int64_t num_tiles = tiles_of_x.count;
  for (Job& job : jobs) {
    if (job.tiles.num_rows == 1) {
      const int64_t row = order_.row[static_cast<size_t>(job.tiles.first_row)];
      job.tiles.first_tile = tiles_of_x.tile_of(row);
      job.tiles.first_slot = static_cast<int>(row - tiles_of_x.begin(job.tiles.first_tile));
    } else {
      job.tiles.first_tile = num_tiles;
      num_tiles += job.tiles.count;
    }
  }
  a.x = x;
  a.make_room(forms, num_tiles, x.num_cols);
  const Job whole{tiles_of_x};
  quantize(pool_, kernels, w.activation_bits, forms, {&whole, 1}, a);

  const std::vector<int64_t>& rows = order_.row;
  std::vector<uint8_t> finite(rows.size());
  for (size_t pair = 0; pair < rows.size(); ++pair)
    finite[pair] = a.finite[static_cast<size_t>(rows[pair])];
  a.finite = std::move(finite);
  if (forms.floats) {
    a.x = inputs_.rows(static_cast<int64_t>(rows.size()), x.num_cols);
    for_rows(pool_, a.x.num_rows, x.num_cols, [&](int64_t pair) {
      std::memcpy(a.x.row(pair), x.row(rows[static_cast<size_t>(pair)]),
                  static_cast<size_t>(x.num_cols) * sizeof(float));
    });
  }
  if (a.num_groups > 0) gather_tiles(tiles_of_x, num_tiles, jobs);
}

void CpuMoeOps::gather_tiles(const Tiles& tiles_of_x, int64_t num_tiles,
                             std::span<const Job> jobs) {
  const Activations& a = activations_;
  // Whole tiles to a thread, as in quantize().
  pool_.run(num_tiles - tiles_of_x.count, [&](int64_t begin, int64_t end, int) {
    size_t at = 0;
    for (int64_t tile = tiles_of_x.count + begin; tile < tiles_of_x.count + end; ++tile) {
      while (jobs[at].tiles.num_rows == 1 ||
             tile >= jobs[at].tiles.first_tile + jobs[at].tiles.count)
        ++at;
      const Tiles& tiles = jobs[at].tiles;
      const int64_t first = tiles.begin(tile - tiles.first_tile);
      const int64_t last = tiles.begin(tile - tiles.first_tile + 1);
      for (int64_t r = first; r < last; ++r) {
        const int64_t row = order_.row[static_cast<size_t>(tiles.first_row + r)];
        const int64_t from = tiles_of_x.tile_of(row);
        copy_slot(a.tile(from), static_cast<int>(row - tiles_of_x.begin(from)), a.tile(tile),
                  static_cast<int>(r - first), a.num_groups);
      }
    }
  });
}

void CpuMoeOps::quantize_pairs(Tensor pairs, const PackedPanels& w, std::span<Job> jobs) {
  const LinearKernels& kernels = linear_kernels(isa_);
  const Forms forms = forms_of(kernels, w, jobs);
  int64_t num_tiles = 0;
  for (Job& job : jobs) {
    job.tiles.first_tile = num_tiles;
    num_tiles += job.tiles.count;
  }
  activations_.x = pairs;
  activations_.make_room(forms, num_tiles, pairs.num_cols);
  quantize(pool_, kernels, w.activation_bits, forms, jobs, activations_);
}

// `activation`: of the first matrix; null: none.
void CpuMoeOps::run(Tensor y, const PackedPanels& w, std::span<const Job> jobs,
                    const MoeArgs* activation) {
  const LinearKernels& kernels = linear_kernels(isa_);
  LinearPhase phase{kernels, w, activations_, y, unpack_from(kernels, crossovers_, w)};
  if (activation != nullptr) {
    const RowOps& ops = row_ops(isa_);
    phase.combine = activation->activation == Activation::kSilu ? ops.silu_mul : ops.gelu_tanh_mul;
    phase.activate = relu2;
  }
  run_phase(pool_, phase, jobs);
}

void CpuMoeOps::fold(Tensor y, Tensor outputs, int num_slots, Tensor residual) {
  const auto weighted_sum = simd_kernels(isa_).moe.weighted_sum;
  const int64_t num_runs = (y.num_cols + kFoldCols - 1) / kFoldCols;
  for_rows(
      pool_, y.num_rows * num_runs, num_slots * std::min(kFoldCols, y.num_cols), [&](int64_t unit) {
        const int64_t t = unit / num_runs, col = unit % num_runs * kFoldCols;
        thread_local std::vector<const float*> rows;
        rows.clear();
        for (int slot = 0; slot < num_slots; ++slot)
          rows.push_back(outputs.row(order_.pair[static_cast<size_t>(t * num_slots + slot)]) + col);
        weighted_sum(y.row(t) + col, rows.data(), weights_.data() + t * num_slots, num_slots,
                     residual.data != nullptr ? residual.row(t) + col : nullptr,
                     std::min(kFoldCols, y.num_cols - col));
      });
}

void CpuMoeOps::add_gated(Tensor y, Tensor x, Tensor gate) {
  const auto add_scaled = simd_kernels(isa_).moe.add_scaled;
  for_rows(pool_, y.num_rows, y.num_cols, [&](int64_t t) {
    add_scaled(y.row(t), x.row(t), 1.0f / (1.0f + exp_f32(-gate.at(t, 0))), y.num_cols);
  });
}

}  // namespace invar::cpu
