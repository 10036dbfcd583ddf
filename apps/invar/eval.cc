// `invar eval`: teacher-forced perplexity on a text, and the distance to another model, another
// backend or saved logits at the same positions.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "commands.h"
#include "eval_metrics.h"
#include "exit_codes.h"
#include "logit_file.h"
#include "model_files.h"
#include "models_folder.h"
#include "options.h"
#include "progress.h"
#include "terminal.h"
#include "text_input.h"

namespace invar::cli {
namespace {

constexpr const char* kCommand = "eval";
constexpr int64_t kDefaultWindow = 512;
constexpr size_t kQueueBytes = 64u << 20;

struct EvalFlags {
  std::string model, text_file;
  int64_t num_tokens = 0, window = 0;
  std::string against, against_backend, save_logits, against_logits;
  bool json = false;
  EngineFlags engine;
};

using Windows = std::vector<std::vector<int32_t>>;
using Visit = std::function<bool(std::span<const float>, int32_t next_id)>;

// Rows of the reference, made by one thread and taken by another: both models go through the text
// in step, and nothing large has to be kept.
class RowQueue {
 public:
  explicit RowQueue(int64_t vocab_size)
      : capacity_(std::max<size_t>(2, kQueueBytes / (static_cast<size_t>(vocab_size) * 4))) {}

  bool push(std::span<const float> row) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || rows_.size() < capacity_; });
    if (closed_) return false;
    rows_.emplace_back(row.begin(), row.end());
    changed_.notify_all();
    return true;
  }

  bool pop(std::vector<float>& row) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !rows_.empty(); });
    if (rows_.empty()) return false;
    row = std::move(rows_.front());
    rows_.pop_front();
    changed_.notify_all();
    return true;
  }

  // Nothing more comes; what is queued can still be taken.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  const size_t capacity_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::vector<float>> rows_;
  bool closed_ = false;
};

// Windows of at most `window` tokens of the text, each begun with BOS where the vocabulary has one.
Result<Windows> make_windows(const Engine& engine, const std::string& text, int64_t num_tokens,
                             int64_t window) {
  INVAR_TRY(std::vector<int32_t> ids, engine.tokenize(text, false, false));
  INVAR_TRY(const std::vector<int32_t> begin, engine.tokenize("", false, true));
  if (num_tokens > 0 && static_cast<int64_t>(ids.size()) > num_tokens)
    ids.resize(static_cast<size_t>(num_tokens));
  Windows windows;
  for (size_t i = 0; i < ids.size(); i += static_cast<size_t>(window)) {
    const size_t end = std::min(ids.size(), i + static_cast<size_t>(window));
    std::vector<int32_t> part = begin;
    part.insert(part.end(), ids.begin() + static_cast<long>(i),
                ids.begin() + static_cast<long>(end));
    if (part.size() > 1) windows.push_back(std::move(part));
  }
  if (windows.empty()) return invalid_argument("the text has fewer than two tokens");
  return windows;
}

int64_t num_rows(const Windows& windows) {
  int64_t rows = 0;
  for (const auto& window : windows) rows += static_cast<int64_t>(window.size()) - 1;
  return rows;
}

std::string windows_sha(const Windows& windows) {
  std::vector<int32_t> all;
  for (const auto& window : windows) all.insert(all.end(), window.begin(), window.end());
  return token_sha(all);
}

// Every position that has a next token, in order.
Result<void> score_windows(Engine& engine, const Windows& windows, const Visit& visit) {
  bool going = true;
  for (const std::vector<int32_t>& window : windows) {
    INVAR_TRY_VOID(engine.score(window, [&](int64_t index, std::span<const float> logits) {
      const auto next = static_cast<size_t>(index) + 1;
      if (next >= window.size()) return true;
      going = visit(logits, window[next]);
      return going;
    }));
    if (!going) return {};
  }
  return {};
}

struct Reference {
  std::string model, arithmetic_id;
  std::unique_ptr<Engine> engine;
  std::optional<LogitReader> file;
  bool any() const { return engine != nullptr || file.has_value(); }
};

Result<EvalMetrics> measure(Engine& engine, Reference& reference, const Windows& windows,
                            LogitWriter* writer) {
  const int64_t total = num_rows(windows);
  const int64_t vocab_size = engine.description().vocab_size;
  Progress progress("evaluating " + model_label(engine.description().path),
                    Progress::Unit::kTokens);
  RowQueue queue(vocab_size);
  Result<void> reference_state;
  std::thread reference_thread;
  if (reference.engine != nullptr) {
    reference_thread = std::thread([&] {
      reference_state =
          score_windows(*reference.engine, windows,
                        [&](std::span<const float> row, int32_t) { return queue.push(row); });
      queue.close();
    });
  }
  EvalMetrics metrics;
  Result<void> problem;
  std::vector<float> row(static_cast<size_t>(vocab_size));
  const Result<void> state =
      score_windows(engine, windows, [&](std::span<const float> logits, int32_t next_id) {
        if (writer != nullptr) problem = writer->add(logits);
        if (reference.engine != nullptr && !queue.pop(row)) return false;
        if (reference.file && !reference.file->next(row))
          problem = io_error("the saved logits end too early");
        if (!problem) return false;
        if (reference.any()) {
          metrics.add(logits, row, next_id);
        } else {
          metrics.add(logits, next_id);
        }
        progress.update(static_cast<uint64_t>(metrics.num_positions()),
                        static_cast<uint64_t>(total));
        return true;
      });
  queue.close();
  if (reference_thread.joinable()) reference_thread.join();
  if (!state) return state.error();
  if (!problem) return problem.error();
  if (!reference_state) return with_context(reference.model, reference_state.error());
  return metrics;
}

// Opens what there is to compare with, and checks that it reads the same tokens.
int open_reference(const EvalFlags& flags, const EngineFlags& engine_flags, const Engine& engine,
                   const std::string& text, const Windows& windows, Reference& reference) {
  const ModelDescription& model = engine.description();
  if (!flags.against_logits.empty()) {
    Result<LogitReader> file = LogitReader::open(flags.against_logits);
    if (!file) return fail(kCommand, file.error());
    const LogitFileHeader& header = file->header();
    if (header.vocab_size != model.vocab_size || header.num_rows != num_rows(windows) ||
        header.ids_sha != windows_sha(windows))
      return fail(kCommand,
                  flags.against_logits +
                      ": was made from other tokens; use the same --text, --tokens, --window and "
                      "tokenizer as then",
                  kExitFailed);
    reference.model = header.model;
    reference.arithmetic_id = header.arithmetic_id;
    reference.file = *std::move(file);
    return kExitOk;
  }
  if (flags.against.empty() && flags.against_backend.empty()) return kExitOk;
  EngineFlags other = engine_flags;
  if (!flags.against_backend.empty()) other.backend = flags.against_backend;
  if (other.backend != "cpu") {
    other.cpu_isa.clear();
    other.activation_bits = EngineFlags().activation_bits;
  }
  if (other.backend != "cuda") other.cuda_switches.clear();
  int code = kExitOk;
  reference.engine =
      open_engine(kCommand, flags.against.empty() ? flags.model : flags.against, other, 1, code);
  if (reference.engine == nullptr) return code;
  reference.model = reference.engine->description().path;
  reference.arithmetic_id = reference.engine->description().arithmetic_id;
  const Result<Windows> theirs =
      make_windows(*reference.engine, text, flags.num_tokens, flags.window);
  if (!theirs || reference.engine->description().vocab_size != model.vocab_size ||
      *theirs != windows)
    return fail(kCommand,
                reference.model +
                    ": has another vocabulary; only models with equal tokens can be "
                    "compared",
                kExitFailed);
  return kExitOk;
}

void report(const EvalFlags& flags, const Engine& engine, const Reference& reference,
            const EvalMetrics& metrics, const Windows& windows, double seconds) {
  const ModelDescription& model = engine.description();
  const double rate = static_cast<double>(metrics.num_positions()) / std::max(seconds, 1e-9);
  if (flags.json) {
    Json json = Json::object();
    json.set("model", model.path);
    json.set("model_sha", model.model_sha);
    json.set("arithmetic_id", model.arithmetic_id);
    json.set("positions", metrics.num_positions());
    json.set("windows", static_cast<int64_t>(windows.size()));
    json.set("window", flags.window);
    json.set("perplexity", metrics.perplexity());
    json.set("mean_nll", metrics.mean_nll());
    json.set("seconds", seconds);
    json.set("positions_per_second", rate);
    if (reference.any()) {
      Json against = Json::object();
      against.set("model", reference.model);
      against.set("arithmetic_id", reference.arithmetic_id);
      against.set("perplexity", metrics.reference_perplexity());
      against.set("mean_kl", metrics.mean_kl());
      against.set("p99_kl", metrics.kl_percentile(0.99));
      against.set("max_kl", metrics.kl_percentile(1));
      against.set("top1_agreement", metrics.top1_agreement());
      json.set("against", std::move(against));
    }
    print(json.dump(2) + "\n");
    return;
  }
  const auto row = [](const char* label, const std::string& text) {
    print(format("%-16s", label) + for_stdout(text) + "\n");
  };
  row("model", model_label(model.path) + ", arithmetic " + model.arithmetic_id);
  row("positions", format("%lld in %zu windows of %lld tokens, %.1f per second",
                          static_cast<long long>(metrics.num_positions()), windows.size(),
                          static_cast<long long>(flags.window), rate));
  row("perplexity", format("%.4f", metrics.perplexity()));
  if (!reference.any()) return;
  row("against", model_label(reference.model) + ", arithmetic " + reference.arithmetic_id);
  row("its perplexity", format("%.4f", metrics.reference_perplexity()));
  row("mean KL", format("%.6g", metrics.mean_kl()));
  row("99 % of KL below", format(" %.6g", metrics.kl_percentile(0.99)));
  row("same top token", format("%.2f %%", 100 * metrics.top1_agreement()));
}

int eval(EvalFlags flags) {
  const int others = (flags.against.empty() ? 0 : 1) + (flags.against_backend.empty() ? 0 : 1) +
                     (flags.against_logits.empty() ? 0 : 1);
  if (others > 1)
    return fail(kCommand, "--against, --against-backend and --against-logits exclude each other",
                kExitUsage);
  if (flags.text_file.empty())
    return fail(kCommand, "--text FILE is missing; `--text -` reads standard input", kExitUsage);
  const Result<std::string> text =
      flags.text_file == "-" ? read_standard_input() : read_file(flags.text_file, kMaxTextBytes);
  if (!text) return fail(kCommand, text.error());
  Interrupts::start();

  // The window decides how much memory for keys and values is needed, so it comes before loading.
  int64_t longest = 0;
  {
    const Result<ModelFiles> files = open_model_files(flags.model);
    if (!files) return fail(kCommand, files.error());
    longest = files->info.max_position_embeddings - 1;  // one for BOS
  }
  if (flags.window > longest)
    return fail(kCommand,
                format("--window: the model takes at most %lld", static_cast<long long>(longest)),
                kExitUsage);
  if (flags.window == 0) flags.window = std::min(kDefaultWindow, longest);
  EngineFlags engine_flags = flags.engine;
  engine_flags.context = flags.window + 1;

  int code = kExitOk;
  const std::unique_ptr<Engine> engine = open_engine(kCommand, flags.model, engine_flags, 1, code);
  if (engine == nullptr) return code;
  const Result<Windows> windows = make_windows(*engine, *text, flags.num_tokens, flags.window);
  if (!windows) return fail(kCommand, flags.text_file + ": " + windows.error().message, kExitUsage);
  Reference reference;
  code = open_reference(flags, engine_flags, *engine, *text, *windows, reference);
  if (code != kExitOk) return code;

  std::optional<LogitWriter> writer;
  if (!flags.save_logits.empty()) {
    const ModelDescription& model = engine->description();
    LogitFileHeader header{model.vocab_size, num_rows(*windows), windows_sha(*windows),
                           model.path,       model.model_sha,    model.arithmetic_id};
    Result<LogitWriter> created = LogitWriter::create(flags.save_logits, header);
    if (!created) return fail(kCommand, created.error().message, kExitFailed);
    writer = *std::move(created);
  }
  const auto begin = std::chrono::steady_clock::now();
  const Result<EvalMetrics> metrics =
      measure(*engine, reference, *windows, writer ? &*writer : nullptr);
  if (!metrics) return fail(kCommand, metrics.error().message, kExitFailed);
  if (writer) {
    const Result<void> finished = writer->finish();
    if (!finished) return fail(kCommand, finished.error().message, kExitFailed);
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  report(flags, *engine, reference, *metrics, *windows, seconds);
  return kExitOk;
}

}  // namespace

std::function<int()> add_eval(FlagSet& flags) {
  auto options = std::make_shared<EvalFlags>();
  add_model(flags, options->model);
  flags.group("Text");
  flags.text("--text", "FILE", options->text_file, "The text; - is standard input.");
  flags.whole("--tokens", "N", {2, int64_t{1} << 32}, options->num_tokens,
              "At most the first N tokens. Default: all.");
  flags.whole("--window", "N", {2, int64_t{1} << 24}, options->window,
              "The text is cut into windows of N tokens that know nothing of each other; every "
              "token but a window's first (or BOS) is predicted. Default: 512.");
  flags.group("Compared with (at the same positions)");
  flags.text("--against", "OTHER", options->against,
             "Another model with the same tokens; KL divergence is from OTHER to MODEL.");
  flags.choice("--against-backend", backend_names(), options->against_backend,
               "The same model on another backend.");
  flags.text("--against-logits", "FILE", options->against_logits,
             "Logits that --save-logits wrote.");
  flags.text("--save-logits", "FILE", options->save_logits,
             "Writes all logits: 4 bytes times vocabulary times tokens.");
  options->engine.add_backend(flags);
  flags.group("Output");
  flags.toggle("--json", options->json, "One JSON object.");
  flags.footer(
      "Examples:\n"
      "  invar eval model.gguf --text book.txt --tokens 4096\n"
      "  invar eval model.gguf --text book.txt --tokens 1024 --against-backend reference\n"
      "  invar eval small-q4.gguf --text book.txt --against small-f16.gguf --json");
  return [options] { return eval(*options); };
}

}  // namespace invar::cli
