// (3) The engine: before it the application's call of submit() (apps/invar, server/chat_request.cc
// (2)), after it scheduler.cc (4). submit() checks a request, renders and tokenizes it and puts it
// in the inbox; one thread runs step() and owns everything that runs: sequences, scheduler, pages,
// model. An id that the sampler (9) drew is appended here and goes out as an event.
#include <algorithm>
#include <atomic>
#include <list>
#include <mutex>
#include <new>
#include <thread>

#include "backend/recurrent_ops.h"
#include "base/check.h"
#include "base/log.h"
#include "base/result.h"
#include "cache/block_pool.h"
#include "cache/prefix_cache.h"
#include "constraint/compile.h"
#include "constraint/constraint_cache.h"
#include "engine/disk_pages.h"
#include "engine/engine_counters.h"
#include "engine/engine_parts.h"
#include "engine/model_runner.h"
#include "engine/reply.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "engine/state_cuts.h"

namespace invar {
namespace {

// Logits of the teacher-forced rows of a step may take so much memory; the rest waits.
constexpr int64_t kMaxLogitBytes = 64 << 20;

SchedulerConfig scheduler_config(const EngineParts& parts) {
  SchedulerConfig config;
  config.max_sequences = parts.max_sequences;
  config.max_waiting = parts.max_waiting;
  config.prefill_chunk = parts.prefill_chunk;
  config.max_logit_rows =
      std::max<int64_t>(1, kMaxLogitBytes / (int64_t{4} * parts.model->info().vocab_size));
  return config;
}

Vocabulary make_vocabulary(const Tokenizer& tokenizer, const ModelInfo& model) {
  Vocabulary vocabulary;
  vocabulary.tokenizer = &tokenizer;
  auto sampleable = std::make_shared<SampleableIds>();
  sampleable->num_ids = std::min(tokenizer.vocab_size(), model.vocab_size);
  for (int32_t id = 0; id < sampleable->num_ids; ++id)
    if (tokenizer.token_kind(id) == TokenKind::kUnused) sampleable->never.push_back(id);
  vocabulary.sampleable = std::move(sampleable);
  std::vector<int32_t>& end_ids = vocabulary.end_ids;
  end_ids = tokenizer.end_ids;
  end_ids.insert(end_ids.end(), model.eos_ids.begin(), model.eos_ids.end());
  std::sort(end_ids.begin(), end_ids.end());
  end_ids.erase(std::unique(end_ids.begin(), end_ids.end()), end_ids.end());
  return vocabulary;
}

std::unique_ptr<DiskPages> make_disk_pages(EngineParts& parts, KvCache& cache) {
  auto* pages = dynamic_cast<PageAccess*>(parts.backend.get());
  if (parts.page_store == nullptr || pages == nullptr) return nullptr;
  return std::make_unique<DiskPages>(std::move(parts.page_store), *pages, cache);
}

class EngineImpl : public Engine {
 public:
  EngineImpl(EngineParts parts, std::unique_ptr<KvCache> cache, std::unique_ptr<StateCache> states);
  ~EngineImpl() override;

  const ModelDescription& description() const override { return parts_.description; }
  Result<std::unique_ptr<TokenStream>> submit(const GenerationRequest& request) override;
  Result<std::shared_ptr<const CompiledConstraint>> compile_constraint(
      const ConstraintSpec& spec) const override;
  Result<std::vector<int32_t>> tokenize(std::string_view text, bool allow_special,
                                        bool add_special) const override;
  std::string detokenize(std::span<const int32_t> ids, bool with_special) const override;
  std::string token_text(int32_t id) const override;
  std::string token_bytes(int32_t id) const override;
  Result<std::string> apply_chat_template(const GenerationRequest& request) const override;
  Result<std::vector<int32_t>> prompt_ids(const GenerationRequest& request) const override;
  Result<ChatPrompt> chat_prompt(const GenerationRequest& request) const override;
  Result<void> score(std::span<const int32_t> ids,
                     const std::function<bool(int64_t, std::span<const float>)>& visit,
                     const std::stop_token& stop) override;

  EngineStats stats() const override { return counters_.stats(); }

  EngineGauges gauges() const;

 private:
  Result<void> enqueue(std::unique_ptr<Sequence> sequence);
  void run();
  void take_inbox();
  void drop_cancelled();
  void retire(Sequence& sequence);
  const std::shared_ptr<const TokenTrie>& token_trie() const;
  void recover();
  void end_all();
  static void fail_without_memory(Reply& reply);
  void describe();
  void show_load();
  bool step();
  bool take(Sequence& sequence, std::span<const float> logits, int64_t row);

  EngineParts parts_;
  const ModelInfo& model_info_;
  // A device may return from a step without logits before the step has run (synchronize()).
  const bool runs_ahead_;
  const RequestLimits limits_;
  const Vocabulary vocabulary_;
  const ChatTemplates templates_;
  // Made for the first constraint.
  mutable std::once_flag trie_made_;
  mutable std::shared_ptr<const TokenTrie> trie_;
  mutable ConstraintCache constraints_;

  mutable EngineCounters counters_;

  // The engine thread's own.
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<StateCache> states_;  // null: the model has no recurrent layers
  BlockPool pool_;
  StateSlots state_slots_;
  PrefixCache prefix_cache_;
  std::unique_ptr<DiskPages> disk_pages_;  // null: pages are kept in memory only
  Scheduler scheduler_;
  PromptPace pace_;
  ModelRunner runner_;
  SamplerScratch scratch_;
  std::vector<uint8_t> best_rows_;  // by logit row of a step: only the largest logit's id is wanted
  std::list<std::unique_ptr<Sequence>> sequences_;  // running and waiting

  // Between threads.
  std::shared_ptr<WakeUp> wake_up_ = std::make_shared<WakeUp>();
  std::mutex inbox_mutex_;
  std::list<std::unique_ptr<Sequence>> inbox_;
  int64_t num_submitted_ = 0;
  std::atomic<int> num_requests_ = 0;
  std::atomic<int> num_running_states_ = 0;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

EngineImpl::EngineImpl(EngineParts parts, std::unique_ptr<KvCache> cache,
                       std::unique_ptr<StateCache> states)
    : parts_(std::move(parts)),
      model_info_(parts_.model->info()),
      runs_ahead_(parts_.backend->device_room().has_value()),
      limits_{parts_.context, parts_.model->info().vocab_size},
      vocabulary_(make_vocabulary(*parts_.tokenizer, model_info_)),
      templates_(parts_.chat_templates),
      counters_(parts_.num_pages, parts_.context),
      cache_(std::move(cache)),
      states_(std::move(states)),
      pool_(parts_.num_pages),
      state_slots_(states_ == nullptr ? 0 : states_->num_slots),
      prefix_cache_(pool_,
                    parts_.prefix_cache_pages < 0 ? parts_.num_pages : parts_.prefix_cache_pages,
                    kPagePositions, states_ == nullptr ? nullptr : &state_slots_),
      disk_pages_(make_disk_pages(parts_, *cache_)),
      scheduler_(scheduler_config(parts_), prefix_cache_, parts_.num_pages, disk_pages_.get(),
                 states_ == nullptr ? nullptr : &state_slots_),
      pace_(parts_.prefill_chunk, parts_.step_slowdown),
      runner_(*parts_.model, *parts_.backend, *cache_, states_.get(), counters_.operations()) {
  describe();
  thread_ = std::thread([this] { run(); });
}

EngineImpl::~EngineImpl() {
  stopping_ = true;
  wake_up_->signal();
  thread_.join();
}

// What open() leaves to us.
void EngineImpl::describe() {
  ModelDescription& d = parts_.description;
  d.end_ids = vocabulary_.end_ids;
  for (const auto& [name, text] : parts_.chat_templates)
    if (name == "default" || d.chat_template.empty()) d.chat_template = text;
  d.bos_token = token_text(parts_.tokenizer->bos_id);
  d.eos_token = token_text(parts_.tokenizer->eos_id);
  d.page_positions = kPagePositions;
  d.num_pages = parts_.num_pages;
  d.has_prefix_cache = prefix_cache_.enabled();
}

// ---- On the callers' threads

Result<std::shared_ptr<const CompiledConstraint>> EngineImpl::compile_constraint(
    const ConstraintSpec& spec) const {
  return constraints_.get(spec, [&] {
    const std::shared_ptr<const TokenTrie>& trie = token_trie();
    const Clock::time_point begin = Clock::now();
    auto compiled = invar::compile_constraint(spec, trie);
    counters_.count_constraint(std::chrono::duration<double>(Clock::now() - begin).count());
    return compiled;
  });
}

Result<std::unique_ptr<TokenStream>> EngineImpl::submit(const GenerationRequest& request) {
  if (request.constraint && &request.constraint->trie() != token_trie().get())
    return invalid_argument("the constraint was compiled by another engine");
  INVAR_TRY(std::vector<int32_t> ids, prompt_ids(request));
  INVAR_TRY(const ReplySpec spec,
            make_reply_spec(request, static_cast<int64_t>(ids.size()), limits_));
  auto stream = std::make_shared<StreamState>(wake_up_);
  auto reply = std::make_unique<GeneratedReply>(spec, vocabulary_, ids,
                                                parts_.backend->info().arithmetic_id, stream);
  auto sequence = std::make_unique<Sequence>();
  sequence->num_prompt_tokens = static_cast<int64_t>(ids.size());
  sequence->token_ids = std::move(ids);
  sequence->cache_salt = request.cache_salt;
  sequence->use_prefix_cache = request.use_prefix_cache;
  if (states_ != nullptr && prefix_cache_.enabled() && request.use_prefix_cache)
    sequence->state_cuts = choose_state_cuts(sequence->token_ids, *parts_.tokenizer);
  reply->counted = request.count;
  reply->max_tokens = spec.max_tokens;
  sequence->reply = std::move(reply);
  sequence->reply->show(*sequence);
  INVAR_TRY_VOID(enqueue(std::move(sequence)));
  return make_token_stream(std::move(stream));
}

const std::shared_ptr<const TokenTrie>& EngineImpl::token_trie() const {
  std::call_once(trie_made_,
                 [&] { trie_ = TokenTrie::make(*parts_.tokenizer, vocabulary_.end_ids); });
  return trie_;
}

Result<void> EngineImpl::enqueue(std::unique_ptr<Sequence> sequence) {
  {
    const std::lock_guard lock(inbox_mutex_);
    if (num_requests_ >= parts_.max_waiting)
      return unavailable("%d requests wait already; try again later", parts_.max_waiting);
    sequence->arrival = num_submitted_++;
    inbox_.push_back(std::move(sequence));
    ++num_requests_;
    counters_.show_arrival(inbox_.back()->reply->submitted);
    counters_.show_work(true);
  }
  wake_up_->signal();
  return {};
}

Result<void> EngineImpl::score(std::span<const int32_t> ids,
                               const std::function<bool(int64_t, std::span<const float>)>& visit,
                               const std::stop_token& stop) {
  GenerationRequest request;
  request.prompt_ids.assign(ids.begin(), ids.end());
  INVAR_TRY(std::vector<int32_t> checked, prompt_ids(request));
  if (static_cast<int64_t>(checked.size()) > limits_.context)
    return resource_exhausted("the context window has %ld positions, the text has %zu tokens",
                              long{limits_.context}, checked.size());
  auto queue = std::make_shared<ScoreQueue>(wake_up_);
  // However we leave, also by an exception of `visit`: nobody waits for a reader that is gone.
  struct CancelAtExit {
    ScoreQueue& queue;
    ~CancelAtExit() { queue.cancel(); }
  } cancel_at_exit{*queue};
  const std::stop_callback cancel_at_stop(stop, [&queue] { queue->cancel(); });
  auto sequence = std::make_unique<Sequence>();
  sequence->token_ids = std::move(checked);
  sequence->num_prompt_tokens = static_cast<int64_t>(sequence->token_ids.size());
  sequence->all_logits = true;
  sequence->reply = std::make_unique<ScoredReply>(queue);
  INVAR_TRY_VOID(enqueue(std::move(sequence)));

  const size_t vocab_size = static_cast<size_t>(model_info_.vocab_size);
  int64_t index = 0;
  while (const std::optional<std::vector<float>> chunk = queue->next()) {
    for (size_t at = 0; at < chunk->size(); at += vocab_size) {
      if (!visit(index++, std::span(*chunk).subspan(at, vocab_size))) return {};
    }
  }
  if (queue->was_stopped())
    return cancelled(stop.stop_requested() ? "it was stopped" : "the engine was closed");
  if (index < static_cast<int64_t>(ids.size()))
    return resource_exhausted("there is no memory to score this text now");
  return {};
}

Result<std::vector<int32_t>> EngineImpl::tokenize(std::string_view text, bool allow_special,
                                                  bool add_special) const {
  return parts_.tokenizer->encode(text, allow_special, add_special);
}

std::string EngineImpl::detokenize(std::span<const int32_t> ids, bool with_special) const {
  Detokenizer detokenizer(*parts_.tokenizer, with_special);
  std::string text;
  for (const int32_t id : ids) text += detokenizer.push(id);
  return text + detokenizer.finish();
}

std::string EngineImpl::token_text(int32_t id) const {
  if (id < 0 || id >= parts_.tokenizer->vocab_size()) return {};
  return std::string(parts_.tokenizer->token_text(id));
}

std::string EngineImpl::token_bytes(int32_t id) const {
  if (id < 0 || id >= parts_.tokenizer->vocab_size()) return {};
  return std::string(parts_.tokenizer->token_bytes(id, false));
}

Result<std::string> EngineImpl::apply_chat_template(const GenerationRequest& request) const {
  INVAR_TRY(const std::vector<TextSegment> segments, templates_.render(request, *parts_.tokenizer));
  return joined(segments);
}

Result<std::vector<int32_t>> EngineImpl::prompt_ids(const GenerationRequest& request) const {
  return make_prompt_ids(request, templates_, *parts_.tokenizer, limits_);
}

Result<ChatPrompt> EngineImpl::chat_prompt(const GenerationRequest& request) const {
  return make_chat_prompt(request, templates_, *parts_.tokenizer, limits_);
}

// ---- On the engine's thread

void EngineImpl::run() {
  while (!stopping_) {
    bool is_idle = false;
    try {
      take_inbox();
      drop_cancelled();
      is_idle = !step();
    } catch (const std::bad_alloc&) {
      recover();
    }
    if (!is_idle) continue;
    {
      // What is left waits for readers that are behind. More would be a standstill, which the
      // watchdog of a server must see.
      const std::lock_guard lock(inbox_mutex_);
      const auto is_paused = [](const auto& sequence) { return sequence->paused; };
      counters_.show_work(!inbox_.empty() ||
                          !std::all_of(sequences_.begin(), sequences_.end(), is_paused));
    }
    wake_up_->wait();
  }
  end_all();
}

void EngineImpl::end_all() {
  take_inbox();
  for (const auto& sequence : sequences_) {
    retire(*sequence);
    sequence->reply->stop();
  }
  sequences_.clear();
}

// There was no memory for something, we do not know for what. Whatever stood half done is given up:
// all pages are free, and every sequence computes its keys and values again, which gives the same
// tokens. All but the newest, which makes room.
void EngineImpl::recover() {
  parts_.backend->drop_step();
  scheduler_.reset();
  std::unique_ptr<Sequence> newest;
  if (!sequences_.empty()) {
    newest = std::move(sequences_.back());
    sequences_.pop_back();
  }
  for (const auto& sequence : sequences_) scheduler_.add(*sequence);
  show_load();
  log(LogLevel::kWarning, "out of memory: the newest request ends, the others start over");
  if (newest == nullptr) return;
  --num_requests_;
  fail_without_memory(*newest->reply);
  counters_.count_end(*newest);
  newest->reply->publish_end();
}

// Even the words may not fit.
void EngineImpl::fail_without_memory(Reply& reply) {
  Error error{ErrorCode::kResourceExhausted, {}};
  try {
    error.message = "there is no memory for this request now";
  } catch (const std::bad_alloc&) {
  }
  reply.fail(std::move(error));
}

// Its pages are free before its reader learns of the end.
void EngineImpl::retire(Sequence& sequence) {
  try {
    if (disk_pages_ && sequence.use_prefix_cache) disk_pages_->save(sequence);
  } catch (const std::bad_alloc&) {  // then they are not kept on disk
  }
  scheduler_.remove(sequence);
  counters_.count_end(sequence);
  --num_requests_;
  show_load();
}

void EngineImpl::take_inbox() {
  const std::lock_guard lock(inbox_mutex_);
  for (const auto& sequence : inbox_) scheduler_.add(*sequence);
  sequences_.splice(sequences_.end(), inbox_);
}

// Before each step, wherever the sequence is: waiting, in its prompt, or decoding.
void EngineImpl::drop_cancelled() {
  std::erase_if(sequences_, [&](const std::unique_ptr<Sequence>& sequence) {
    if (!sequence->reply->is_cancelled()) return false;
    retire(*sequence);
    sequence->reply->stop();
    return true;
  });
}

void EngineImpl::show_load() {
  counters_.show_load(scheduler_, prefix_cache_, pool_);
  if (states_ != nullptr) num_running_states_ = states_->num_slots - state_slots_.num_available();
  const Sequence* oldest = scheduler_.oldest_waiting();
  const std::lock_guard lock(inbox_mutex_);
  if (oldest == nullptr && !inbox_.empty()) oldest = inbox_.front().get();
  counters_.show_waiting(scheduler_.num_waiting() + static_cast<int>(inbox_.size()),
                         oldest == nullptr ? Clock::time_point() : oldest->reply->submitted);
}

// One step: plan, forward, sample. False: there is nothing to run.
bool EngineImpl::step() {
  for (const auto& sequence : sequences_) sequence->paused = sequence->reply->is_behind();
  const StepPlan plan = scheduler_.next_step(pace_.rows(scheduler_.num_decoding()));
  show_load();
  const Clock::time_point now = Clock::now();
  for (const PlannedWindow& window : plan.windows) {
    Reply& reply = *window.sequence->reply;
    if (reply.is_scheduled()) continue;
    reply.scheduled = now;
    reply.note_progress(*window.sequence);
  }
  for (const auto& sequence : sequences_) sequence->reply->show(*sequence);
  if (plan.windows.empty()) {
    runner_.run_copies(plan);
    return plan.did_something();
  }

  best_rows_.clear();
  for (const PlannedWindow& window : plan.windows)
    for (int64_t i = 0; i < window.num_logit_rows; ++i)
      best_rows_.push_back(window.num_logit_rows == 1 && !window.sequence->all_logits &&
                           window.sequence->reply->wants_best());
  runner_.want_best(best_rows_, *vocabulary_.sampleable);
  counters_.show_work(true);
  counters_.begin_step(plan);
  const Tensor logits = runner_.run(plan);
  const bool has_run = logits.num_rows > 0 || !runs_ahead_;
  if (has_run) {
    // Counted in the plan: a reply may have been preempted while it was made.
    const int64_t num_replies = std::count_if(
        plan.windows.begin(), plan.windows.end(),
        [](const PlannedWindow& window) { return window.sequence->num_uncached_tokens() == 1; });
    pace_.note(num_replies, plan.num_rows - num_replies,
               std::chrono::duration<double>(Clock::now() - now).count());
  }
  scheduler_.commit(plan);

  int64_t row = 0;
  // Whoever hears of an end finds the step counted, by what it took so far.
  bool is_counted = false;
  const auto count_step = [&] {
    if (!std::exchange(is_counted, true))
      counters_.end_step(std::chrono::duration<double>(Clock::now() - now).count(), has_run);
  };
  for (const PlannedWindow& window : plan.windows) {
    Sequence& sequence = *window.sequence;
    const size_t num_logits = static_cast<size_t>(window.num_logit_rows * logits.num_cols);
    INVAR_CHECK(logits.contiguous(), "logits with gaps");
    const std::span<const float> rows(num_logits > 0 ? logits.row(row) : nullptr, num_logits);
    const std::span<const int32_t> best = parts_.backend->best_ids();
    if (num_logits > 0 && !best.empty() && best[static_cast<size_t>(row)] >= 0)
      sequence.reply->give_best(best[static_cast<size_t>(row)]);
    row += window.num_logit_rows;
    const size_t num_before = sequence.token_ids.size();
    counters_.count_prompt(sequence);
    bool has_ended = false;
    try {
      has_ended = take(sequence, rows, row - 1);
    } catch (const std::bad_alloc&) {  // its state is half changed: it cannot go on
      fail_without_memory(*sequence.reply);
      has_ended = true;
    }
    counters_.count_tokens(sequence, sequence.token_ids.size() - num_before);
    sequence.reply->show(sequence);
    if (!has_ended) continue;
    retire(sequence);
    count_step();
    sequence.reply->publish_end();
    std::erase_if(sequences_, [&](const auto& owned) { return owned.get() == &sequence; });
  }
  count_step();
  return true;
}

// Its logit rows of the step, of which `row` is the last. True: the reply has ended.
bool EngineImpl::take(Sequence& sequence, std::span<const float> logits, int64_t row) {
  Reply& reply = *sequence.reply;
  const int64_t vocab_size = model_info_.vocab_size;
  if (logits.empty() || sequence.all_logits)
    return reply.take(sequence, logits, vocab_size, scratch_);
  RowOutcome outcome = parts_.model->outcome(row);
  if (outcome.fault) {
    reply.fail(*std::move(outcome.fault));
    return true;
  }
  if (outcome.is_forced) reply.drop_constraint();
  bool ended = reply.take(sequence, logits, vocab_size, scratch_);
  for (int64_t i = 0; i < outcome.further.num_rows && !ended; ++i)
    ended = reply.take(sequence, {outcome.further.row(i), static_cast<size_t>(vocab_size)},
                       vocab_size, scratch_);
  return ended;
}

EngineGauges EngineImpl::gauges() const {
  return {counters_.num_used_pages(), counters_.num_kept_pages(),  num_requests_,
          counters_.num_steps(),      counters_.num_preemptions(), num_running_states_};
}

}  // namespace

Result<std::unique_ptr<Engine>> make_engine(EngineParts parts) {
  INVAR_CHECK(parts.num_pages * int64_t{kPagePositions} >= parts.context && parts.context >= 1,
              "%d pages for %ld positions", parts.num_pages, long{parts.context});
  INVAR_TRY(std::unique_ptr<KvCache> cache,
            parts.backend->make_kv_cache(parts.model->info().kv_layers, parts.num_pages));
  std::unique_ptr<StateCache> states;
  if (const auto& layers = parts.model->info().recurrent_layers; !layers.empty()) {
    RecurrentOps* const ops = parts.backend->recurrent_ops();
    INVAR_CHECK(ops != nullptr, "a model whose layers the backend does not have");
    INVAR_TRY(states,
              ops->make_state_cache(layers, parts.max_sequences + parts.num_state_snapshots));
  }
  return std::unique_ptr<Engine>(
      new EngineImpl(std::move(parts), std::move(cache), std::move(states)));
}

EngineGauges engine_gauges(const Engine& engine) {
  return static_cast<const EngineImpl&>(engine).gauges();
}

const char* version() { return INVAR_VERSION; }

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "unknown";
}

const char* request_state_name(RequestState state) {
  switch (state) {
    case RequestState::kQueued:
      return "queued";
    case RequestState::kPrefill:
      return "prefill";
    case RequestState::kDecode:
      return "decode";
    case RequestState::kPaused:
      return "paused";
    case RequestState::kPreempted:
      return "preempted";
    case RequestState::kFinishing:
      return "finishing";
  }
  return "unknown";
}

}  // namespace invar
