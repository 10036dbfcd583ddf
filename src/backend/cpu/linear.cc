// Drives the linear kernels: rows are quantized once a call, then threads own contiguous runs of
// panels and walk them in blocks of rows. What is computed does not depend on any of this
// (linear_portable.cc has the arithmetic); only the speed does.
#include "backend/cpu/linear.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "backend/cpu/linear_kernels.h"
#include "backend/cpu/row_ops.h"

namespace invar::cpu {
namespace {

constexpr float kNan = std::bit_cast<float>(0x7fc00000u);

// Rows of activations that one walk over the panels serves, at most: their tiles stay in L2 while
// panels stream.
constexpr int64_t kBlockRows = 64;
constexpr int64_t kBlockBytes = 256 << 10;

const LinearKernels& kernels_of(Isa isa) {
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

const PackedPanels& panels_of(const PackedWeight& w) { return static_cast<const PackedPanels&>(w); }

bool is_float(const PanelFormat& format) {
  return kPanelLayouts[static_cast<int>(format.kind)].code_bits == 0;
}

// Scratch that grows and is kept; one a thread, so that a call allocates nothing once warm.
class Scratch {
 public:
  std::byte* bytes(size_t num_bytes) {
    if (num_bytes > size_) {
      memory_.reset(
          static_cast<std::byte*>(std::aligned_alloc(64, (num_bytes + 4095) / 4096 * 4096)));
      INVAR_CHECK(memory_ != nullptr, "no memory for %zu bytes of scratch", num_bytes);
      size_ = num_bytes;
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte[], Free> memory_;
  size_t size_ = 0;
};

// Rows in tiles of nearly equal size: tile i has rows [begin(i), begin(i + 1)). A kernel call takes
// a panel's codes apart for all its rows, so a last tile of one row would cost much of what a full
// one costs: nine rows would be slower than eight, in rows a second.
struct Tiles {
  int64_t num_rows = 0, count = 0;

  Tiles(int64_t rows, int max_rows) : num_rows(rows) {
    const int size = max_rows > kTileSlots / 2 ? max_rows : kTileSlots;
    count = (rows + size - 1) / size;
  }
  int64_t begin(int64_t tile) const { return tile * num_rows / count; }
};

// The rows of one call in the form that the kernels read.
struct Activations {
  int64_t num_groups = 0;
  ActivationTile first;  // tile i begins i * tile_entries entries (slots of a group) later
  std::vector<uint8_t> finite;

  ActivationTile tile(int64_t index) const {
    const int64_t entries = index * num_groups * kTileSlots;
    ActivationTile t = first;
    if (t.bytes != nullptr) t.bytes += entries * kGroup;
    if (t.quads != nullptr) t.quads += entries * kGroup;
    if (t.sums != nullptr) t.sums += index * num_groups;
    return t;
  }
};

struct Forms {
  bool bytes = false, quads = false, floats = false;
};

Forms forms_read(const LinearKernels& kernels, const PackedPanels& w) {
  Forms forms;
  const auto add = [&](const PanelFormat& format) {
    if (is_float(format)) {
      forms.floats = true;
    } else {
      (kernels.reads_quads(format.kind, w.activation_bits) ? forms.quads : forms.bytes) = true;
    }
  };
  for (const PanelSegment& segment : w.segments) {
    add(segment.format);
    if (w.order == PartOrder::kGateAndUp) add(segment.up);
  }
  return forms;
}

bool row_is_finite(const float* x, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7fffffff;
    largest = std::max(largest, magnitude);
  }
  return largest < 0x7f800000;
}

void prepare(ThreadPool& pool, const LinearKernels& kernels, const PackedPanels& w, Tensor x,
             const Tiles& tiles, Activations& a) {
  const Forms forms = forms_read(kernels, w);
  a.num_groups = 0;
  a.first = {};
  a.finite.assign(static_cast<size_t>(x.num_rows), 1);
  if (forms.bytes || forms.quads) {
    a.num_groups = x.num_cols / kGroup;
    const auto groups = static_cast<size_t>(tiles.count * a.num_groups);
    const size_t values = groups * kTileSlots * kGroup;
    thread_local Scratch scratch;
    std::byte* memory = scratch.bytes(groups * sizeof(GroupSums) +
                                      values * ((forms.bytes ? 1 : 0) + (forms.quads ? 2 : 0)));
    a.first.sums = reinterpret_cast<GroupSums*>(memory);
    memory += groups * sizeof(GroupSums);
    if (forms.quads) {
      a.first.quads = reinterpret_cast<int16_t*>(memory);
      memory += values * 2;
    }
    if (forms.bytes) a.first.bytes = reinterpret_cast<int8_t*>(memory);
  }
  // Whole tiles to a thread: slots share cache lines.
  const auto quantize = [&](int64_t begin, int64_t end, int) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t first = tiles.begin(tile);
      for (int64_t r = first; r < tiles.begin(tile + 1); ++r) {
        bool finite = !forms.floats || row_is_finite(x.row(r), x.num_cols);
        if (a.num_groups > 0)
          finite = kernels.quantize_row(x.row(r), a.num_groups, w.activation_bits, a.tile(tile),
                                        static_cast<int>(r - first)) &&
                   finite;
        a.finite[static_cast<size_t>(r)] = finite;
      }
    }
  };
  if (tiles.count > 1) {
    pool.run(tiles.count, quantize);
  } else {
    quantize(0, tiles.count, 0);
  }
}

// Rows of one tile that a kernel call takes.
struct TileRows {
  int64_t tile = 0, row = 0;  // row: of x
  int slot = 0, count = 0;
};

// One panel against `rows` of one tile; out[rows][16].
void run_panel(const LinearKernels& kernels, const PackedPanels& w, const PanelFormat& format,
               const uint8_t* panel, const GroupBlock* blocks, const Activations& a, Tensor x,
               const TileRows& at, float* out) {
  const int rows = at.count, slot = at.slot;
  if (is_float(format)) {
    kernels.float_fn(format.kind, rows)(
        {panel, format.kind, rows, w.num_cols, x.row(at.row), x.row_stride, out});
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
const GroupBlock* unpack(const LinearKernels& kernels, const PackedPanels& w,
                         const PanelFormat& format, const uint8_t* panel, int64_t num_rows,
                         int min_block_rows, Scratch& scratch) {
  if (kernels.min_block_rows == 0 || num_rows < min_block_rows || is_float(format)) return nullptr;
  PanelRun run;
  run.panel = panel;
  run.kind = format.kind;
  run.num_groups = w.num_cols / kGroup;
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
      body({tile, r, static_cast<int>(r - first), rows});
      r += rows;
    }
  }
}

// Calls body(segment, unit, tiles [begin, end)): blocks of tiles outside, panels inside, each
// thread a run of panels.
template <typename Body>
void for_units(ThreadPool& pool, const PackedPanels& w, const Tiles& tiles, const Body& body) {
  const int64_t most = std::max<int64_t>(1, kBlockRows * tiles.count / tiles.num_rows);
  const int64_t block_tiles = std::clamp<int64_t>(kBlockBytes / (w.num_cols * kTileSlots), 1, most);
  const int64_t num_blocks = (tiles.count + block_tiles - 1) / block_tiles;
  pool.run(w.num_units, [&](int64_t begin, int64_t end, int) {
    for (int64_t block = 0; block < num_blocks; ++block) {
      const int64_t first = block * tiles.count / num_blocks;
      const int64_t last = (block + 1) * tiles.count / num_blocks;
      size_t s = 0;
      for (int64_t u = begin; u < end; ++u) {
        while (u >= w.segments[s].first_unit + w.segments[s].num_units) ++s;
        body(w.segments[s], u - w.segments[s].first_unit, first, last);
      }
    }
  });
}

// Rows of a block from which this weight's panels are unpacked.
int min_block_rows(const LinearKernels& kernels, std::span<const KernelCrossover> crossovers,
                   const PackedPanels& w) {
  for (const KernelCrossover& crossover : crossovers)
    if (crossover.num_rows == w.num_rows && crossover.num_cols == w.num_cols &&
        crossover.gated == (w.order == PartOrder::kGateAndUp))
      return crossover.min_rows;
  return kernels.min_block_rows;
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

}  // namespace

void linear(ThreadPool& pool, Isa isa, Tensor y, Tensor x, const PackedWeight& weight,
            std::span<const float> bias, Tensor residual,
            std::span<const KernelCrossover> crossovers) {
  const PackedPanels& w = panels_of(weight);
  INVAR_CHECK(w.order == PartOrder::kStacked, "gate and up go to gated_linear");
  if (x.num_rows == 0) return;
  const LinearKernels& kernels = kernels_of(isa);
  const Tiles tiles(x.num_rows, kernels.max_rows);
  const int unpack_from = min_block_rows(kernels, crossovers, w);
  thread_local Activations a;
  Activations& rows_of_x = a;
  prepare(pool, kernels, w, x, tiles, rows_of_x);
  for_units(pool, w, tiles,
            [&](const PanelSegment& segment, int64_t unit, int64_t begin, int64_t end) {
              thread_local Scratch scratch;
              const uint8_t* panel =
                  w.memory.get() + segment.offset + static_cast<size_t>(unit * segment.unit_bytes);
              const GroupBlock* blocks =
                  unpack(kernels, w, segment.format, panel, tiles.begin(end) - tiles.begin(begin),
                         unpack_from, scratch);
              const int64_t lane_row = unit * kPanelRows;
              const auto lanes =
                  static_cast<int>(std::min<int64_t>(kPanelRows, segment.num_rows - lane_row));
              for_tiles(tiles, begin, end, kernels.max_rows, [&](const TileRows& at) {
                alignas(64) float out[kTileSlots * kPanelRows];
                run_panel(kernels, w, segment.format, panel, blocks, rows_of_x, x, at, out);
                for (int m = 0; m < at.count; ++m)
                  store(y, residual, bias, at.row + m, segment.first_row + lane_row, lanes,
                        rows_of_x.finite[static_cast<size_t>(at.row + m)], out + m * kPanelRows);
              });
            });
}

void gated_linear(ThreadPool& pool, Isa isa, Tensor y, Tensor x, const PackedWeight& weight,
                  Activation activation, std::span<const KernelCrossover> crossovers) {
  const PackedPanels& w = panels_of(weight);
  INVAR_CHECK(w.order == PartOrder::kGateAndUp, "gated_linear takes gate and up");
  if (x.num_rows == 0) return;
  const LinearKernels& kernels = kernels_of(isa);
  const RowOps& ops = row_ops(isa);
  const auto gate_times_up = activation == Activation::kSilu ? ops.silu_mul : ops.gelu_tanh_mul;
  const Tiles tiles(x.num_rows, kernels.max_rows);
  const int unpack_from = min_block_rows(kernels, crossovers, w);
  thread_local Activations a;
  Activations& rows_of_x = a;
  prepare(pool, kernels, w, x, tiles, rows_of_x);
  for_units(pool, w, tiles,
            [&](const PanelSegment& segment, int64_t unit, int64_t begin, int64_t end) {
              thread_local Scratch gate_scratch, up_scratch;
              const uint8_t* gate =
                  w.memory.get() + segment.offset + static_cast<size_t>(unit * segment.unit_bytes);
              const uint8_t* up = gate + segment.format.panel_bytes;
              const int64_t num_rows = tiles.begin(end) - tiles.begin(begin);
              const GroupBlock* gate_blocks =
                  unpack(kernels, w, segment.format, gate, num_rows, unpack_from, gate_scratch);
              const GroupBlock* up_blocks =
                  unpack(kernels, w, segment.up, up, num_rows, unpack_from, up_scratch);
              const int64_t lane_row = unit * kPanelRows;
              const auto lanes =
                  static_cast<int>(std::min<int64_t>(kPanelRows, segment.num_rows - lane_row));
              for_tiles(tiles, begin, end, kernels.max_rows, [&](const TileRows& at) {
                alignas(64) float out[2][kTileSlots * kPanelRows];
                run_panel(kernels, w, segment.format, gate, gate_blocks, rows_of_x, x, at, out[0]);
                run_panel(kernels, w, segment.up, up, up_blocks, rows_of_x, x, at, out[1]);
                gate_times_up(out[0], out[0], out[1], at.count * kPanelRows);
                for (int m = 0; m < at.count; ++m)
                  store(y, Tensor{}, {}, at.row + m, lane_row, lanes,
                        rows_of_x.finite[static_cast<size_t>(at.row + m)], out[0] + m * kPanelRows);
              });
            });
}

void lm_head(ThreadPool& pool, Isa isa, Tensor logits, Tensor x, const PackedWeight& w,
             float softcap, std::span<const KernelCrossover> crossovers) {
  linear(pool, isa, logits, x, w, {}, Tensor{}, crossovers);
  if (softcap <= 0) return;
  const RowOps& ops = row_ops(isa);
  constexpr int64_t kRun = 4096;
  const int64_t runs = (logits.num_cols + kRun - 1) / kRun;
  pool.run(logits.num_rows * runs, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t col = i % runs * kRun;
      float* values = logits.row(i / runs) + col;
      ops.softcap(values, values, std::min(kRun, logits.num_cols - col), softcap);
    }
  });
}

}  // namespace invar::cpu
