// Reply: what becomes of one sequence's logits. A generated reply samples, turns ids into text and
// finds its end; a teacher-forced one hands the logits to score(). Used by the engine thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "constraint/constraint.h"
#include "engine/reply_text.h"
#include "engine/score_queue.h"
#include "engine/sequence.h"
#include "engine/stream.h"
#include "sampling/sampler.h"
#include "tokenizer/tokenizer.h"

namespace invar {

using Clock = std::chrono::steady_clock;

struct Reply {
  virtual ~Reply() = default;

  virtual bool is_cancelled() const = 0;
  virtual bool is_behind() = 0;  // its reader has to catch up first
  // Its first window of rows is planned, or one of the prompt has run.
  virtual void note_progress(const Sequence&) {}
  // Rows [first, first + num_rows) of the sequence ran; `logits` of its logit rows, row after row.
  // Appends what it samples to sequence.token_ids. True: it has ended, and publish_end() is due
  // once its pages are free.
  virtual bool take(Sequence& sequence, std::span<const float> logits, int64_t vocab_size,
                    SamplerScratch& scratch) = 0;
  // Whether the next take() of one row only looks for the largest logit among all that may be
  // sampled, and if so which id that was, told in front of take().
  virtual bool wants_best() const { return false; }
  virtual void give_best(int32_t) {}
  // The model could not go on: it has ended, publish_end() is due.
  virtual void fail(Error error) = 0;  // works without memory, as stop() does
  virtual void drop_constraint() {}
  virtual void publish_end() = 0;
  virtual void stop() = 0;  // cancelled, or the engine ends; publishes
  // Tells who asks how far the sequence is.
  virtual void show(const Sequence&) {}

  bool is_scheduled() const { return scheduled != Clock::time_point(); }

  // For EngineCounters.
  bool counted = false;
  int64_t max_tokens = 0;
  bool had_bad_logits = false;  // why it ended
  struct Counted {              // so far
    bool looked_up = false;
    int64_t num_cached = 0, num_computed = 0;
    Clock::time_point first_token, last_token;
  } counts;

  Clock::time_point submitted = Clock::now();
  Clock::time_point scheduled, first_token;  // zero: not yet
};

// What a generated reply needs beside its prompt.
struct ReplySpec {
  SamplingParams sampling;
  int64_t min_tokens = 0, max_tokens = 0;
  StopRules stop;
  std::vector<int32_t> stop_token_ids;  // ascending
  bool ignore_end = false;
  int top_logprobs = -1;
  std::shared_ptr<const CompiledConstraint> constraint;  // null: none
  std::function<std::unique_ptr<ReplyParser>()> make_parser;
  ReasoningBudget reasoning_budget;
  bool report_progress = false;
};

struct Vocabulary {
  const Tokenizer* tokenizer = nullptr;
  std::shared_ptr<const SampleableIds> sampleable;
  std::vector<int32_t> end_ids;  // ascending
};

class GeneratedReply : public Reply {
 public:
  GeneratedReply(const ReplySpec& spec, const Vocabulary& vocabulary,
                 std::span<const int32_t> prompt, std::string arithmetic_id,
                 std::shared_ptr<StreamState> stream);

  bool is_cancelled() const override { return stream_->is_cancelled(); }
  bool is_behind() override { return stream_->is_behind(); }
  void note_progress(const Sequence& sequence) override;
  bool take(Sequence& sequence, std::span<const float> logits, int64_t vocab_size,
            SamplerScratch& scratch) override;
  bool wants_best() const override;
  void give_best(int32_t id) override { best_ = id; }
  void drop_constraint() override {
    constraint_.reset();
    mask_.clear();
  }
  void fail(Error error) override { end_as(FinishReason::kError, std::move(error)); }
  void publish_end() override { stream_->end(std::move(result_)); }
  void show(const Sequence& sequence) override;
  void stop() override;
  void finish(FinishReason reason, Error error = {});
  void end_as(FinishReason reason, Error error = {});

 private:
  std::optional<int32_t> forced_id();
  Result<int32_t> choose(std::span<const float> logits, SamplerScratch& scratch);
  Result<void> fill_mask();
  bool looks_for_stops() const;  // past min_tokens
  bool is_stop_id(int32_t id) const;
  bool accept(int32_t id, TokenEvent event);

  ReplySpec spec_;
  const Vocabulary& vocabulary_;
  Sampler sampler_;
  std::optional<Constraint> constraint_;
  std::vector<uint64_t> mask_;  // empty: every id may be drawn
  ReplyText text_;
  int64_t num_reasoning_tokens_ = 0;
  int32_t best_ = -1;      // of the row that take() gets next
  size_t num_forced_ = 0;  // of the budget's closing ids; all: reasoning was closed
  std::shared_ptr<StreamState> stream_;
  GenerationResult result_;
};

class ScoredReply : public Reply {
 public:
  explicit ScoredReply(std::shared_ptr<ScoreQueue> queue) : queue_(std::move(queue)) {}

  bool is_cancelled() const override { return queue_->is_cancelled(); }
  bool is_behind() override { return queue_->is_full(); }
  bool take(Sequence& sequence, std::span<const float> logits, int64_t vocab_size,
            SamplerScratch& scratch) override;
  void fail(Error) override {}  // the reader learns that rows are missing
  void publish_end() override { queue_->end(false); }
  void stop() override { queue_->end(true); }

 private:
  std::shared_ptr<ScoreQueue> queue_;
  int64_t num_delivered_ = 0;  // rows below are computed again after a preemption, not delivered
};

}  // namespace invar
