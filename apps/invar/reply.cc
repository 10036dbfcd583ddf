#include "reply.h"

#include "base/hash.h"
#include "terminal.h"

namespace invar::cli {
namespace {

double rate(int64_t count, double milliseconds) {
  return count > 0 && milliseconds > 0 ? static_cast<double>(count) * 1000 / milliseconds : 0;
}

int64_t num_replied(const GenerationResult& result) {
  return static_cast<int64_t>(result.token_ids.size());
}

}  // namespace

Result<Reply> make_reply(Engine& engine, const GenerationRequest& request, bool show) {
  INVAR_TRY(const std::unique_ptr<TokenStream> stream, engine.submit(request));
  Reply reply;
  {
    const StopOnInterrupt stop([&] {
      reply.interrupted = true;
      stream->cancel();
    });
    bool line_open = false;
    while (const std::optional<TokenEvent> event = stream->next()) {
      if (!show || event->text.empty()) continue;
      print(for_stdout(event->text));
      line_open = event->text.back() != '\n';
    }
    if (line_open) print("\n");
  }
  reply.result = stream->result();
  return reply;
}

double prefill_tokens_per_second(const GenerationResult& result) {
  return rate(result.num_prompt_tokens - result.num_cached_tokens, result.prefill_ms);
}

double decode_tokens_per_second(const GenerationResult& result) {
  // The first token comes out of the prefill.
  return rate(num_replied(result) - 1, result.decode_ms);
}

std::string reply_stats(const GenerationResult& result, const SamplingParams& sampling) {
  std::string text = format("prompt %lld tokens", static_cast<long long>(result.num_prompt_tokens));
  if (result.num_cached_tokens > 0)
    text += format(" (%lld cached)", static_cast<long long>(result.num_cached_tokens));
  text += format(", %.1f tokens/s; reply %lld tokens, %.1f tokens/s; ended by %s\n",
                 prefill_tokens_per_second(result), static_cast<long long>(num_replied(result)),
                 decode_tokens_per_second(result), finish_reason_name(result.finish_reason));
  text += "arithmetic " + result.arithmetic_id;
  if (sampling.temperature > 0)
    text += format(", seed %llu", static_cast<unsigned long long>(sampling.seed));
  return text + ", token_sha " + result.token_sha + "\n";
}

Json reply_json(const Engine& engine, const GenerationRequest& request,
                const GenerationResult& result, double load_ms) {
  Json ids = Json::array();
  for (const int32_t id : result.token_ids) ids.push_back(int64_t{id});
  Json details = Json::object();
  details.set("cached_tokens", result.num_cached_tokens);
  Json usage = Json::object();
  usage.set("prompt_tokens", result.num_prompt_tokens);
  usage.set("completion_tokens", num_replied(result));
  usage.set("total_tokens", result.num_prompt_tokens + num_replied(result));
  usage.set("prompt_tokens_details", std::move(details));
  Json timings = Json::object();
  timings.set("load_ms", load_ms);
  timings.set("queue_ms", result.queue_ms);
  timings.set("prefill_ms", result.prefill_ms);
  timings.set("prefill_tokens_per_second", prefill_tokens_per_second(result));
  timings.set("decode_ms", result.decode_ms);
  timings.set("decode_tokens_per_second", decode_tokens_per_second(result));

  Json json = Json::object();
  json.set("model", engine.description().path);
  json.set("model_sha", engine.description().model_sha);
  json.set("packing", engine.description().packing);
  json.set("text", result.text);
  json.set("token_ids", std::move(ids));
  json.set("token_sha", result.token_sha);
  if (const Result<std::vector<int32_t>> prompt = engine.prompt_ids(request); prompt)
    json.set("prompt_sha", token_sha(*prompt));
  json.set("arithmetic_id", result.arithmetic_id);
  json.set("seed", static_cast<int64_t>(request.sampling.seed));
  json.set("finish_reason", finish_reason_name(result.finish_reason));
  json.set("stop_text", result.stop_text.empty() ? Json() : Json(result.stop_text));
  json.set("usage", std::move(usage));
  json.set("timings", std::move(timings));
  return json;
}

}  // namespace invar::cli
