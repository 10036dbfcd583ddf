#include "server/completions_route.h"

#include <ctime>

#include "base/hash.h"
#include "server/answer_parts.h"
#include "server/engine_call.h"
#include "server/http/json_body.h"
#include "server/http/request_id.h"
#include "server/http/sse.h"
#include "server/logprobs.h"
#include "server/request_registry.h"
#include "server/response_format.h"
#include "server/warning_log.h"

namespace invar::server {
namespace {

constexpr int64_t kMaxPrompts = 64;

struct CompletionRequest {
  GenerationFields generation;
  std::vector<std::vector<int32_t>> prompts;  // as ids
  std::vector<std::string> prompt_texts;      // for echo
  bool echo = false, tokens_as_ids = false, scores_prompts = false;
  int num_top_logprobs = -1;
};

bool read_ids(Fields& fields, const Json& list, int32_t vocab_size, std::vector<int32_t>& ids) {
  for (const Json& entry : list.items()) {
    if (!entry.is_int() || entry.as_int() < 0 || entry.as_int() >= vocab_size) {
      fields.fail("invalid_value", "prompt",
                  format("token ids must be integers from 0 to %d", vocab_size - 1));
      return false;
    }
    ids.push_back(static_cast<int32_t>(entry.as_int()));
  }
  return true;
}

// A string, strings, ids, or lists of ids.
void read_prompts(Fields& fields, const Engine& engine, CompletionRequest& out) {
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) return fields.fail("missing_field", "prompt", "field required");
  const auto add_text = [&](const std::string& text) {
    Result<std::vector<int32_t>> ids = engine.tokenize(text, true, true);
    if (!ids) return fields.fail(engine_api_error(ids.error()));
    out.prompts.push_back(*std::move(ids));
    out.prompt_texts.push_back(text);
  };
  const auto add_ids = [&](const Json& list) {
    std::vector<int32_t> ids;
    if (!read_ids(fields, list, engine.description().vocab_size, ids)) return;
    out.prompt_texts.push_back(engine.detokenize(ids, true));
    out.prompts.push_back(std::move(ids));
  };
  if (prompt->is_string()) {
    add_text(prompt->as_string());
  } else if (prompt->is_array() && !prompt->items().empty() && prompt->items()[0].is_int()) {
    add_ids(*prompt);
  } else if (prompt->is_array()) {
    if (static_cast<int64_t>(prompt->items().size()) > kMaxPrompts)
      return fields.fail("out_of_range", "prompt", "may hold at most 64 prompts");
    for (const Json& one : prompt->items()) {
      if (one.is_string())
        add_text(one.as_string());
      else if (one.is_array())
        add_ids(one);
      else
        return fields.fail("invalid_type", "prompt",
                           "must be a string, strings, token ids, or lists of token ids");
    }
  } else {
    return fields.fail("invalid_type", "prompt",
                       "must be a string or an array, got " + std::string(prompt->kind_name()));
  }
  if (fields.error()) return;
  if (out.prompts.empty()) return fields.fail("invalid_value", "prompt", "must not be empty");
  for (const std::vector<int32_t>& ids : out.prompts)
    if (ids.empty()) return fields.fail("invalid_value", "prompt", "must not be empty");
}

std::optional<ApiError> read_completion_request(const Json& body, const Engine& engine,
                                                const ApiOptions& options,
                                                const std::string& key_digest,
                                                CompletionRequest& out) {
  Fields fields(body);
  out.generation = read_generation_fields(fields, engine.description(), options, true, key_digest);
  read_prompts(fields, engine, out);
  out.echo = fields.boolean("echo", false);
  out.tokens_as_ids = fields.boolean("return_tokens_as_token_ids", false);
  if (fields.find("logprobs") != nullptr)
    out.num_top_logprobs = static_cast<int>(fields.integer("logprobs", 0, 20, 0));
  out.generation.request.top_logprobs = out.num_top_logprobs;
  // Logits of every position are wanted, which the cache does not have.
  out.scores_prompts = out.echo && out.num_top_logprobs >= 0;
  if (out.scores_prompts) out.generation.request.use_prefix_cache = false;
  for (const char* name : {"suffix", "tools"}) fields.not_built(name);
  for (const char* name : {"thinking_budget", "thinking_token_budget", "reasoning_budget"})
    fields.not_built(name, -1);
  if (out.generation.timings_per_token || out.generation.return_progress)
    fields.fail("unsupported_parameter",
                out.generation.return_progress ? "return_progress" : "timings_per_token",
                "is not supported on this route");
  if (out.generation.continuous_usage)
    fields.fail("unsupported_parameter", "stream_options.continuous_usage_stats",
                "is not supported on this route");
  ConstraintSpec constraint;
  read_response_format(fields, constraint);
  fields.finish(options.strict_fields, out.generation.warnings);
  if (fields.error()) return fields.error();
  if (static_cast<int64_t>(out.prompts.size()) * out.generation.num_choices > kMaxPrompts)
    fields.fail("out_of_range", "n", "times the number of prompts may be at most 64");
  for (const std::vector<int32_t>& ids : out.prompts) {
    fit_window(fields, out.generation, "prompt", static_cast<int64_t>(ids.size()),
               engine.description().context, options);
    if (fields.error()) return fields.error();
  }
  if (!has_format(constraint)) return std::nullopt;
  return add_constraint(engine, constraint, out.generation);
}

class CompletionAnswer {
 public:
  CompletionAnswer(Engine& engine, CompletionRequest request, const Request& http,
                   std::shared_ptr<ResponseWriter> writer)
      : engine_(engine),
        request_(std::move(request)),
        http_(http),
        writer_(std::move(writer)),
        id_(new_id("cmpl-")),
        created_(static_cast<int64_t>(std::time(nullptr))) {}

  void run(RequestRegistry* registry) {
    std::vector<GenerationRequest> requests;
    std::vector<int32_t> all_ids;
    for (const std::vector<int32_t>& ids : request_.prompts) {
      GenerationRequest one = request_.generation.request;
      one.prompt_ids = ids;
      all_ids.insert(all_ids.end(), ids.begin(), ids.end());
      for (GenerationRequest& choice : choices_of(one, request_.generation.num_choices))
        requests.push_back(std::move(choice));
    }
    prompt_sha_ = token_sha(all_ids);
    for (size_t i = 0; i < requests.size(); ++i)
      texts_.emplace_back(engine_, request_.num_top_logprobs, request_.tokens_as_ids);
    RequestFacts facts = request_facts(http_, id_, request_.generation);
    facts.num_prompt_tokens = static_cast<int64_t>(all_ids.size());
    RequestRegistry::Entry entry(registry, std::move(facts), writer_);
    if (request_.scores_prompts)
      if (const auto error = score_prompts(entry.stop())) return writer_->fail(*error);
    Result<std::unique_ptr<Choices>> started = Choices::start(engine_, requests);
    if (!started) return writer_->fail(engine_api_error(started.error()));
    const std::shared_ptr<Choices> choices = *std::move(started);
    entry.start(choices);
    if (request_.generation.stream)
      stream(*choices);
    else
      answer(*choices);
  }

 private:
  struct ChoiceText {
    ChoiceText(const Engine& engine, int num_top, bool as_ids)
        : logprobs(engine, num_top, as_ids) {}
    std::string text;
    std::vector<int32_t> token_ids;  // not yet sent
    size_t num_delivered = 0;        // bytes of text
    LogprobAligner aligner;
    CompletionLogprobs logprobs;
  };

  const std::string& prompt_text(int index) const {
    return request_.prompt_texts[static_cast<size_t>(index / request_.generation.num_choices)];
  }

  std::optional<ApiError> score_prompts(const std::stop_token& stop) {
    const size_t num_choices = static_cast<size_t>(request_.generation.num_choices);
    for (size_t i = 0; i < request_.prompts.size(); ++i) {
      const Result<std::vector<TokenEntry>> entries = score_prompt(
          engine_, request_.prompts[i], request_.prompt_texts[i], request_.num_top_logprobs, stop);
      if (!entries) return running_error(entries.error());
      for (size_t c = i * num_choices; c < (i + 1) * num_choices; ++c)
        for (const TokenEntry& entry : *entries) texts_[c].logprobs.add(entry);
    }
    return std::nullopt;
  }

  void take(int index, const TokenEvent& token) {
    ChoiceText& text = texts_[static_cast<size_t>(index)];
    text.token_ids.push_back(token.id);
    if (request_.num_top_logprobs < 0) return;
    text.aligner.push({token, engine_.token_bytes(token.id)});
    const size_t begin = std::exchange(text.num_delivered, text.num_delivered + token.text.size());
    for (const TokenEntry& entry : text.aligner.deliver(begin, text.num_delivered))
      text.logprobs.add(entry);
  }

  void add_totals(const Choices& choices) {
    for (int i = 0; i < choices.size(); ++i) {
      if (i % request_.generation.num_choices == 0)
        totals_.add_prompt(choices.result(i), request_.generation.request.use_prefix_cache);
      totals_.add_choice(choices.result(i));
    }
  }

  Json choice_json(int index, std::string text, Json logprobs, Json finish, Json stop) {
    Json choice = Json::object();
    choice.set("index", index);
    choice.set("text", std::move(text));
    choice.set("logprobs", std::move(logprobs));
    choice.set("finish_reason", std::move(finish));
    choice.set("stop_reason", std::move(stop));
    if (request_.generation.return_token_ids)
      choice.set("token_ids", ids_json(std::exchange(texts_[static_cast<size_t>(index)].token_ids,
                                                     std::vector<int32_t>())));
    return choice;
  }

  Json envelope(Json choices) const {
    Json json = Json::object();
    json.set("id", id_);
    json.set("object", "text_completion");
    json.set("created", created_);
    json.set("model", request_.generation.model);
    json.set("system_fingerprint", system_fingerprint(engine_.description()));
    json.set("choices", std::move(choices));
    return json;
  }

  // Of the answer, or of a stream's first chunk; with several prompts they could not be told apart.
  void add_prompt_ids(Json& json) {
    if (!request_.generation.return_token_ids || request_.prompts.size() != 1) return;
    json.set("prompt_token_ids", ids_json(request_.prompts[0]));
  }

  void add_last_fields(Json& json) const {
    json.set("timings", timings_json(totals_));
    json.set("invar", invar_json(totals_, engine_.description(), request_.generation, prompt_sha_));
  }

  void answer(Choices& choices) {
    while (const std::optional<Choices::Event> event = choices.next()) {
      if (!event->token || event->token->progress) continue;
      take(event->index, *event->token);
      texts_[static_cast<size_t>(event->index)].text += event->token->text;
    }
    Json list = Json::array();
    for (int i = 0; i < choices.size(); ++i) {
      if (const auto error = reply_error(choices.result(i))) return writer_->fail(*error);
      ChoiceText& text = texts_[static_cast<size_t>(i)];
      std::string full = request_.echo ? prompt_text(i) + text.text : std::move(text.text);
      Json logprobs = request_.num_top_logprobs >= 0 ? text.logprobs.take() : Json();
      Json choice = choice_json(i, std::move(full), std::move(logprobs),
                                finish_reason(choices.result(i)), stop_reason(choices.result(i)));
      list.push_back(std::move(choice));
    }
    add_totals(choices);
    Json json = envelope(std::move(list));
    json.set("usage", usage_json(totals_));
    add_prompt_ids(json);
    add_last_fields(json);
    writer_->send(json_response(json.dump()));
  }

  bool write_chunk(Json choice, bool is_last_json) {
    Json list = Json::array();
    list.push_back(std::move(choice));
    Json chunk = envelope(std::move(list));
    if (request_.generation.include_usage) chunk.set("usage", Json());
    if (!std::exchange(started_, true)) add_prompt_ids(chunk);
    if (is_last_json) add_last_fields(chunk);
    return writer_->write_event(sse_data(chunk.dump()));
  }

  void stream(Choices& choices) {
    if (!writer_->start_stream(
            sse_head(ApiStyle::kOpenAi, http_.request_id, ping_interval(request_.generation))))
      return;
    for (int i = 0; request_.echo && i < choices.size(); ++i) {
      CompletionLogprobs& logprobs = texts_[static_cast<size_t>(i)].logprobs;
      Json scores = request_.scores_prompts ? logprobs.take() : Json();
      if (!write_chunk(choice_json(i, prompt_text(i), std::move(scores), Json(), Json()), false))
        return;
    }
    int num_open = choices.size();
    while (const std::optional<Choices::Event> event = choices.next()) {
      const int i = event->index;
      if (event->token) {
        if (event->token->progress) continue;
        take(i, *event->token);
        ChoiceText& text = texts_[static_cast<size_t>(i)];
        if (event->token->text.empty()) continue;
        Json logprobs = text.logprobs.empty() ? Json() : text.logprobs.take();
        if (!write_chunk(choice_json(i, event->token->text, std::move(logprobs), Json(), Json()),
                         false))
          return;
        continue;
      }
      if (const auto error = reply_error(choices.result(i))) return writer_->fail(*error);
      if (--num_open == 0) add_totals(choices);
      if (!write_chunk(choice_json(i, "", Json(), finish_reason(choices.result(i)),
                                   stop_reason(choices.result(i))),
                       num_open == 0 && !request_.generation.include_usage))
        return;
    }
    if (request_.generation.include_usage) {
      Json chunk = envelope(Json::array());
      chunk.set("usage", usage_json(totals_));
      add_last_fields(chunk);
      if (!writer_->write_event(sse_data(chunk.dump()))) return;
    }
    if (writer_->write_event(std::string(kSseDone))) writer_->end_stream();
  }

  Engine& engine_;
  CompletionRequest request_;
  const Request& http_;
  const std::shared_ptr<ResponseWriter> writer_;
  const std::string id_;
  const int64_t created_;
  std::string prompt_sha_;
  std::vector<ChoiceText> texts_;
  Totals totals_;
  bool started_ = false;  // a chunk was sent
};

void respond(const EngineCall& call, std::shared_ptr<ResponseWriter> writer) {
  Json body;
  if (const auto error = parse_json_body(call.http.body, body)) return writer->fail(*error);
  CompletionRequest request;
  if (const auto error =
          read_completion_request(body, call.engine, call.options, call.http.key_digest, request))
    return writer->fail(*error);
  if (call.options.warning_log != nullptr)
    call.options.warning_log->note(request.generation.warnings);
  CompletionAnswer(call.engine, std::move(request), call.http, std::move(writer))
      .run(call.options.requests);
}

}  // namespace

void add_completions_routes(Router& router, const ServedModel& served, const ApiOptions& options) {
  add_engine_route(router, "/v1/completions", true, served, options, respond);
  for (const char* path : {"/completion", "/completions"}) router.add_hint(path, "/v1/completions");
}

}  // namespace invar::server
