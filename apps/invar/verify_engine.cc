// Requests of `invar verify` to an engine in this process.
#include <algorithm>

#include "engine/engine_parts.h"
#include "server/choices.h"
#include "verify_target.h"

namespace invar::cli {

Result<std::shared_ptr<const CompiledConstraint>> EngineTarget::constraint(
    const std::string& schema) {
  const std::lock_guard lock(mutex_);
  auto& known = constraints_[schema];
  if (known == nullptr) {
    ConstraintSpec spec;
    spec.json_schema = schema;
    INVAR_TRY(known, engine_->compile_constraint(spec));
  }
  return known;
}

int64_t EngineTarget::num_preemptions() const { return engine_gauges(*engine_).num_preemptions; }

Result<Outcome> EngineTarget::ask(const VerifyRequest& request, const AskOptions& options) {
  GenerationRequest native = request.native();
  native.use_prefix_cache = options.use_cache;
  if (!request.schema.empty()) {
    INVAR_TRY(native.constraint, constraint(request.schema));
  }
  INVAR_TRY(const std::unique_ptr<server::Choices> choices,
            server::Choices::start(*engine_, server::choices_of(native, request.num_choices)));
  Outcome outcome;
  outcome.choices.resize(static_cast<size_t>(request.num_choices));
  int num_events = 0;
  if (options.cut_after == 0) choices->cancel();
  while (const auto event = choices->next()) {
    if (!event->token) continue;
    ChoiceOutcome& choice = outcome.choices[static_cast<size_t>(event->index)];
    choice.ids.push_back(event->token->id);
    choice.text += event->token->text;
    if (event->token->logprob) choice.logprobs.push_back(double{event->token->logprob->logprob});
    if (++num_events == options.cut_after) choices->cancel();
  }
  for (int i = 0; i < choices->size(); ++i) {
    const GenerationResult& result = choices->result(i);
    if (result.finish_reason == FinishReason::kError) return result.error;
    ChoiceOutcome& choice = outcome.choices[static_cast<size_t>(i)];
    choice.finish_reason = finish_reason_name(result.finish_reason);
    if (result.finish_reason == FinishReason::kCancelled) {
      if (options.cut_after < 0) return cancelled("the engine ended it");
      outcome.was_cut = true;
    } else {
      choice.token_sha = result.token_sha;
    }
    outcome.arithmetic_id = result.arithmetic_id;
  }
  outcome.seed = request.sampling.seed;
  outcome.num_prompt_tokens = choices->result(0).num_prompt_tokens;
  outcome.num_cached_tokens = choices->result(0).num_cached_tokens;
  return outcome;
}

Result<TextFacts> facts_of(Engine& engine) {
  TextFacts facts;
  facts.context = engine.description().context;
  if (facts.context < kMinVerifyContext)
    return invalid_argument("the context has %ld positions, the requests need %ld",
                            long{facts.context}, long{kMinVerifyContext});
  INVAR_TRY(facts.ids, engine.tokenize(sample_text(), false, false));
  facts.tokens_per_word = static_cast<double>(facts.ids.size()) / sample_words();
  GenerationRequest chat;
  chat.messages = {{"user", "a"}, {"assistant", "b"}, {"user", "c"}};
  facts.has_chat = engine.apply_chat_template(chat).ok();
  ConstraintSpec spec;
  spec.json_schema = R"({"type":"integer"})";
  facts.has_schemas = engine.compile_constraint(spec).ok();
  return facts;
}

}  // namespace invar::cli
