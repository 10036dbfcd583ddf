#include "options.h"

#include <algorithm>
#include <random>

#include "base/log.h"
#include "exit_codes.h"
#include "models_folder.h"
#include "packed_cache_folder.h"
#include "progress.h"
#include "terminal.h"
#include "tuning.h"

namespace invar::cli {
namespace {

constexpr int64_t kMaxContext = int64_t{1} << 24;
// Seeds that we draw stay exact in every JSON reader, so that a reported one can be sent back.
constexpr int kSeedBits = 53;

// "ID=BIAS"; what is wrong with it, or "".
std::string parse_bias(const std::string& text, std::pair<int32_t, float>& bias) {
  const size_t equals = text.find('=');
  int64_t id = -1;
  double value = 0;
  if (equals == std::string::npos || !parse_number(std::string_view(text).substr(0, equals), id) ||
      id < 0 || id > INT32_MAX || !parse_number(std::string_view(text).substr(equals + 1), value) ||
      value < -100 || value > 100)
    return "'" + text + "' is not ID=BIAS with a token id and a bias from -100 to 100";
  bias = {static_cast<int32_t>(id), static_cast<float>(value)};
  return {};
}

}  // namespace

void add_model(FlagSet& flags, std::string& model, bool optional) {
  flags.argument("MODEL", model,
                 "A GGUF file, a Hugging Face or MLX folder, or a name that `invar list` shows.",
                 optional);
}

void EngineFlags::add_backend(FlagSet& flags, const std::vector<std::string>& more_backends) {
  flags.group(kWhereItRuns);
  std::vector<std::string> backends = backend_names();
  backends.insert(backends.end(), more_backends.begin(), more_backends.end());
  flags.choice("--backend", backends, backend, "reference is scalar and slow, the yardstick.",
               "cpu");
  flags.choice("--cpu-isa", {"portable", "avx2", "avxvnni", "avx512", "neon", "i8mm"}, cpu_isa,
               "Same bits on each. Default: the best that this CPU has.");
  flags.choice("--activations", {"8", "12"}, activation_bits,
               "Bits of activations that meet quantized weights; 12 is slower and closer.", "8");
  flags.whole(flags.is_for_launchers() ? "--threads,-t" : "--threads", "N", {1, 1024}, num_threads,
              "Threads, 1 to 1024; changes speed only. Default: the physical cores we may use.");
  if (std::find(backends.begin(), backends.end(), "cuda") != backends.end())
    flags.text("--cuda-switches", "WORDS", cuda_switches,
               "What to turn off, as no-graph,no-dependent-launch; changes speed only.");
  flags.text("--packed-cache", "DIR", packed_cache,
             "Keeps packed weights for quicker starts; off: nowhere. Default: $INVAR_PACKED_CACHE, "
             "else $XDG_CACHE_HOME/invar/packed, else ~/.cache/invar/packed.");
  flags.whole("--packed-cache-gb", "N", {0, 1'000'000}, packed_cache_gb,
              "Gigabytes it may take; the models unused for longest go first.", "32");
}

void EngineFlags::add_context(FlagSet& flags) {
  flags.group(kWhereItRuns);
  flags.whole("--context", "N", {1, kMaxContext}, context,
              "Positions a conversation may have. Default: the model's full window.");
  add_kv_bytes(flags);
}

void EngineFlags::add_kv_bytes(FlagSet& flags) {
  flags.group(kWhereItRuns);
  flags.whole("--kv-bytes", "N", {1, int64_t{1} << 50}, kv_bytes,
              "Memory for keys and values. Default: what the context needs, at most half of what "
              "weights and states leave free.");
  add_state_cache(flags);
}

void EngineFlags::add_state_cache(FlagSet& flags) {
  flags.group(kWhereItRuns);
  flags.whole("--state-cache-bytes", "N", {-1, int64_t{1} << 50}, state_cache_bytes,
              "Memory for states of recurrent layers (Qwen3.5, Nemotron-H) at places of earlier "
              "prompts, beside those of running sequences. -1: eight, within an eighth of what the "
              "weights leave; 0: none.",
              "-1");
}

void EngineFlags::add_chat_template(FlagSet& flags) {
  flags.text("--chat-template", "FILE", chat_template_file,
             "Jinja file that replaces the checkpoint's own chat template.");
}

EngineOptions EngineFlags::options(const std::string& model_path) const {
  EngineOptions options;
  options.model = model_path;
  options.backend = backend;
  options.cpu_isa = cpu_isa;
  options.activation_bits = activation_bits == "12" ? 12 : 8;
  options.switches = cuda_switches;
  options.num_threads = static_cast<int>(num_threads);
  options.context = context;
  options.kv_bytes = kv_bytes;
  options.state_cache_bytes = state_cache_bytes;
  options.packed_cache = packed_cache_folder(packed_cache);
  options.packed_cache_bytes = packed_cache_gb * 1'000'000'000;
  options.packed_cache_wait = packed_cache_wait;
  options.step_slowdown = step_slowdown;
  options.chat_template_file = chat_template_file;
  return options;
}

void SamplingFlags::add(FlagSet& flags) {
  flags.group("Sampling (default: the checkpoint's generation config, else greedy)");
  flags.real("--temperature", "T", {0, 2}, temperature, "0 (greedy) to 2.");
  flags.whole("--top-k", "K", {0, 1 << 22}, top_k, "Only the K most probable tokens; 0: all.");
  flags.real("--top-p", "P", {0, 1, true}, top_p,
             "Only the most probable tokens that sum to P; 1: all.");
  flags.real("--min-p", "P", {0, 1}, min_p,
             "Only tokens at least P times as probable as the best; 0: all.");
  flags.real("--repetition-penalty", "X", {0, 10, true}, repetition_penalty,
             "Divides the logits of tokens in prompt and reply; above 0 to 10, 1: off.");
  flags.real("--presence-penalty", "X", {-2, 2}, presence_penalty,
             "Taken from the logit of each token in the reply; -2 to 2, 0: off.");
  flags.real("--frequency-penalty", "X", {-2, 2}, frequency_penalty,
             "The same, times how often it stands there; -2 to 2, 0: off.");
  flags.texts("--logit-bias", "ID=BIAS", logit_bias,
              "Adds BIAS (-100 to 100) to the logit of token ID; may be repeated.",
              [](const std::string& text) {
                std::pair<int32_t, float> bias;
                return parse_bias(text, bias);
              });
  flags.whole("--seed", "N", {0, INT64_MAX}, seed,
              "Equal seeds give equal replies. Default: a random one, which is reported.");
}

SamplingParams SamplingFlags::params(const SamplingParams& defaults) const {
  SamplingParams params = defaults;
  const auto over = [](float& target, const std::optional<double>& value) {
    if (value) target = static_cast<float>(*value);
  };
  over(params.temperature, temperature);
  over(params.top_p, top_p);
  over(params.min_p, min_p);
  over(params.repetition_penalty, repetition_penalty);
  over(params.presence_penalty, presence_penalty);
  over(params.frequency_penalty, frequency_penalty);
  if (top_k) params.top_k = static_cast<int>(*top_k);
  for (const std::string& text : logit_bias) {
    parse_bias(text, params.logit_bias.emplace_back());
  }
  if (seed) {
    params.seed = static_cast<uint64_t>(*seed);
  } else if (params.temperature > 0) {
    std::random_device device;
    params.seed = ((uint64_t{device()} << 32) | device()) >> (64 - kSeedBits);
  }
  return params;
}

int open_exit_code(const Error& error, const std::string& path) {
  const bool flag =
      error.code == ErrorCode::kInvalidArgument &&
      (!error.message.starts_with(path) || error.message.starts_with(path + ": context "));
  return flag ? kExitUsage : exit_code(error.code);
}

std::unique_ptr<Engine> open_engine(std::string_view command, const std::string& model,
                                    const EngineFlags& flags, int max_sequences, int& code,
                                    const WrapBackend& wrap) {
  Result<std::string> path = resolve_model(model);
  if (!path) {
    code = fail(command, path.error());
    return nullptr;
  }
  EngineOptions options = flags.options(*path);
  options.max_sequences = max_sequences;
  Progress progress("loading " + model_label(*path), Progress::Unit::kBytes);
  options.progress = [&](uint64_t done, uint64_t total) { progress.update(done, total); };
  TuningNote note;
  Result<std::unique_ptr<Engine>> engine = open_tuned_engine(options, wrap, &note);
  progress.clear();
  // That one is used is no news: it changes no reply.
  if (!note.text.empty() && note.used_path.empty())
    print_error("invar " + std::string(command) + ": " + escape_control(note.text) + "\n");
  if (!engine) {
    code = fail(command, engine.error().message, open_exit_code(engine.error(), *path));
    return nullptr;
  }
  return *std::move(engine);
}

}  // namespace invar::cli
