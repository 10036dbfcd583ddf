// A phase of linear work: threads own contiguous runs of panels and walk them in blocks of rows.
#include "backend/cpu/linear_phase.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace invar::cpu {
namespace {

constexpr float kNan = std::bit_cast<float>(0x7fc00000u);

// Rows of activations that one walk over the panels serves, at most: their tiles stay in L2 while
// panels stream.
constexpr int64_t kBlockRows = 64;
constexpr int64_t kBlockBytes = 256 << 10;

bool is_float(const PanelFormat& format) {
  return kPanelLayouts[static_cast<int>(format.kind)].code_bits == 0;
}

bool row_is_finite(const float* x, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7fffffff;
    largest = std::max(largest, magnitude);
  }
  return largest < 0x7f800000;
}

// Rows of one tile that a kernel call takes.
struct TileRows {
  int64_t tile = 0, row = 0;  // row: of x and y
  int slot = 0, count = 0;
};

// One panel against `rows` of one tile; out[rows][16].
void run_panel(const LinearKernels& kernels, const PackedPanels& w, const PanelFormat& format,
               const uint8_t* panel, const GroupBlock* blocks, const Activations& a,
               const TileRows& at, float* out) {
  const int rows = at.count, slot = at.slot;
  if (is_float(format)) {
    kernels.float_fn(format.kind, rows)(
        {panel, format.kind, rows, w.num_cols, a.x.row(at.row), a.x.row_stride, out});
    return;
  }
  const ActivationTile tile = a.tile(at.tile);
  PanelRun run;
  run.panel = panel;
  run.blocks = blocks;
  run.kind = format.kind;
  run.rows = rows;
  run.num_groups = a.num_groups;
  run.groups_per_step = format.step_k / kGroup;
  run.scale_dtype = format.scale_dtype;
  if (tile.bytes != nullptr) run.bytes = tile.bytes + slot * kGroup;
  if (tile.quads != nullptr) run.quads = tile.quads + slot * kGroup;
  run.sums = tile.sums;
  run.first_slot = slot;
  run.out = out;
  (blocks != nullptr ? kernels.block_fn : kernels.panel_fn)(format.kind, w.activation_bits,
                                                            rows)(run);
}

// A panel unpacked for the row block, or null where the kernels should read the panel itself.
const GroupBlock* unpack(const LinearPhase& phase, const PanelFormat& format, const uint8_t* panel,
                         int64_t num_rows, Scratch& scratch) {
  const LinearKernels& kernels = phase.kernels;
  if (kernels.min_block_rows == 0 || num_rows < phase.unpack_from || is_float(format))
    return nullptr;
  PanelRun run;
  run.panel = panel;
  run.kind = format.kind;
  run.num_groups = phase.w.num_cols / kGroup;
  run.groups_per_step = format.step_k / kGroup;
  run.scale_dtype = format.scale_dtype;
  auto* blocks = reinterpret_cast<GroupBlock*>(
      scratch.bytes(static_cast<size_t>(run.num_groups) * sizeof(GroupBlock)));
  kernels.unpack_panel(run, blocks);
  return blocks;
}

// Rows of the next kernel call of `left` rows in a tile: equal shares, none above max_rows.
int share(int left, int max_rows) {
  const int calls = (left + max_rows - 1) / max_rows;
  return (left + calls - 1) / calls;
}

// Calls body(rows) for the kernel calls of tiles [begin, end).
template <typename Body>
void for_tiles(const Tiles& tiles, int64_t begin, int64_t end, int max_rows, const Body& body) {
  for (int64_t tile = begin; tile < end; ++tile) {
    const int64_t first = tiles.begin(tile), last = tiles.begin(tile + 1);
    for (int64_t r = first; r < last;) {
      const int rows = share(static_cast<int>(last - r), max_rows);
      body({tiles.first_tile + tile, tiles.first_row + r,
            tiles.first_slot + static_cast<int>(r - first), rows});
      r += rows;
    }
  }
}

// y = (out + bias) + residual for the lanes that are rows of the weight; a row that is not finite
// is NaN.
void store(Tensor y, Tensor residual, std::span<const float> bias, int64_t row, int64_t col,
           int lanes, bool finite, const float* out) {
  float values[kPanelRows];
  std::memcpy(values, out, sizeof values);
  // Whole panels by loops of constant length, which the compiler turns into a few vector adds.
  const auto add = [&](const float* terms) {
    if (lanes == kPanelRows) {
      for (int i = 0; i < kPanelRows; ++i) values[i] += terms[i];
    } else {
      for (int i = 0; i < lanes; ++i) values[i] += terms[i];
    }
  };
  if (bias.data() != nullptr) add(bias.data() + col);
  if (residual.data != nullptr) add(residual.row(row) + col);
  if (!finite) [[unlikely]]
    for (float& v : values) v = kNan;
  if (lanes == kPanelRows) {
    std::memcpy(y.row(row) + col, values, sizeof values);
  } else {
    std::memcpy(y.row(row) + col, values, static_cast<size_t>(lanes) * sizeof(float));
  }
}

// One unit (a panel, or a gate's and an up's) against tiles [begin, end) of a job.
void run_unit(const LinearPhase& phase, const PanelSegment& segment, int64_t unit,
              const Tiles& tiles, int64_t begin, int64_t end) {
  thread_local Scratch scratch, up_scratch;
  const PackedPanels& w = phase.w;
  const uint8_t* panel =
      w.memory.get() + segment.offset + static_cast<size_t>(unit * segment.unit_bytes);
  const uint8_t* up = panel + segment.format.panel_bytes;
  const bool gated = w.order == PartOrder::kGateAndUp;
  const int64_t num_rows = tiles.begin(end) - tiles.begin(begin);
  const GroupBlock* blocks = unpack(phase, segment.format, panel, num_rows, scratch);
  const GroupBlock* up_blocks =
      gated ? unpack(phase, segment.up, up, num_rows, up_scratch) : nullptr;
  const int64_t lane_row = unit * kPanelRows;
  const auto lanes = static_cast<int>(std::min<int64_t>(kPanelRows, segment.num_rows - lane_row));
  for_tiles(tiles, begin, end, phase.kernels.max_rows, [&](const TileRows& at) {
    alignas(64) float out[2][kTileSlots * kPanelRows];
    run_panel(phase.kernels, w, segment.format, panel, blocks, phase.a, at, out[0]);
    if (gated) {
      run_panel(phase.kernels, w, segment.up, up, up_blocks, phase.a, at, out[1]);
      phase.combine(out[0], out[0], out[1], at.count * kPanelRows);
    } else if (phase.activate != nullptr) {
      phase.activate(out[0], out[0], at.count * kPanelRows);
    }
    for (int m = 0; m < at.count; ++m)
      store(phase.y, phase.residual, phase.bias, at.row + m, segment.first_row + lane_row, lanes,
            phase.a.finite[static_cast<size_t>(at.row + m)], out[0] + m * kPanelRows);
  });
}

// Units [begin, end) of a job: blocks of tiles outside, panels inside.
void run_units(const LinearPhase& phase, const Job& job, int64_t begin, int64_t end) {
  const Tiles& tiles = job.tiles;
  const int64_t most = std::max<int64_t>(1, kBlockRows * tiles.count / tiles.num_rows);
  const int64_t block_tiles =
      std::clamp<int64_t>(kBlockBytes / (phase.w.num_cols * kTileSlots), 1, most);
  const int64_t num_blocks = (tiles.count + block_tiles - 1) / block_tiles;
  for (int64_t block = 0; block < num_blocks; ++block) {
    const int64_t first = block * tiles.count / num_blocks;
    const int64_t last = (block + 1) * tiles.count / num_blocks;
    const PanelSegment* segment = &phase.w.segments[job.first_segment];
    for (int64_t u = job.first_unit + begin; u < job.first_unit + end; ++u) {
      while (u >= segment->first_unit + segment->num_units) ++segment;
      run_unit(phase, *segment, u - segment->first_unit, tiles, first, last);
    }
  }
}

// What a unit costs beside the other jobs': reading the panel, then a share for each row. Only the
// balance of threads depends on it. One job is cut by its units.
int64_t unit_cost(std::span<const Job> jobs, const Job& job) {
  return jobs.size() == 1 ? 1 : 1 + job.tiles.num_rows;
}

}  // namespace

const LinearKernels& linear_kernels(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx512:
#ifdef INVAR_NO_AVX512
      break;  // choose_isa() never gives it then
#else
      return linear_kernels_avx512();
#endif
    case Isa::kAvxVnni:
#ifdef INVAR_NO_AVXVNNI
      break;
#else
      return linear_kernels_avxvnni();
#endif
    case Isa::kAvx2:
      return linear_kernels_avx2();
#elif defined(__aarch64__)
    case Isa::kI8mm:
      return linear_kernels_i8mm();
    case Isa::kNeon:
      return linear_kernels_neon();
#endif
    default:
      break;
  }
  return linear_kernels_portable();
}

Forms forms_read(const LinearKernels& kernels, const PackedPanels& w,
                 std::span<const PanelSegment> segments) {
  Forms forms;
  const auto add = [&](const PanelFormat& format) {
    if (is_float(format)) {
      forms.floats = true;
    } else {
      (kernels.reads_quads(format.kind, w.activation_bits) ? forms.quads : forms.bytes) = true;
    }
  };
  for (const PanelSegment& segment : segments) {
    add(segment.format);
    if (w.order == PartOrder::kGateAndUp) add(segment.up);
  }
  return forms;
}

void Activations::make_room(const Forms& forms, int64_t num_tiles, int64_t num_cols) {
  num_groups = 0;
  first = {};
  if (!forms.bytes && !forms.quads) return;
  num_groups = num_cols / kGroup;
  const auto groups = static_cast<size_t>(num_tiles * num_groups);
  const size_t values = groups * kTileSlots * kGroup;
  std::byte* at = memory.bytes(groups * sizeof(GroupSums) +
                               values * ((forms.bytes ? 1 : 0) + (forms.quads ? 2 : 0)));
  first.sums = reinterpret_cast<GroupSums*>(at);
  at += groups * sizeof(GroupSums);
  if (forms.quads) {
    first.quads = reinterpret_cast<int16_t*>(at);
    at += values * 2;
  }
  if (forms.bytes) first.bytes = reinterpret_cast<int8_t*>(at);
}

void quantize(ThreadPool& pool, const LinearKernels& kernels, int bits, const Forms& forms,
              std::span<const Job> jobs, Activations& a) {
  a.finite.assign(static_cast<size_t>(a.x.num_rows), 1);
  // Whole tiles to a thread: slots share cache lines.
  const auto run = [&](int64_t begin, int64_t end, int) {
    const Job* job = jobs.data();
    for (int64_t tile = begin; tile < end; ++tile) {
      while (tile >= job->tiles.first_tile + job->tiles.count) ++job;
      const Tiles& tiles = job->tiles;
      const int64_t first = tiles.first_row + tiles.begin(tile - tiles.first_tile);
      const int64_t last = tiles.first_row + tiles.begin(tile - tiles.first_tile + 1);
      for (int64_t r = first; r < last; ++r) {
        bool finite = !forms.floats || row_is_finite(a.x.row(r), a.x.num_cols);
        if (a.num_groups > 0)
          finite = kernels.quantize_row(a.x.row(r), a.num_groups, bits, a.tile(tile),
                                        static_cast<int>(r - first)) &&
                   finite;
        a.finite[static_cast<size_t>(r)] = finite;
      }
    }
  };
  const int64_t num_tiles = jobs.back().tiles.first_tile + jobs.back().tiles.count;
  if (num_tiles > 1) {
    pool.run(num_tiles, run);
  } else {
    run(0, num_tiles, 0);
  }
}

void run_phase(ThreadPool& pool, const LinearPhase& phase, std::span<const Job> jobs) {
  int64_t total = 0;
  for (const Job& job : jobs) total += job.num_units * unit_cost(jobs, job);
  // A piece of the list of all jobs' costs has those units that begin in it: jobs are shared by
  // panels, and each thread has one run of them.
  pool.run(total, [&](int64_t begin, int64_t end, int) {
    int64_t job_begin = 0;
    for (const Job& job : jobs) {
      const int64_t cost = unit_cost(jobs, job), job_end = job_begin + job.num_units * cost;
      if (job_begin >= end) break;
      if (job_end > begin) {
        const auto unit_at = [&](int64_t at) {
          return std::clamp<int64_t>((at - job_begin + cost - 1) / cost, 0, job.num_units);
        };
        run_units(phase, job, begin > job_begin ? unit_at(begin) : 0, unit_at(end));
      }
      job_begin = job_end;
    }
  });
}

int unpack_from(const LinearKernels& kernels, std::span<const KernelCrossover> crossovers,
                const PackedPanels& w) {
  for (const KernelCrossover& crossover : crossovers)
    if (crossover.num_rows == w.num_rows && crossover.num_cols == w.num_cols &&
        crossover.gated == (w.order == PartOrder::kGateAndUp))
      return crossover.min_rows;
  return kernels.min_block_rows;
}

}  // namespace invar::cpu
