// EngineStats: what an engine does now and has done since it was opened, for operators. A picture
// taken without waiting for a step; its numbers may be a moment apart from each other.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace invar {

// How many observations were at most edges[i] (and above the edge before), and above all of them.
struct HistogramData {
  std::vector<double> edges;    // ascending
  std::vector<int64_t> counts;  // one more than edges
  double sum = 0;
};

// Rows of what: prompts only, replies only, or both.
enum class StepKind { kPrefill, kDecode, kMixed };
inline constexpr std::array kStepKinds = {StepKind::kPrefill, StepKind::kDecode, StepKind::kMixed};

struct EngineStats {
  // ---- Now
  int num_running = 0;                // sequences that hold pages, paused ones included
  int num_waiting = 0;                // not started, or preempted
  double oldest_waiting_seconds = 0;  // since the oldest of them was submitted
  int num_pages = 0;
  int num_used_pages = 0;    // by sequences
  int num_cached_pages = 0;  // kept for later prompts, and free for whoever needs a page
  int num_kept_pages = 0;    // of the prefix cache, those in use included
  bool has_work = false;     // something could run: not idle, nor waiting for readers alone

  // ---- Since the start
  int64_t num_operations = 0;  // of the model; goes on within a long step
  int64_t num_steps = 0;
  int64_t num_windows = 0;  // sequences, over all steps
  int64_t num_preemptions = 0;
  int64_t num_evictions = 0;   // pages of the prefix cache that gave way
  int64_t max_context = 0;     // most tokens, prompt and reply, that a sequence had
  int64_t num_bad_logits = 0;  // replies that ended because a logit was no finite number
  // A step with prompts and replies gives each its share by rows.
  double prefill_seconds = 0, decode_seconds = 0;
  HistogramData step_tokens;                                  // rows of a step
  std::array<HistogramData, kStepKinds.size()> step_seconds;  // by StepKind

  // ---- Since the start, of requests with `count` set
  int64_t num_prompt_tokens = 0;         // computed
  int64_t num_cached_prompt_tokens = 0;  // found in the prefix cache instead
  int64_t num_generated_tokens = 0;
  int64_t num_looked_up_tokens = 0;  // of prompts that may use the prefix cache
  HistogramData time_to_first_token, time_between_tokens;
  // Of requests that have ended, whatever their ending, as far as they came.
  HistogramData time_per_token, total_time, queue_time, prefill_time, decode_time, inference_time;
  HistogramData prompt_tokens, generated_tokens, max_tokens;

  HistogramData constraint_seconds;  // to compile one
};

}  // namespace invar
