// `invar bench`: tokens per second of one sequence, prompt and reply apart.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "commands.h"
#include "exit_codes.h"
#include "models_folder.h"
#include "options.h"
#include "reply.h"
#include "terminal.h"

namespace invar::cli {
namespace {

constexpr const char* kCommand = "bench";

struct BenchFlags {
  std::string model;
  int64_t prefill = 512, decode = 64, repeat = 3;
  bool json = false;
  EngineFlags engine;
};

// Ids without a pattern, other ones in each run, so that nothing can be found in a cache.
std::vector<int32_t> random_ids(int64_t count, int32_t vocab_size, uint64_t seed) {
  std::vector<int32_t> ids;
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    ids.push_back(static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocab_size)));
  }
  return ids;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

Json side_json(int64_t tokens, const std::vector<double>& rates) {
  Json all = Json::array();
  for (const double rate : rates) all.push_back(rate);
  Json json = Json::object();
  json.set("tokens", tokens);
  json.set("tokens_per_second", median(rates));
  json.set("runs", std::move(all));
  return json;
}

void print_side(const char* what, int64_t tokens, const std::vector<double>& rates) {
  const auto [low, high] = std::minmax_element(rates.begin(), rates.end());
  printf("%-8s %5lld tokens  %9.1f tokens/s  (median of %zu runs, %.1f to %.1f)\n", what,
         static_cast<long long>(tokens), median(rates), rates.size(), *low, *high);
}

int bench(const BenchFlags& flags) {
  Interrupts::start();
  EngineFlags engine_flags = flags.engine;
  engine_flags.context = flags.prefill + flags.decode;
  engine_flags.packed_cache_wait = true;  // nothing is written while we measure
  const auto begin = std::chrono::steady_clock::now();
  int code = kExitOk;
  const std::unique_ptr<Engine> engine = open_engine(kCommand, flags.model, engine_flags, 1, code);
  if (engine == nullptr) return code;
  const double load_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  const ModelDescription& model = engine->description();

  std::vector<double> prefill_rates, decode_rates;
  // Run 0 touches all memory for the first time and does not count.
  for (int64_t i = 0; i <= flags.repeat; ++i) {
    GenerationRequest request;
    request.prompt_ids = random_ids(flags.prefill, model.vocab_size, static_cast<uint64_t>(i));
    request.max_tokens = flags.decode;
    request.ignore_end = true;
    const Result<Reply> reply = make_reply(*engine, request, false);
    if (!reply) return fail(kCommand, reply.error());
    const GenerationResult& result = reply->result;
    if (reply->interrupted) return kExitInterrupted;
    if (result.finish_reason == FinishReason::kError)
      return fail(kCommand, result.error.message, kExitFailed);
    if (i == 0) continue;
    prefill_rates.push_back(prefill_tokens_per_second(result));
    decode_rates.push_back(decode_tokens_per_second(result));
  }
  struct rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const int64_t peak_bytes = int64_t{usage.ru_maxrss} * 1024;

  if (flags.json) {
    Json json = Json::object();
    json.set("version", version());
    json.set("model", model.path);
    json.set("model_sha", model.model_sha);
    json.set("quantization", model.quantization);
    json.set("backend", model.backend);
    json.set("isa", model.isa);
    json.set("arithmetic_id", model.arithmetic_id);
    json.set("threads", model.num_threads);
    json.set("load_ms", load_ms);
    json.set("peak_bytes", peak_bytes);
    json.set("prefill", side_json(flags.prefill, prefill_rates));
    json.set("decode", side_json(flags.decode, decode_rates));
    print(json.dump() + "\n");
    return kExitOk;
  }
  print(for_stdout(format("%s (%s, %s), %s %s, %d threads, arithmetic %s\n",
                          model_label(model.path).c_str(), model.family.c_str(),
                          model.quantization.c_str(), model.backend.c_str(), model.isa.c_str(),
                          model.num_threads, model.arithmetic_id.c_str())));
  print_side("prefill", flags.prefill, prefill_rates);
  print_side("decode", flags.decode, decode_rates);
  printf("loaded in %.2f s, peak memory %s (mapped file pages included)\n", load_ms / 1000,
         human_bytes(static_cast<uint64_t>(peak_bytes)).c_str());
  return kExitOk;
}

}  // namespace

std::function<int()> add_bench(FlagSet& flags) {
  auto options = std::make_shared<BenchFlags>();
  add_model(flags, options->model);
  flags.group("What is measured");
  flags.whole("--prefill", "N", {1, 1 << 20}, options->prefill, "Tokens of the prompt.", "512");
  flags.whole("--decode", "N", {2, 1 << 20}, options->decode, "Tokens of the reply after it.",
              "64");
  flags.whole("--repeat", "N", {1, 100}, options->repeat,
              "Runs that count; one before them does not.", "3");
  options->engine.add_backend(flags);
  flags.group("Output");
  flags.toggle("--json", options->json, "One JSON object, each run's figures in it.");
  flags.footer("Example:\n  invar bench model.gguf --threads 2");
  return [options] { return bench(*options); };
}

}  // namespace invar::cli
