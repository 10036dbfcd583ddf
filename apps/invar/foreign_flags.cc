#include "foreign_flags.h"

#include <algorithm>

#include "backend/backend.h"
#include "words.h"

namespace invar::cli {
namespace {

struct ForeignFlag {
  const char* names;
  const char* value;    // "": a toggle; "N": whole; "X": a number; "[a|b]": may be left out
  const char* neutral;  // values that ask for nothing, comma between
  const char* why;
};

constexpr const char* kNoGpu = "this build computes on the CPU";
constexpr const char* kBackendSays = "--backend says where it runs";  // in builds with a GPU
constexpr const char* kOurScheduler = "our threads place themselves";
constexpr const char* kOurCache = "our prefix cache has no such part";
constexpr const char* kCacheType = "keys and values are kept as f16; other types change replies";
constexpr const char* kRope = "the checkpoint's own positions are used; others change replies";
constexpr const char* kNoDrafter = "there is no drafter";

// Class A whose other values are not built: the neutral ones are all that is taken.
constexpr ForeignFlag kAsBuilt[] = {
    {"--cache-type-k,-ctk", "TYPE", "f16", kCacheType},
    {"--cache-type-v,-ctv", "TYPE", "f16", kCacheType},
    {"--rope-scaling", "TYPE", "", kRope},
    {"--rope-scale", "X", "", kRope},
    {"--rope-freq-base", "X", "0", kRope},
    {"--rope-freq-scale", "X", "0", kRope},
    {"--yarn-orig-ctx", "N", "0", kRope},
    {"--yarn-ext-factor", "X", "-1", kRope},
    {"--yarn-attn-factor", "X", "-1", kRope},
    {"--yarn-beta-slow", "X", "-1", kRope},
    {"--yarn-beta-fast", "X", "-1", kRope},
};

// Class A that speak of parts which this build or machine lacks: taken, and said.
constexpr ForeignFlag kNoPart[] = {
    {"--n-gpu-layers,--gpu-layers,-ngl", "N|all|auto", "0", kNoGpu},
    {"--split-mode,-sm", "none|layer|row|tensor", "none", kNoGpu},
    {"--tensor-split,-ts", "LIST", "", kNoGpu},
    {"--main-gpu,-mg", "N", "0", kNoGpu},
    {"--device,-dev", "LIST", "none,cpu", kNoGpu},
    {"--spec-draft-n-max", "N", "", kNoDrafter},
    {"--spec-draft-p-min", "X", "", kNoDrafter},
    {"--no-speculative", "", "true", kNoDrafter},
};

constexpr ForeignFlag kIgnored[] = {
    {"--threads-batch,-tb", "N", "", "prompts use the threads of --threads"},
    {"--flash-attn,-fa", "[on|off|auto]", "", "there is one attention, and it is exact"},
    {"--mmap,--no-mmap", "", "", "weights are mapped, or packed into memory of our own"},
    {"--warmup,--no-warmup", "", "", "readiness depends on a warm-up, which is always done"},
    {"--numa", "[distribute|isolate|numactl]", "", kOurScheduler},
    {"--props", "", "", "properties cannot be changed by a request"},
    {"--jinja", "", "", "templates are always interpreted"},
    {"--cache-reuse", "N", "0", kOurCache},
    {"--slot-prompt-similarity,-sps", "X", "", kOurCache},
    {"--cache-idle-slots,--no-cache-idle-slots", "", "", kOurCache},
    {"--ctx-checkpoints,--swa-checkpoints,-ctxcp", "N", "", kOurCache},
    {"--checkpoint-min-step,-cms", "N", "", kOurCache},
    {"--kv-unified,-kvu,--no-kv-unified,-no-kvu", "", "", kOurCache},
    {"--swa-full", "", "", kOurCache},
    {"--defrag-thold,-dt", "X", "", kOurCache},
    {"--cont-batching,-cb", "", "", "batching is always continuous"},
    {"--cpu-moe,-cmoe", "", "", kNoGpu},
    {"--n-cpu-moe,-ncmoe", "N", "", kNoGpu},
    {"--kv-offload,-kvo,--no-kv-offload,-nkvo", "", "", kNoGpu},
    {"--repack,--no-repack,-nr", "", "", "weights are packed as the kernels want them"},
    {"--no-host", "", "", kNoGpu},
    {"--op-offload,--no-op-offload", "", "", kNoGpu},
    {"--poll", "N", "", kOurScheduler},
    {"--poll-batch", "N", "", kOurScheduler},
    {"--prio", "N", "", kOurScheduler},
    {"--prio-batch", "N", "", kOurScheduler},
    {"--cpu-mask,-C", "MASK", "", kOurScheduler},
    {"--cpu-mask-batch,-Cb", "MASK", "", kOurScheduler},
    {"--cpu-range,-Cr", "LOW-HIGH", "", kOurScheduler},
    {"--cpu-range-batch,-Crb", "LOW-HIGH", "", kOurScheduler},
    {"--cpu-strict", "0|1", "", kOurScheduler},
    {"--cpu-strict-batch", "0|1", "", kOurScheduler},
    {"--perf,--no-perf", "", "", "each reply has its timings"},
    {"--offline", "", "", "the network is never used at start"},
    {"--cors-methods", "LIST", "", "those that the routes have are allowed"},
    {"--cors-headers", "LIST", "", "those that the routes read are allowed"},
};

constexpr const char* kPull = "the network is not used at start; `invar pull` the model first";
constexpr const char* kSampler = "this sampler is not built";
constexpr const char* kPerRequest = "it is a field of each request, not of the server";
constexpr const char* kNotBuilt = "it is not built";
constexpr const char* kNotOurs = "it is not a part of this server";
constexpr const char* kNoTls = "put a proxy that speaks TLS before the server";

constexpr ForeignFlag kRefused[] = {
    {"--no-jinja", "", "false", "templates are always interpreted"},
    {"--no-cont-batching,-nocb", "", "false", "batching is always continuous"},
    {"--context-shift,--no-context-shift", "", "false", "nothing is cut from a prompt silently"},
    {"--samplers", "LIST", "", "the order of samplers is fixed"},
    {"--sampler-seq,--sampling-seq", "WORD", "", "the order of samplers is fixed"},
    {"--mirostat", "N", "0", kSampler},
    {"--mirostat-lr", "X", "0.1", kSampler},
    {"--mirostat-ent", "X", "5", kSampler},
    {"--dynatemp-range", "X", "0", kSampler},
    {"--dynatemp-exp", "X", "1", kSampler},
    {"--typical,--typical-p", "X", "1", kSampler},
    {"--xtc-probability", "X", "0", kSampler},
    {"--xtc-threshold", "X", "0.1", kSampler},
    {"--dry-multiplier", "X", "0", kSampler},
    {"--dry-base", "X", "1.75", kSampler},
    {"--dry-allowed-length", "N", "2", kSampler},
    {"--dry-penalty-last-n", "N", "-1", kSampler},
    {"--dry-sequence-breaker", "WORD", "none", kSampler},
    {"--top-n-sigma,--top-nsigma", "X", "-1", kSampler},
    {"--adaptive-target", "X", "-1", kSampler},
    {"--adaptive-decay", "X", "0.9", kSampler},
    {"--grammar", "TEXT", "", kPerRequest},
    {"--grammar-file", "FILE", "", kPerRequest},
    {"--json-schema,-j", "TEXT", "", kPerRequest},
    {"--json-schema-file,-jf", "FILE", "", kPerRequest},
    {"--logit-bias,-l", "TOKEN+BIAS", "", kPerRequest},
    {"--override-kv", "LIST", "", kNotBuilt},
    {"--override-tensor,-ot", "LIST", "", kNotBuilt},
    {"--lora", "FILE", "", kNotBuilt},
    {"--lora-scaled", "LIST", "", kNotBuilt},
    {"--lora-init-without-apply", "", "false", kNotBuilt},
    {"--control-vector", "FILE", "", kNotBuilt},
    {"--control-vector-scaled", "LIST", "", kNotBuilt},
    {"--control-vector-layer-range", "RANGE", "", kNotBuilt},
    {"--mmproj,-mm", "FILE", "", "images are not built"},
    {"--mmproj-url,-mmu", "URL", "", "images are not built"},
    {"--mmproj-auto,--no-mmproj-auto,--no-mmproj", "", "false", "images are not built"},
    {"--mmproj-offload,--no-mmproj-offload", "", "false", "images are not built"},
    {"--image-min-tokens", "N", "", "images are not built"},
    {"--image-max-tokens", "N", "", "images are not built"},
    {"--embedding,--embeddings", "", "false", "embeddings are not built"},
    {"--rerank,--reranking", "", "false", "ranking is not built"},
    {"--pooling", "TYPE", "none", "embeddings are not built"},
    {"--hf-repo,-hf,-hfr", "REPO", "", kPull},
    {"--hf-file,-hff", "FILE", "", kPull},
    {"--model-url,-mu", "URL", "", kPull},
    {"--log-prompts-dir", "DIR", "", "prompts are never written down"},
    {"--slot-save-path", "DIR", "", kNotOurs},
    {"--media-path", "DIR", "", kNotOurs},
    {"--path", "DIR", "", kNotOurs},
    {"--tools", "LIST", "", kNotOurs},
    {"--agent,-ag,--no-agent,-no-ag", "", "false", kNotOurs},
    {"--mcp-servers-config", "FILE", "", kNotOurs},
    {"--mcp-servers-json", "TEXT", "", kNotOurs},
    {"--ui-mcp-proxy,--webui-mcp-proxy,--no-ui-mcp-proxy,--no-webui-mcp-proxy", "", "false",
     kNotOurs},
    {"--models-dir", "DIR", "", kNotOurs},
    {"--models-preset", "FILE", "", kNotOurs},
    {"--models-max", "N", "", kNotOurs},
    {"--models-autoload,--no-models-autoload", "", "false", kNotOurs},
    {"--rpc", "LIST", "", kNotOurs},
    {"--cors-credentials,--no-cors-credentials", "", "false",
     "credentials of other origins are never allowed; keys travel in headers"},
    {"--ssl-key-file", "FILE", "", kNoTls},
    {"--ssl-cert-file", "FILE", "", kNoTls},
    {"--reuse-port", "", "false", "a second server on the same port would answer in our name"},
};

// What is wrong with a value of that form, or "".
FlagSet::Check check_of(const FlagRecord& record) {
  const std::string type = record.type;
  if (type == "integer" || type == "number")
    return [type](const std::string& text) -> std::string {
      int64_t whole = 0;
      double real = 0;
      if (type == "integer" ? parse_number(text, whole) : parse_number(text, real)) return {};
      return "'" + text + "' is no " + (type == "integer" ? "whole number" : "number");
    };
  if (type != "choice") return {};
  const FlagSet::Check words = one_of(split(record.value, '|'));
  if (record.arity == FlagRecord::Arity::kOne) return words;
  return [words](const std::string& text) { return parse_switch(text) ? "" : words(text); };
}

FlagRecord record_of(const ForeignFlag& flag, FlagClass flag_class) {
  FlagRecord record;
  set_names(flag.names, record);
  record.flag_class = flag_class;
  record.help = flag.why;
  record.value = flag.value;
  const std::string value = flag.value;
  if (value.empty()) {
    record.arity = FlagRecord::Arity::kNone;
  } else if (value[0] == '[') {
    record.arity = FlagRecord::Arity::kOptional;
    record.value = value.substr(1, value.size() - 2);
  }
  record.type = value.empty()                          ? "boolean"
                : value == "N"                         ? "integer"
                : value == "X"                         ? "number"
                : value.find('|') != std::string::npos ? "choice"
                                                       : "string";
  record.neutral = split(flag.neutral, ',');
  // What is refused is refused with its own reason.
  if (flag_class != FlagClass::kRefused) record.check = check_of(record);
  return record;
}

// "all" and "auto" beside numbers.
std::string check_gpu_layers(const std::string& text) {
  int64_t number = 0;
  if (text == "all" || text == "auto" || (parse_number(text, number) && number >= -1)) return {};
  return "'" + text + "' is neither a number from -1 up nor all or auto";
}

// Where the build has a GPU, the values that would keep everything off it ask for something.
void set_without_effect(FlagRecord& record, const ForeignFlag& flag, bool has_gpu) {
  record.without_effect = flag.why;
  if (!has_gpu || flag.why != std::string_view(kNoGpu)) return;
  record.without_effect = record.help = kBackendSays;
  record.neutral.clear();
}

}  // namespace

void add_foreign_flags(FlagSet& flags) {
  const std::vector<std::string> backends = backend_names();
  const bool has_gpu = std::find(backends.begin(), backends.end(), "cuda") != backends.end();
  for (const ForeignFlag& flag : kAsBuilt) {
    FlagRecord record = record_of(flag, FlagClass::kActs);
    record.group = "As the checkpoint has it";
    const std::vector<std::string> neutral = record.neutral;
    record.shown_default = flag.neutral;
    record.check = [neutral, why = std::string(flag.why)](const std::string& text) -> std::string {
      return is_one_of(text, neutral) ? "" : "'" + text + "' is refused: " + why;
    };
    flags.foreign(std::move(record));
  }
  for (const ForeignFlag& flag : kNoPart) {
    FlagRecord record = record_of(flag, FlagClass::kActs);
    record.group = "Parts that are not built";
    set_without_effect(record, flag, has_gpu);
    if (record.names.front() == "--n-gpu-layers") record.check = check_gpu_layers;
    flags.foreign(std::move(record));
  }
  for (const ForeignFlag& flag : kIgnored) {
    FlagRecord record = record_of(flag, FlagClass::kIgnored);
    set_without_effect(record, flag, has_gpu);
    flags.foreign(std::move(record));
  }
  for (const ForeignFlag& flag : kRefused) flags.foreign(record_of(flag, FlagClass::kRefused));
}

}  // namespace invar::cli
