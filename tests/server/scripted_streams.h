// An engine whose replies the test wrote down. It tokenizes nothing and computes nothing.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "invar/invar.h"

namespace invar::testing {

struct ScriptedReply {
  std::vector<TokenEvent> events;
  bool runs_out_of_memory = false;  // behind its events, in the reader's thread
  bool never_ends = false;          // behind its events, until it is cancelled
};

class ScriptedStream : public TokenStream {
 public:
  explicit ScriptedStream(ScriptedReply reply) : reply_(std::move(reply)) {}
  std::optional<TokenEvent> next() override {
    if (num_read_ < reply_.events.size()) return reply_.events[num_read_++];
    if (reply_.runs_out_of_memory) throw std::bad_alloc();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return cancelled_ || !reply_.never_ends; });
    if (cancelled_) result_.finish_reason = FinishReason::kCancelled;
    return std::nullopt;
  }
  void cancel() override {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    changed_.notify_all();
  }
  const GenerationResult& result() const override { return result_; }
  RequestStatus status() const override { return {}; }
  void wait_end() const override {}

 private:
  const ScriptedReply reply_;
  size_t num_read_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool cancelled_ = false;
  GenerationResult result_;
};

class ScriptedEngine : public Engine {
 public:
  // One reply for each submit(), in order.
  explicit ScriptedEngine(std::deque<ScriptedReply> replies) : replies_(std::move(replies)) {}

  const ModelDescription& description() const override { return description_; }
  Result<std::unique_ptr<TokenStream>> submit(const GenerationRequest&) override {
    ScriptedReply reply = std::move(replies_.front());
    replies_.pop_front();
    return std::unique_ptr<TokenStream>(std::make_unique<ScriptedStream>(std::move(reply)));
  }
  Result<std::shared_ptr<const CompiledConstraint>> compile_constraint(
      const ConstraintSpec&) const override {
    return unsupported("scripted");
  }
  Result<std::vector<int32_t>> tokenize(std::string_view, bool, bool) const override {
    return unsupported("scripted");
  }
  std::string detokenize(std::span<const int32_t>, bool) const override { return {}; }
  std::string token_text(int32_t) const override { return {}; }
  std::string token_bytes(int32_t) const override { return {}; }
  Result<std::string> apply_chat_template(const GenerationRequest&) const override {
    return unsupported("scripted");
  }
  Result<std::vector<int32_t>> prompt_ids(const GenerationRequest&) const override {
    return unsupported("scripted");
  }
  Result<ChatPrompt> chat_prompt(const GenerationRequest&) const override {
    return unsupported("scripted");
  }
  EngineStats stats() const override { return {}; }
  Result<void> score(std::span<const int32_t>,
                     const std::function<bool(int64_t, std::span<const float>)>&,
                     const std::stop_token&) override {
    return unsupported("scripted");
  }

 private:
  ModelDescription description_;
  std::deque<ScriptedReply> replies_;
};

}  // namespace invar::testing
