// `invar verify`: does a reply depend on anything but its request? Requests are asked alone, then
// in company under other settings, and every token is compared. The requests are
// verify_requests.h's, asking and comparing verify_rounds.h's, the report verify_report.h's.
#include <algorithm>
#include <chrono>

#include "commands.h"
#include "engine/memory_plan.h"
#include "environment.h"
#include "exit_codes.h"
#include "model_files.h"
#include "models_folder.h"
#include "progress.h"
#include "terminal.h"
#include "tuning.h"
#include "verify_report.h"
#include "words.h"

namespace invar::cli {
namespace {

constexpr const char* kCommand = "verify";
constexpr int64_t kContext = 2048;
constexpr int kQuickRequests = 24;
constexpr const char* kServerGroup = "A server";
constexpr const char* kModelGroup = kWhereItRuns;
using Use = VerifyRound::Use;

struct VerifyFlags {
  std::string target, api_key;
  std::optional<int64_t> requests;
  int64_t seed = 1;
  bool quick = false, json = false;
  EngineFlags engine;
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

bool is_url(const std::string& target) {
  return target.starts_with("http://") || target.starts_with("https://");
}

struct PlannedSetting {
  EngineSetting setting;
  std::vector<VerifyRound> rounds;
};

// What is tried with an engine. Small chunks make prompts slow: there a part of the requests must
// do, another part with every seed.
std::vector<PlannedSetting> engine_plan(const VerifyFlags& flags, int threads) {
  VerifyRandom random(static_cast<uint64_t>(flags.seed) + 77);
  const auto whole = [&](int64_t low, int64_t high) {
    return static_cast<int>(random.between(low, high));
  };
  if (flags.quick)
    return {{{threads, 512, 32, -1}, {{32, Use::kOn}}},
            {{1, whole(1, 24), 5, whole(0, 1)}, {{8, Use::kMixed, Use::kOff, true, 2}}}};
  return {
      {{threads, 512, 32, -1}, {{32, Use::kOn}, {8, Use::kOff}}},
      {{threads, 512, 4, -1}, {{1, Use::kOn}, {4, Use::kMixed}}},
      {{1, 64, 8, -1}, {{16, Use::kMixed}}},
      {{threads, 2048, 16, 1}, {{16, Use::kOn}}},
      {{1, 7, 5, 0}, {{8, Use::kOn, Use::kOff, true, 2}}},
      {{threads, 1, 32, -1}, {{32, Use::kMixed, Use::kOff, true, 8}}},
      {{whole(1, threads), whole(2, 300), whole(2, 32), whole(0, 8)},
       {{whole(2, 32), Use::kMixed, Use::kOff, true, 2}}},
  };
}

std::vector<VerifyRound> server_plan(const VerifyFlags& flags) {
  VerifyRandom random(static_cast<uint64_t>(flags.seed) + 77);
  const auto whole = [&](int64_t low, int64_t high) {
    return static_cast<int>(random.between(low, high));
  };
  if (flags.quick) return {{32, Use::kMixed, Use::kMixed}};
  return {{1, Use::kOn, Use::kMixed},
          {4, Use::kOff, Use::kOff},
          {16, Use::kOn, Use::kOn},
          {32, Use::kMixed, Use::kMixed},
          {whole(2, 32), Use::kMixed, Use::kMixed}};
}

// One line of progress for all replies of a phase.
class ReplyProgress {
 public:
  explicit ReplyProgress(const std::string& label) : progress_(label, Progress::Unit::kReplies) {}
  OnReply callback() {
    return [this](int done, int total) {
      progress_.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
    };
  }

 private:
  Progress progress_;
};

Result<void> ask_alone(VerifyTarget& target, VerifyReport& report) {
  ReplyProgress progress("alone");
  const auto begin = std::chrono::steady_clock::now();
  INVAR_TRY(report.alone, ask_alone(target, report.requests, progress.callback()));
  report.alone_seconds = seconds_since(begin);
  report.arithmetic_id = report.alone.front().arithmetic_id;
  if (report.model_sha.empty()) report.model_sha = report.alone.front().model_sha;
  return {};
}

// False: a difference was found.
bool run(VerifyTarget& target, const std::optional<EngineSetting>& setting,
         const VerifyRound& round, VerifyReport& report) {
  ReplyProgress progress(
      format("round %zu, %d in flight", report.rows.size() + 1, round.in_flight));
  VerifyRow row{setting, round, {}};
  row.result = run_round(
      target, report.requests, report.alone, round, report.seed * 1000 + report.rows.size(),
      report.alone_seconds / static_cast<double>(report.alone.size()), progress.callback());
  report.rows.push_back(std::move(row));
  return !report.rows.back().result.difference;
}

int finish(const VerifyFlags& flags, const VerifyReport& report) {
  print(flags.json ? verify_json(report).dump() + "\n" : verify_table(report));
  return report.difference() == nullptr ? kExitOk : kExitFailed;
}

void make_requests(const VerifyFlags& flags, const TextFacts& facts, VerifyReport& report) {
  report.seed = static_cast<uint64_t>(flags.seed);
  const int64_t count = flags.requests ? *flags.requests : flags.quick ? kQuickRequests : 200;
  report.requests = make_verify_requests(report.seed, static_cast<int>(count), facts);
}

// ---- A model

class Opener {
 public:
  Opener(const VerifyFlags& flags, std::string path, const ModelInfo& info)
      : flags_(flags),
        path_(std::move(path)),
        context_(std::min(kContext, info.max_position_embeddings)) {}

  // `is_served`: as a server runs, with a prefix cache and the machine's tuning file.
  Result<std::unique_ptr<EngineTarget>> open(const EngineSetting& setting, bool is_served) {
    EngineOptions options = flags_.engine.options(path_);
    options.num_threads = setting.num_threads;
    options.prefill_chunk = setting.chunk;
    options.max_sequences = setting.max_sequences;
    options.context = context_;
    options.prefix_cache_bytes = is_served ? -1 : 0;
    if (position_bytes_ > 0) {
      INVAR_TRY(options.kv_bytes, kv_bytes(setting));
    }
    Progress progress("loading " + model_label(path_), Progress::Unit::kBytes);
    options.progress = [&](uint64_t done, uint64_t total) { progress.update(done, total); };
    TuningNote note;
    INVAR_TRY(auto engine,
              is_served ? open_tuned_engine(options, {}, &note) : Engine::open(options));
    if (!note.used_path.empty()) tuning_path_ = note.used_path;
    position_bytes_ = static_cast<int64_t>(engine->description().kv_bytes_per_position);
    return std::make_unique<EngineTarget>(std::move(engine));
  }

  const std::string& tuning_path() const { return tuning_path_; }
  int exit_code_of(const Error& error) const { return open_exit_code(error, path_); }

 private:
  Result<int64_t> kv_bytes(const EngineSetting& setting) const {
    const int64_t page_bytes = position_bytes_ * kPagePositions;
    const int64_t one_context = (context_ + kPagePositions - 1) / kPagePositions;
    int64_t pages = one_context + setting.extra_pages;
    if (setting.extra_pages < 0) {
      INVAR_TRY(const std::unique_ptr<Backend> backend, open_backend(flags_.engine));
      const auto room = static_cast<int64_t>(free_memory(*backend).bytes / 3) / page_bytes;
      pages = std::max(one_context, std::min(one_context + 3 * setting.max_sequences, room));
    }
    return pages * page_bytes;
  }

  const VerifyFlags& flags_;
  const std::string path_;
  const int64_t context_;
  int64_t position_bytes_ = 0;  // known once it has been open
  std::string tuning_path_;     // that a round has used
};

int verify_model(const VerifyFlags& flags) {
  Interrupts::start();
  const Result<std::string> path = resolve_model(flags.target);
  if (!path) return fail(kCommand, path.error());
  const Result<ModelFiles> files = open_model_files(flags.target);
  if (!files) return fail(kCommand, files.error());
  Opener opener(flags, *path, files->info);
  const int threads = flags.engine.num_threads > 0 ? static_cast<int>(flags.engine.num_threads) : 2;

  VerifyReport report;
  report.target = flags.target;
  report.reference = EngineSetting();
  {
    auto target = opener.open(*report.reference, false);
    if (!target) return fail(kCommand, target.error().message, opener.exit_code_of(target.error()));
    Engine& engine = (*target)->engine();
    const ModelDescription& d = engine.description();
    report.about = d.family + " " + d.quantization + " on " + d.backend + " (" + d.isa + ")";
    report.model_sha = d.model_sha;
    const Result<TextFacts> facts = facts_of(engine);
    if (!facts) return fail(kCommand, facts.error().message, kExitUsage);
    if (!facts->has_chat) report.left_out.push_back("chat: the model has no template for it");
    if (!facts->has_schemas)
      report.left_out.push_back("schemas: the vocabulary cannot be constrained");
    make_requests(flags, *facts, report);
    if (const auto asked = ask_alone(**target, report); !asked)
      return fail(kCommand, asked.error().message, kExitFailed);
  }
  for (const PlannedSetting& planned : engine_plan(flags, threads)) {
    auto target = opener.open(planned.setting, true);
    if (!target) return fail(kCommand, target.error().message, opener.exit_code_of(target.error()));
    report.tuning_path = opener.tuning_path();
    for (const VerifyRound& round : planned.rounds) {
      const int64_t before = (*target)->num_preemptions();
      const bool equal = run(**target, planned.setting, round, report);
      report.rows.back().num_preemptions = (*target)->num_preemptions() - before;
      if (!equal) return finish(flags, report);
    }
  }
  return finish(flags, report);
}

// ---- A server

int verify_server(const VerifyFlags& flags) {
  HttpTarget target(flags.target, flags.api_key);
  Interrupts::start();
  VerifyReport report;
  report.target = flags.target;
  const Result<TextFacts> facts = target.connect();
  if (!facts) return fail(kCommand, facts.error().message, kExitFailed);
  report.about = target.model();
  report.left_out = target.left_out();
  make_requests(flags, *facts, report);
  if (const auto asked = ask_alone(target, report); !asked)
    return fail(kCommand, asked.error().message, kExitFailed);
  for (const VerifyRound& round : server_plan(flags))
    if (!run(target, std::nullopt, round, report)) break;
  return finish(flags, report);
}

}  // namespace

std::function<int()> add_verify(FlagSet& flags) {
  auto options = std::make_shared<VerifyFlags>();
  flags.argument("MODEL|URL", options->target,
                 "A model as for `invar run`, or the address of a running server.");
  flags.group("What is tried");
  flags.whole("--requests", "N", {1, 100'000}, options->requests,
              "Requests to compare. Default: 200, with --quick 24.");
  flags.whole("--seed", "N", {0, int64_t{1} << 48}, options->seed,
              "Other requests and arrivals with each seed.", "1");
  flags.toggle("--quick", options->quick, "Fewer requests and settings.");
  flags.group(kServerGroup);
  flags.text(
      "--api-key", "KEY", options->api_key,
      "Sent to the URL. Default: the first key in the variable INVAR_API_KEY, which `ps` does "
      "not show.");
  flags.group("Output");
  flags.toggle("--json", options->json, "One JSON object.");
  options->engine.add_backend(flags);
  flags.footer(
      "Requests are asked alone, then at random times in company, with other settings, with the\n"
      "prefix cache on and off, beside requests that are cancelled. Tokens, text and\n"
      "log-probabilities must not differ in a bit.\n"
      "Exit codes: 0 all equal; 1 a difference, or the server did not answer.\n\nExamples:\n"
      "  invar verify SmolLM2-135M-Instruct --quick\n"
      "  invar verify http://127.0.0.1:8080 --requests 50");
  return [options, &flags] {
    const bool is_server = is_url(options->target);
    if (const std::string unused = flags.first_given(is_server ? kModelGroup : kServerGroup);
        !unused.empty())
      return fail(kCommand,
                  unused + (is_server ? ": a server at a URL runs as it was started"
                                      : ": a model is opened here, no key is sent; give a URL"),
                  kExitUsage);
    const std::vector<std::string> keys = split(environment("INVAR_API_KEY"), ',');  // serve's list
    if (options->api_key.empty() && !keys.empty()) options->api_key = keys.front();
    return is_server ? verify_server(*options) : verify_model(*options);
  };
}

}  // namespace invar::cli
