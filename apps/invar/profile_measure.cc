#include "profile_measure.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/result.h"

namespace invar::cli {
namespace {

constexpr int kSettling = 2;  // steps of all sequences that do not count

bool has_crossover(OpKind kind) {
  return kind == OpKind::kLinear || kind == OpKind::kGatedLinear || kind == OpKind::kLmHead;
}

bool same_op(const ProfiledOp& a, OpKind kind, int64_t num_rows, int64_t num_cols) {
  return a.kind == kind && a.num_rows == num_rows && a.num_cols == num_cols;
}

ProfilePoint& point_of(std::vector<ProfilePoint>& points, int rows) {
  const auto at = std::find_if(points.begin(), points.end(),
                               [&](const ProfilePoint& point) { return point.rows >= rows; });
  if (at != points.end() && at->rows == rows) return *at;
  ProfilePoint point;
  point.rows = rows;
  point.seconds = std::numeric_limits<double>::infinity();
  return *points.insert(at, point);
}

void add_step(ProfilePoint& point, const StepTime& step, double seconds) {
  point.seconds = std::min(point.seconds, seconds);
  for (const OpTime& op : step.ops) {
    const auto known = std::find_if(point.ops.begin(), point.ops.end(), [&](const auto& other) {
      return same_op(other, op.kind, op.num_rows, op.num_cols);
    });
    if (known == point.ops.end())
      point.ops.push_back({op.kind, op.num_rows, op.num_cols, op.seconds, op.num_calls});
    else
      known->seconds = std::min(known->seconds, op.seconds);
  }
}

}  // namespace

const ProfiledOp* find_op(const ProfilePoint& point, const ProfiledOp& op) {
  for (const ProfiledOp& other : point.ops)
    if (same_op(other, op.kind, op.num_rows, op.num_cols)) return &other;
  return nullptr;
}

Result<std::vector<StepTime>> ProfileRunner::run_steps(int rows, int num_steps) {
  timed_.take_steps();
  std::vector<std::unique_ptr<TokenStream>> streams;
  const int64_t events = num_steps + kSettling + 2;
  Result<void> outcome;
  for (int i = 0; i < rows && outcome; ++i) {
    GenerationRequest request;
    request.prompt_ids = {static_cast<int32_t>(
        ++num_prompts_ * 7919 % static_cast<uint64_t>(engine_.description().vocab_size))};
    request.max_tokens = events + 4;
    request.ignore_end = true;
    request.use_prefix_cache = false;
    auto stream = engine_.submit(request);
    if (stream)
      streams.push_back(*std::move(stream));
    else
      outcome = stream.error();
  }
  // The last to come is the last to decode; the others are ahead and never wait for us.
  for (int64_t event = 0; event < events && outcome; ++event)
    if (!streams.back()->next()) break;
  // Whatever happened, all streams end here: measure() relies on that.
  for (const auto& stream : streams) stream->cancel();
  for (const auto& stream : streams) {
    while (stream->next()) {
    }
    if (outcome && stream->result().finish_reason == FinishReason::kError)
      outcome = stream->result().error;
  }
  if (!outcome) return outcome.error();
  return timed_.take_steps();
}

Result<ProfilePass> ProfileRunner::measure(const std::vector<int>& row_counts,
                                           const std::vector<KernelCrossover>& first,
                                           const std::vector<KernelCrossover>& second,
                                           const ProfileEffort& effort, const OnRound& on_round) {
  int turn = 0;
  timed_.set_before_step([&] {
    turn ^= 1;
    tunable_.set_crossovers(turn == 0 ? first : second);
    return turn;
  });
  ProfilePass pass;
  int done = 0;
  Result<void> outcome;
  for (int round = 0; round < effort.rounds && outcome; ++round) {
    for (const int rows : row_counts) {
      const auto steps = run_steps(rows, 2 * effort.steps);
      if (!steps) {
        outcome = steps.error();
        break;
      }
      int seen = 0;
      for (size_t i = 0; i + 1 < steps->size(); ++i) {
        const StepTime &step = (*steps)[i], &next = (*steps)[i + 1];
        if (!step.is_decode() || step.num_windows != rows || next.num_windows != rows) continue;
        if (++seen <= kSettling) continue;
        add_step(point_of(pass.settings[step.variant], rows), step,
                 std::chrono::duration<double>(next.start - step.start).count());
      }
      on_round(++done, effort.rounds * static_cast<int>(row_counts.size()));
    }
  }
  // All streams have ended: no step runs that could call it.
  timed_.set_before_step(nullptr);
  if (!outcome) return outcome.error();
  for (const auto& setting : pass.settings)
    if (setting.size() != row_counts.size())
      return unavailable("steps of %zu of %zu row counts came about", setting.size(),
                         row_counts.size());
  return pass;
}

std::vector<KernelCrossover> shapes_of(const ProfilePass& pass) {
  std::vector<KernelCrossover> shapes;
  for (const ProfiledOp& op : pass.settings[0].front().ops)
    if (has_crossover(op.kind))
      shapes.push_back({op.kind == OpKind::kGatedLinear, op.num_rows, op.num_cols, 0});
  return shapes;
}

std::vector<KernelCrossover> find_crossovers(const ProfilePass& pass, int never) {
  const std::vector<ProfilePoint>&few = pass.settings[0], &many = pass.settings[1];
  std::vector<KernelCrossover> crossovers;
  for (const ProfiledOp& op : few.front().ops) {
    if (!has_crossover(op.kind)) continue;
    // Candidate c: the second kernel from point c on; its cost is relative to the better one, so
    // that large row counts do not decide alone.
    size_t best = few.size();
    double least = std::numeric_limits<double>::infinity();
    for (size_t c = few.size() + 1; c-- > 0;) {
      double cost = 0;
      for (size_t i = 0; i < few.size(); ++i) {
        const ProfiledOp *a = find_op(few[i], op), *b = find_op(many[i], op);
        INVAR_CHECK(a != nullptr && b != nullptr, "an operation is missing at %d rows",
                    few[i].rows);
        cost += (i < c ? a->seconds : b->seconds) / std::min(a->seconds, b->seconds);
      }
      if (cost < least * 0.999) {
        least = cost;
        best = c;
      }
    }
    crossovers.push_back({op.kind == OpKind::kGatedLinear, op.num_rows, op.num_cols,
                          best == few.size() ? never : few[best].rows});
  }
  return crossovers;
}

std::vector<Fall> find_falls(const std::vector<ProfilePoint>& points, double tolerance) {
  std::vector<Fall> falls;
  for (size_t i = 0; i + 1 < points.size(); ++i) {
    const double before = tokens_per_second(points[i]), after = tokens_per_second(points[i + 1]);
    if (after >= before * (1 - tolerance)) continue;
    Fall fall{points[i].rows, points[i + 1].rows, 100 * (1 - after / before), {}};
    double most = 0;
    for (const ProfiledOp& op : points[i + 1].ops) {
      const ProfiledOp* earlier = find_op(points[i], op);
      if (earlier == nullptr) continue;
      const double lost = op.seconds / points[i + 1].rows - earlier->seconds / points[i].rows;
      if (lost <= most) continue;
      most = lost;
      fall.op = op;
    }
    falls.push_back(fall);
  }
  return falls;
}

}  // namespace invar::cli
