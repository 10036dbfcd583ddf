// `invar plan`: whether a model fits into memory with a context, and which context would. Reads
// headers only; the arithmetic of the answer is the engine's own (engine/memory_plan.h).
#include <algorithm>

#include "commands.h"
#include "engine/memory_plan.h"
#include "exit_codes.h"
#include "model_files.h"
#include "models_folder.h"
#include "terminal.h"

namespace invar::cli {
namespace {

constexpr const char* kCommand = "plan";
// Rows of a step, and how many hidden-size fp32 vectors a row holds at once: x, normed x, q, k, v,
// attention, gate and up of about four hidden sizes. An estimate, said to be one.
constexpr uint64_t kStepRows = 512;
constexpr uint64_t kVectorsPerRow = 14;

struct PlanFlags {
  std::string model;
  int64_t context = 0;
  int64_t num_sequences = 1;
  bool json = false;
  EngineFlags engine;
};

struct Plan {
  int64_t context = 0, largest_context = 0;
  uint64_t weights = 0, kv = 0, states = 0, workspace = 0, free_bytes = 0;
  int num_snapshots = 0;
  std::string limited_by;
  bool fits = false;
  uint64_t total() const { return weights + kv + states + workspace; }
};

Result<Plan> make_plan(const PlanFlags& flags, const std::string& path) {
  INVAR_TRY(const std::unique_ptr<Backend> backend, open_backend(flags.engine));
  INVAR_TRY(const ModelFiles files, open_model_files(path));
  const ModelInfo& info = files.info;
  if (flags.context > info.max_position_embeddings)
    return invalid_argument("--context %lld is more than the model's %lld positions",
                            static_cast<long long>(flags.context),
                            static_cast<long long>(info.max_position_embeddings));
  const auto hidden = static_cast<uint64_t>(info.hidden_size);
  const auto vocab = static_cast<uint64_t>(info.vocab_size);
  const auto sequences = static_cast<uint64_t>(flags.num_sequences);
  const uint64_t page_bytes = backend->kv_page_bytes(info.kv_layers);
  const auto pages = [](int64_t positions) {
    return (static_cast<uint64_t>(positions) + kPagePositions - 1) / kPagePositions;
  };
  Plan plan;
  const FreeMemory memory = free_memory(*backend);
  plan.free_bytes = memory.bytes;
  plan.limited_by = memory.limited_by;
  plan.context = flags.context > 0 ? flags.context : info.max_position_embeddings;
  plan.weights = info.packed_bytes;
  plan.kv = pages(plan.context) * page_bytes * sequences;
  INVAR_TRY(const StatePlan states,
            plan_states({.slot_bytes = state_slot_bytes(*backend, info.recurrent_layers),
                         .max_sequences = static_cast<int>(flags.num_sequences),
                         .cache_bytes = flags.engine.state_cache_bytes,
                         .page_bytes = page_bytes,
                         .weight_bytes = plan.weights,
                         .free_bytes = plan.free_bytes}));
  plan.states = states.bytes;
  plan.num_snapshots = states.num_snapshots;
  plan.workspace = kStepRows * hidden * kVectorsPerRow * 4 + sequences * vocab * 4;

  // `invar run` leaves half of what the weights leave to everything else on the machine.
  MemoryQuestion question;
  question.max_positions = info.max_position_embeddings;
  question.page_bytes = page_bytes * sequences;
  question.weight_bytes = plan.weights + plan.workspace;
  question.state_bytes = plan.states;
  question.free_bytes = plan.free_bytes;
  plan.largest_context = largest_context(question);
  plan.fits = plan.context <= plan.largest_context;
  return plan;
}

Json plan_json(const PlanFlags& flags, const Plan& plan) {
  const auto count = [](uint64_t value) {
    return static_cast<int64_t>(std::min<uint64_t>(value, INT64_MAX));
  };
  Json json = Json::object();
  json.set("model", flags.model);
  json.set("fits", plan.fits);
  json.set("context", plan.context);
  json.set("sequences", flags.num_sequences);
  json.set("largest_context", plan.largest_context);
  json.set("weight_bytes", count(plan.weights));
  json.set("kv_bytes", count(plan.kv));
  json.set("state_bytes", count(plan.states));
  json.set("workspace_bytes", count(plan.workspace));
  json.set("total_bytes", count(plan.total()));
  json.set("free_bytes", count(plan.free_bytes));
  json.set("limited_by", plan.limited_by);
  return json;
}

void print_plan(const PlanFlags& flags, const Plan& plan) {
  const auto row = [](const char* label, uint64_t bytes, const std::string& note) {
    printf("%-12s %10s  %s\n", label, readable_bytes(bytes).c_str(), for_stdout(note).c_str());
  };
  row("weights", plan.weights, "");
  row("KV cache", plan.kv,
      format("%lld positions for %lld %s", static_cast<long long>(plan.context),
             static_cast<long long>(flags.num_sequences),
             flags.num_sequences == 1 ? "sequence" : "sequences"));
  if (plan.states > 0)
    row("states", plan.states,
        format("of recurrent layers: %lld running, %d kept for later prompts",
               static_cast<long long>(flags.num_sequences), plan.num_snapshots));
  row("workspace", plan.workspace, "estimated");
  row("together", plan.total(), "");
  row("free", plan.free_bytes, plan.limited_by);
  if (plan.fits) {
    printf("fits; the largest context that fits is %lld\n",
           static_cast<long long>(plan.largest_context));
  } else if (plan.largest_context > 0) {
    printf("does not fit; --context %lld does (half of what weights and states leave stays free)\n",
           static_cast<long long>(plan.largest_context));
  } else {
    print("does not fit with any context; use a smaller or more quantized model\n");
  }
}

int plan(const PlanFlags& flags) {
  const Result<std::string> path = resolve_model(flags.model);
  if (!path) return fail(kCommand, path.error());
  const Result<Plan> plan = make_plan(flags, *path);
  if (!plan) return fail(kCommand, plan.error().message, open_exit_code(plan.error(), *path));
  if (flags.json) {
    print(plan_json(flags, *plan).dump(2) + "\n");
  } else {
    print_plan(flags, *plan);
  }
  return plan->fits ? kExitOk : kExitFailed;
}

}  // namespace

std::function<int()> add_plan(FlagSet& flags) {
  auto options = std::make_shared<PlanFlags>();
  add_model(flags, options->model);
  flags.group("What is asked");
  flags.whole("--context", "N", {1, int64_t{1} << 24}, options->context,
              "Positions of one sequence. Default: the model's full window.");
  flags.whole("--sequences", "K", {1, 1024}, options->num_sequences,
              "Sequences with a context of their own.", "1");
  options->engine.add_backend(flags);
  options->engine.add_state_cache(flags);
  flags.group("Output");
  flags.toggle("--json", options->json, "One JSON object.");
  flags.footer(
      "Exit code 0: it fits; 1: it does not.\n\nExample:\n"
      "  invar plan model.gguf --context 32768 --sequences 2");
  return [options] { return plan(*options); };
}

}  // namespace invar::cli
