#include "scripted/scripted_model.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "backend/no_kernels.h"

namespace invar::scripted {
namespace {

constexpr size_t kBytesPerPosition = 16;  // accounted, never taken

class ScriptedBackend : public NoKernels {
 public:
  const BackendInfo& info() const override { return info_; }
  Result<std::unique_ptr<KvCache>> make_kv_cache(std::span<const KvLayerShape>,
                                                 int num_pages) override {
    auto cache = std::make_unique<KvCache>();
    cache->num_pages = num_pages;
    return cache;
  }
  size_t kv_page_bytes(std::span<const KvLayerShape>) const override {
    return kBytesPerPosition * kPagePositions;
  }
  void copy_page(KvCache&, int, int) override {}

 private:
  const BackendInfo info_ = scripted_backend_info();
};

using Ids = std::span<const int32_t>;

int64_t find_last(Ids ids, Ids mark) {
  const auto at = std::find_end(ids.begin(), ids.end(), mark.begin(), mark.end());
  return mark.empty() || at == ids.end() ? -1 : at - ids.begin();
}

size_t count_marks(Ids ids, Ids mark) {
  size_t count = 0;
  for (auto at = ids.begin(); !mark.empty(); at += std::ssize(mark), ++count) {
    at = std::search(at, ids.end(), mark.begin(), mark.end());
    if (at == ids.end()) break;
  }
  return count;
}

}  // namespace

BackendInfo scripted_backend_info() {
  BackendInfo info;
  info.name = "scripted";
  info.arithmetic_id = "scripted-1";
  info.isa = "none";
  info.why = "says what a script says";
  return info;
}

std::unique_ptr<Backend> make_scripted_backend() { return std::make_unique<ScriptedBackend>(); }

ScriptedModel::ScriptedModel(std::shared_ptr<const ScriptFile> file,
                             const ScriptedTokenizer& tokenizer)
    : owner_(std::move(file)),
      file_(*owner_),
      tokenizer_(tokenizer),
      user_mark_(tokenizer.encode(file_.turns.user, true, false)),
      tool_mark_(tokenizer.encode(file_.turns.tool, true, false)),
      end_mark_(tokenizer.encode(file_.turns.end, true, false)) {
  info_.family = "scripted";
  info_.quantization = "none";
  info_.vocab_size = tokenizer.vocab_size();
  info_.max_position_embeddings = file_.context_length;
  info_.kv_layers = {{1, 1}};
  info_.eos_ids = {file_.end_id};
}

// The key stands in the last user message; in a prompt without turns, anywhere.
ScriptedModel::Choice ScriptedModel::choose(Ids prompt) const {
  const auto text_of = [&](Ids ids) {
    std::string text;
    for (const int32_t id : ids) text += tokenizer_.token_bytes(id, true);
    return text;
  };
  Ids message = prompt;
  size_t num_tool_results = 0;
  if (const int64_t at = find_last(prompt, user_mark_); at >= 0) {
    message = prompt.subspan(static_cast<size_t>(at) + user_mark_.size());
    num_tool_results = count_marks(message, tool_mark_);
    const auto end =
        std::search(message.begin(), message.end(), end_mark_.begin(), end_mark_.end());
    message = message.first(static_cast<size_t>(end - message.begin()));
  }
  Choice choice;
  std::optional<std::string> key = find_key(file_, text_of(message));
  if (!key) {
    const std::string text = file_.rules.empty() ? "" : text_of(prompt);
    const auto rule = std::find_if(
        file_.rules.begin(), file_.rules.end(),
        [&](const ScriptFile::Rule& r) { return text.find(r.contains) != std::string::npos; });
    key = rule == file_.rules.end() ? "default" : rule->key;
    if (!file_.replies.contains(*key)) return choice;
  }
  const auto found = file_.replies.find(*key);
  if (found == file_.replies.end())
    choice.unknown_key = *key;
  else
    choice.script = &found->second[std::min(num_tool_results, found->second.size() - 1)];
  return choice;
}

void ScriptedModel::force(int32_t id, float* row) const {
  std::fill_n(row, info_.vocab_size, Step().other_logits);
  row[id] = 0;
}

// Token `token_index` of the reply, and those that come in the same step. How long it takes, in ms.
double ScriptedModel::say(const Choice& choice, int64_t token_index, float* row, ops::Context& ctx,
                          RowOutcome& outcome) const {
  force(file_.end_id, row);
  outcome.is_forced = true;
  if (!choice.unknown_key.empty()) {
    outcome.fault = invalid_argument("the script file has no key '%s'", choice.unknown_key.c_str());
    return 0;
  }
  if (choice.script == nullptr) return 0;
  const Script& script = *choice.script;
  const auto& steps = script.steps;
  const auto after =
      std::upper_bound(steps.begin(), steps.end(), token_index,
                       [](int64_t index, const Step& step) { return index < step.first_token; });
  const int64_t step_index = after - steps.begin() - 1;
  const bool is_cut = script.eos_after >= 0 && token_index >= script.eos_after;
  if (step_index < 0 || is_cut) return 0;
  const Step& step = steps[static_cast<size_t>(step_index)];
  const int64_t at = token_index - step.first_token;
  const int64_t num_tokens = std::max<int64_t>(1, std::ssize(step.tokens));
  if (at >= num_tokens) return 0;  // behind the last step
  if (step_index == script.fail_at_step) {
    outcome.fault = Error{ErrorCode::kIo, format("the script fails at step %ld", long{step_index})};
    return step.delay_ms;
  }
  if (step.logits && at == 0) {
    outcome.is_forced = false;
    std::fill_n(row, info_.vocab_size, step.other_logits);
    for (const auto& [id, value] : *step.logits) row[id] = value;
  } else {
    force(step.tokens[static_cast<size_t>(at)], row);
  }
  if (step_index == script.nan_at_step) row[0] = std::nanf("");
  int64_t num_further = num_tokens - at - 1;
  if (script.eos_after >= 0)
    num_further = std::min(num_further, script.eos_after - token_index - 1);
  outcome.further = ctx.arena.rows(num_further, info_.vocab_size);
  for (int64_t i = 0; i < num_further; ++i)
    force(step.tokens[static_cast<size_t>(at + 1 + i)], outcome.further.row(i));
  return step.delay_ms;
}

// The step takes as long as its slowest reply, and its prompts' tokens on top.
Tensor ScriptedModel::forward(ops::Context& ctx, const Batch& batch) const {
  const auto begin = std::chrono::steady_clock::now();
  Tensor logits = ctx.arena.rows(std::ssize(batch.logit_rows), info_.vocab_size);
  outcomes_.assign(batch.logit_rows.size(), {});
  double prompt_ms = 0, delay_ms = 0;
  size_t logit_row = 0;
  for (size_t i = 0; i < batch.windows.size(); ++i) {
    const Window& window = batch.windows[i];
    const SequenceText& sequence = batch.sequences[i];
    const Choice choice =
        choose(sequence.token_ids.first(static_cast<size_t>(sequence.num_prompt_tokens)));
    const int64_t end = window.start + window.num_rows;
    const int64_t num_prompt_rows =
        std::max<int64_t>(0, std::min(end, sequence.num_prompt_tokens) - window.start);
    if (choice.script != nullptr)
      prompt_ms += choice.script->prefill_ms_per_token * static_cast<double>(num_prompt_rows);
    for (; logit_row < batch.logit_rows.size() &&
           batch.logit_rows[logit_row] < window.first_row + window.num_rows;
         ++logit_row) {
      const int64_t position = window.start + batch.logit_rows[logit_row] - window.first_row;
      const int64_t token_index = position + 1 - sequence.num_prompt_tokens;
      float* row = logits.row(static_cast<int64_t>(logit_row));
      if (token_index < 0) {  // scored, not generated
        force(file_.end_id, row);
        continue;
      }
      delay_ms = std::max(delay_ms, say(choice, token_index, row, ctx, outcomes_[logit_row]));
    }
  }
  std::this_thread::sleep_until(begin +
                                std::chrono::duration<double, std::milli>(prompt_ms + delay_ms));
  return logits;
}

RowOutcome ScriptedModel::outcome(int64_t logit_row) const {
  return outcomes_[static_cast<size_t>(logit_row)];
}

}  // namespace invar::scripted
