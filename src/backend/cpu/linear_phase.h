// What linear.cc and moe.cc share: rows brought into the form that the kernels read, and the phase
// in which the pool's threads meet them with panels. What is computed does not depend on how work
// is cut here (linear_portable.cc has the arithmetic); only the speed does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "backend/cpu/linear_kernels.h"
#include "backend/tunable.h"
#include "base/check.h"
#include "base/threads.h"
#include "tensor/tensor.h"

namespace invar::cpu {

// The table of one instruction set, which must be available.
const LinearKernels& linear_kernels(Isa isa);

inline const PackedPanels& panels_of(const PackedWeight& w) {
  return static_cast<const PackedPanels&>(w);
}

// Scratch that grows and is kept, so that a call allocates nothing once warm.
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
  Tensor rows(int64_t num_rows, int64_t num_cols) {
    return {bytes(static_cast<size_t>(num_rows * num_cols) * sizeof(float)), DType::kF32, num_rows,
            num_cols, num_cols};
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
  // Where they stand: the tile among those of the Activations, the row among those of x and y, and
  // the slot of a tile's first row, which is 0 but for a tile of one row.
  int64_t first_tile = 0, first_row = 0;
  int first_slot = 0;

  Tiles() = default;
  Tiles(int64_t rows, int max_rows) : num_rows(rows) {
    const int size = max_rows > kTileSlots / 2 ? max_rows : kTileSlots;
    count = (rows + size - 1) / size;
  }
  int64_t begin(int64_t tile) const { return tile * num_rows / count; }
  int64_t tile_of(int64_t row) const { return ((row + 1) * count - 1) / num_rows; }
};

// In which forms rows are read by the panels that they meet.
struct Forms {
  bool bytes = false, quads = false, floats = false;
};
Forms forms_read(const LinearKernels& kernels, const PackedPanels& w,
                 std::span<const PanelSegment> segments);

// Rows of one call as the kernels read them.
struct Activations {
  int64_t num_groups = 0;
  ActivationTile first;         // tile i begins i * tile_entries entries (slots of a group) later
  Tensor x;                     // for weights in floating point
  std::vector<uint8_t> finite;  // [x.num_rows]
  Scratch memory;

  ActivationTile tile(int64_t index) const {
    const int64_t entries = index * num_groups * kTileSlots;
    ActivationTile t = first;
    if (t.bytes != nullptr) t.bytes += entries * kGroup;
    if (t.quads != nullptr) t.quads += entries * kGroup;
    if (t.sums != nullptr) t.sums += index * num_groups;
    return t;
  }
  // Memory for num_tiles tiles of rows of num_cols values; `x` and `finite` are the caller's.
  void make_room(const Forms& forms, int64_t num_tiles, int64_t num_cols);
};

// Rows that meet some of a weight's units: all of a dense weight's, or one expert's.
struct Job {
  Tiles tiles;
  size_t first_segment = 0;
  int64_t first_unit = 0, num_units = 0;
};

// Quantizes the rows of all jobs' tiles, which follow each other from tile 0 on; all of a.x.
void quantize(ThreadPool& pool, const LinearKernels& kernels, int bits, const Forms& forms,
              std::span<const Job> jobs, Activations& a);

// y[row] = w x[row] for the rows of every job, then what is set below.
struct LinearPhase {
  const LinearKernels& kernels;
  const PackedPanels& w;
  const Activations& a;
  Tensor y;
  int unpack_from = 0;  // rows of a block from which panels are unpacked
  std::span<const float> bias = {};
  Tensor residual = {};
  // Gate and up: y = combine(gate, up).
  void (*combine)(float* y, const float* gate, const float* up, int64_t count) = nullptr;
  // Else, when set: y = activate(y).
  void (*activate)(float* y, const float* x, int64_t count) = nullptr;
};
void run_phase(ThreadPool& pool, const LinearPhase& phase, std::span<const Job> jobs);

// Rows of a block from which this weight's panels are unpacked.
int unpack_from(const LinearKernels& kernels, std::span<const KernelCrossover> crossovers,
                const PackedPanels& w);

}  // namespace invar::cpu
