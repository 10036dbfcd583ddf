#include "backend/cuda/step_plan.h"

#include <algorithm>

#include "base/check.h"

namespace invar::cuda {
namespace {

constexpr size_t kAlignment = 1024;  // tensor maps want 16; whole lines of L2 a buffer
constexpr int kNormInsideCols = 8192;

size_t align_up(size_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

bool is_matrix_op(StepOpKind kind) {
  return kind == StepOpKind::kLinear || kind == StepOpKind::kGatedLinear ||
         kind == StepOpKind::kLmHead;
}

bool reads(const StepOp& op, int buffer) {
  for (const StepTensor& t : {op.x, op.residual, op.k, op.v})
    if (t.buffer == buffer) return true;
  return false;
}

// First-fit memory for buffers with lives; an op's index is the time.
class Places {
 public:
  explicit Places(bool reuse) : reuse_(reuse) {}
  size_t take(size_t num_bytes) {
    num_bytes = align_up(std::max<size_t>(num_bytes, 1));
    for (Free& free : free_) {
      if (free.size < num_bytes) continue;
      const size_t at = free.offset;
      free.offset += num_bytes;
      free.size -= num_bytes;
      return at;
    }
    // What is free at the end grows rather than staying as a hole.
    size_t at = end_;
    if (!free_.empty() && free_.back().offset + free_.back().size == end_) {
      at = free_.back().offset;
      free_.pop_back();
    }
    end_ = at + num_bytes;
    return at;
  }
  void give(size_t offset, size_t num_bytes) {
    if (!reuse_) return;
    num_bytes = align_up(std::max<size_t>(num_bytes, 1));
    auto at =
        std::find_if(free_.begin(), free_.end(), [&](const Free& f) { return f.offset > offset; });
    at = free_.insert(at, {offset, num_bytes});
    if (at + 1 != free_.end() && at->offset + at->size == (at + 1)->offset) {
      at->size += (at + 1)->size;
      free_.erase(at + 1);
    }
    if (at != free_.begin() && (at - 1)->offset + (at - 1)->size == at->offset) {
      (at - 1)->size += at->size;
      free_.erase(at);
    }
  }
  size_t end() const { return end_; }

 private:
  struct Free {
    size_t offset, size;
  };
  const bool reuse_;
  std::vector<Free> free_;  // ascending, no two touch
  size_t end_ = 0;
};

// The op that alone reads `buffer` after op `made`, if it reads it once; else -1.
int only_reader(const std::vector<StepOp>& ops, size_t made, int buffer) {
  int reader = -1;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (i != made && ops[i].y.buffer == buffer) return -1;  // written twice
    if (!reads(ops[i], buffer)) continue;
    if (reader >= 0 || i < made) return -1;
    reader = static_cast<int>(i);
  }
  return reader;
}

bool written_between(const std::vector<StepOp>& ops, size_t from, size_t to, int buffer) {
  for (size_t i = from + 1; i < to; ++i)
    if (ops[i].y.buffer == buffer) return true;
  return false;
}

class Planner {
 public:
  Planner(const StepRecord& record, const StepSwitches& switches, bool as_recorded)
      : record_(record), switches_(switches), as_recorded_(as_recorded), ops_(record.ops) {}

  StepPlan run() {
    if (!as_recorded_) drop_copies();
    planned_.resize(ops_.size());
    dropped_.resize(ops_.size());
    for (size_t i = 0; i < ops_.size(); ++i) planned_[i].op = ops_[i];
    if (!as_recorded_) {
      if (switches_.norm_inside) fuse_norms();
      if (switches_.rope_inside) fuse_ropes();
      merge_ropes();
    }
    place();
    return std::move(plan_);
  }

 private:
  // A gather of all rows in order is its input under another number.
  void drop_copies() {
    for (size_t i = 0; i < ops_.size();) {
      const StepOp copy = ops_[i];
      if (copy.kind != StepOpKind::kGatherRows || !copy.all_rows) {
        ++i;
        continue;
      }
      bool written = false;  // the copy must not see what comes later
      for (size_t j = i + 1; j < ops_.size(); ++j)
        written |= ops_[j].y.buffer == copy.x.buffer || ops_[j].y.buffer == copy.y.buffer;
      if (written) {
        ++i;
        continue;
      }
      for (StepOp& op : ops_)
        for (StepTensor* t : {&op.x, &op.residual, &op.k, &op.v})
          if (t->buffer == copy.y.buffer) *t = copy.x;
      ops_.erase(ops_.begin() + static_cast<ptrdiff_t>(i));
    }
  }

  void fuse_norms() {
    for (size_t i = 0; i < ops_.size(); ++i) {
      const StepOp& norm = ops_[i];
      if (norm.kind != StepOpKind::kRmsNorm || norm.residual.buffer >= 0) continue;
      const StepBuffer& in = record_.buffers[static_cast<size_t>(norm.x.buffer)];
      if (in.num_rows != 1 || norm.x.num_cols != in.num_cols || in.num_cols % 4 != 0 ||
          in.num_cols > kNormInsideCols)
        continue;
      const int reader = only_reader(ops_, i, norm.y.buffer);
      if (reader < 0) continue;
      const auto j = static_cast<size_t>(reader);
      const StepOp& op = ops_[j];
      if (!is_matrix_op(op.kind) || op.x.buffer != norm.y.buffer || op.y.buffer == norm.x.buffer ||
          written_between(ops_, i, j, norm.x.buffer))
        continue;
      planned_[j].op.x = norm.x;
      planned_[j].norm_weight = norm.vector;
      planned_[j].norm_eps = norm.value;
      dropped_[i] = true;
    }
  }

  // rope(q), rope(k), attention(q, k, v) one after another.
  void fuse_ropes() {
    for (size_t i = 2; i < ops_.size(); ++i) {
      const StepOp &attention = ops_[i], &a = ops_[i - 2], &b = ops_[i - 1];
      if (attention.kind != StepOpKind::kAttention || a.kind != StepOpKind::kRope ||
          b.kind != StepOpKind::kRope)
        continue;
      if (!(a.x == attention.x && b.x == attention.k) || a.inv_freq != b.inv_freq ||
          a.num_freqs != b.num_freqs || a.value != b.value || a.array != b.array ||
          a.num_freqs % 8 != 0 || a.x.buffer != attention.v.buffer)
        continue;
      bool read_later = false;  // whoever reads q or k after us wants them rotated
      for (size_t j = i + 1; j < ops_.size(); ++j) read_later |= reads(ops_[j], a.x.buffer);
      if (read_later) continue;
      dropped_[i - 2] = dropped_[i - 1] = true;
      PlannedOp& p = planned_[i];
      p.rotate = true;
      p.inv_freq = a.inv_freq;
      p.num_freqs = a.num_freqs;
      p.magnitude = a.value;
      p.positions_array = a.array;
    }
  }

  // q and k stand side by side: one kernel turns both.
  void merge_ropes() {
    for (size_t i = 1; i < ops_.size(); ++i) {
      const StepOp& a = ops_[i - 1];
      const StepOp& b = ops_[i];
      if (a.kind != StepOpKind::kRope || b.kind != StepOpKind::kRope || dropped_[i - 1] ||
          dropped_[i] || a.inv_freq != b.inv_freq || a.num_freqs != b.num_freqs ||
          a.value != b.value || a.array != b.array || a.head_dim != b.head_dim ||
          a.x.buffer != b.x.buffer || a.x.first_col + a.x.num_cols != b.x.first_col)
        continue;
      planned_[i].op.x.first_col = a.x.first_col;
      planned_[i].op.x.num_cols = a.x.num_cols + b.x.num_cols;
      planned_[i].op.y = planned_[i].op.x;
      dropped_[i - 1] = true;
    }
  }

  void place() {
    for (size_t i = 0; i < planned_.size(); ++i)
      if (!dropped_[i]) plan_.ops.push_back(planned_[i]);
    const size_t num_buffers = record_.buffers.size();
    plan_.offsets.assign(num_buffers, 0);
    std::vector<size_t> last(num_buffers, 0);
    for (size_t i = 0; i < plan_.ops.size(); ++i) {
      const StepOp& op = plan_.ops[i].op;
      for (const StepTensor& t : {op.y, op.x, op.residual, op.k, op.v})
        if (t.buffer >= 0) last[static_cast<size_t>(t.buffer)] = i;
    }
    // Tables of rotation: one for each kind of rope, kept to the end.
    struct Table {
      const double* inv_freq;
      int num_freqs, array;
      float magnitude;
      size_t offset;
    };
    std::vector<Table> tables;
    std::vector<bool> alive(num_buffers, false);
    Places places(switches_.reuse && !as_recorded_);
    for (size_t i = 0; i < plan_.ops.size(); ++i) {
      PlannedOp& p = plan_.ops[i];
      const StepTensor& y = p.op.y;
      const auto made = static_cast<size_t>(y.buffer);
      if (!alive[made]) {
        alive[made] = true;
        plan_.offsets[made] = places.take(record_.buffers[made].num_bytes());
      }
      if (p.op.kind == StepOpKind::kAttention) {
        plan_.max_groups = std::max(plan_.max_groups, p.op.max_groups);
        const int rows = record_.buffers[made].num_rows;
        if (p.rotate) {
          const auto table = std::find_if(tables.begin(), tables.end(), [&](const Table& t) {
            return t.inv_freq == p.inv_freq && t.num_freqs == p.num_freqs &&
                   t.array == p.positions_array && t.magnitude == p.magnitude;
          });
          p.make_rotation = table == tables.end();
          if (p.make_rotation)
            tables.push_back({p.inv_freq, p.num_freqs, p.positions_array, p.magnitude,
                              places.take(sizeof(float) * 2 * static_cast<size_t>(rows) *
                                          static_cast<size_t>(p.num_freqs))});
          p.rotation_offset = p.make_rotation ? tables.back().offset : table->offset;
        }
        // Splitting over groups is for few rows; the loop path needs no workspace.
        if (p.op.max_window_rows <= 16) {
          p.workspace_bytes = attention_workspace_bytes(p.op.shape, rows, p.op.max_groups);
          p.workspace_offset = places.take(p.workspace_bytes);
          places.give(p.workspace_offset, p.workspace_bytes);
        }
      }
      for (size_t b = 0; b < num_buffers; ++b) {
        if (!alive[b] || last[b] != i) continue;
        places.give(plan_.offsets[b], record_.buffers[b].num_bytes());
        alive[b] = false;
        last[b] = plan_.ops.size();  // given once
      }
    }
    plan_.num_bytes = places.end();
  }

  const StepRecord& record_;
  const StepSwitches& switches_;
  const bool as_recorded_;
  std::vector<StepOp> ops_;
  std::vector<PlannedOp> planned_;
  std::vector<bool> dropped_;
  StepPlan plan_;
};

}  // namespace

StepPlan plan_step(const StepRecord& record, const StepSwitches& switches, bool as_recorded) {
  return Planner(record, switches, as_recorded).run();
}

}  // namespace invar::cuda
