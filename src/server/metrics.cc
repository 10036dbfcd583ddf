#include "server/metrics.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "server/metrics_text.h"

namespace invar::server {

// All that rows of the table read, taken at one moment.
struct MetricsSnapshot {
  explicit MetricsSnapshot(const Metrics& m);

  const Metrics& metrics;
  const RequestCounters& requests;
  const Engine* engine;  // null while loading
  EngineStats stats = {};
  std::map<std::pair<std::string, int>, int64_t> by_route;
  std::map<std::string, int64_t> by_code;
  double load_seconds, load_progress;
  int64_t num_stalls;
  const HttpServer* server;
  std::time_t started;

  const ModelDescription& model() const { return engine->description(); }
};

MetricsSnapshot::MetricsSnapshot(const Metrics& m)
    : metrics(m),
      requests(m.requests_.counters()),
      engine(m.model_.engine()),
      load_seconds(m.load_seconds_),
      load_progress(m.lifecycle_.progress()),
      num_stalls(m.num_stalls_),
      server(m.server_),
      started(m.started_) {
  if (engine != nullptr) stats = engine->stats();
  const std::lock_guard lock(m.mutex_);
  by_route = m.requests_by_route_;
  by_code = m.rejects_by_code_;
}

namespace {

using Samples = std::vector<MetricSample>;
using Snapshot = MetricsSnapshot;

constexpr MetricType kCounter = MetricType::kCounter, kGauge = MetricType::kGauge,
                     kHistogram = MetricType::kHistogram;
// vLLM's histograms of times between tokens begin with it, ours with smaller ones.
constexpr double kSmallestVllmEdge = .01;

double count(int64_t value) { return static_cast<double>(value); }

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

Samples labelled(const char* label, std::initializer_list<std::pair<const char*, double>> values) {
  Samples samples;
  for (const auto& [text, value] : values) samples.push_back({value, {{label, text}}});
  return samples;
}

double resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return -1;
  long long size = 0, resident = 0;
  const int found = std::fscanf(file, "%lld %lld", &size, &resident);
  std::fclose(file);
  return found == 2 ? count(resident) * count(::sysconf(_SC_PAGESIZE)) : -1;
}

double open_descriptors() {
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return -1;
  int64_t num = 0;
  while (const dirent* entry = ::readdir(folder))
    if (entry->d_name[0] != '.') ++num;
  ::closedir(folder);
  return count(num - 1);  // without the folder itself
}

Samples unless_negative(double value) { return value < 0 ? Samples() : Samples{value}; }

// When a row has values.
enum class When { kAlways, kLoaded };

struct Row {
  const char* own;  // without "invar_"
  MetricType type;
  const char* vllm;  // without "vllm:"; two with a space between; null: vLLM has none
  const char* llamacpp;
  When when;
  const char* help;
  Samples (*read)(const Snapshot&);
  Samples (*read_vllm)(const Snapshot&) = nullptr;  // where vLLM counts something else
};

// clang-format off
constexpr Row kRows[] = {
  // ---- Load
  {"requests_running", kGauge, "num_requests_running", "requests_processing", When::kLoaded,
   "Sequences in prefill or decode.",
   [](const Snapshot& s) { return Samples{count(s.stats.num_running)}; }},
  {"requests_waiting", kGauge, "num_requests_waiting", "requests_deferred", When::kLoaded,
   "Sequences that have not started, or were preempted.",
   [](const Snapshot& s) { return Samples{count(s.stats.num_waiting)}; }},
  {"queue_oldest_seconds", kGauge, nullptr, nullptr, When::kLoaded,
   "Age of the oldest sequence that waits.",
   [](const Snapshot& s) { return Samples{s.stats.oldest_waiting_seconds}; }},
  {"kv_cache_usage_ratio", kGauge, "kv_cache_usage_perc", nullptr, When::kLoaded,
   "Pages held by sequences, of all; pages that are only cached count as free. 0 to 1.",
   [](const Snapshot& s) {
     return Samples{ratio(s.stats.num_used_pages, s.stats.num_pages)};
   }},
  {"kv_blocks", kGauge, nullptr, nullptr, When::kLoaded,
   "Pages of keys and values.",
   [](const Snapshot& s) {
     const int used = s.stats.num_used_pages, cached = s.stats.num_cached_pages;
     return labelled("state", {{"used", used}, {"cached", cached},
                               {"free", s.stats.num_pages - used - cached}});
   }},

  // ---- Tokens
  {"prompt_tokens_total", kCounter, "prompt_tokens_total", "prompt_tokens_total", When::kLoaded,
   "Prompt tokens that were computed; those found in the prefix cache are not.",
   [](const Snapshot& s) { return Samples{count(s.stats.num_prompt_tokens)}; },
   [](const Snapshot& s) {
     return Samples{count(s.stats.num_prompt_tokens + s.stats.num_cached_prompt_tokens)};
   }},
  {"prompt_tokens_cached_total", kCounter, "prompt_tokens_cached_total", nullptr, When::kLoaded,
   "Prompt tokens that were found in the prefix cache.",
   [](const Snapshot& s) { return Samples{count(s.stats.num_cached_prompt_tokens)}; }},
  {"generation_tokens_total", kCounter, "generation_tokens_total", "tokens_predicted_total",
   When::kLoaded, "Sampled tokens.",
   [](const Snapshot& s) { return Samples{count(s.stats.num_generated_tokens)}; }},
  {"prompt_seconds_total", kCounter, nullptr, "prompt_seconds_total", When::kLoaded,
   "Time of steps that computed prompts; of mixed steps the share of their rows.",
   [](const Snapshot& s) { return Samples{s.stats.prefill_seconds}; }},
  {"generation_seconds_total", kCounter, nullptr, "tokens_predicted_seconds_total", When::kLoaded,
   "Time of steps that computed replies; of mixed steps the share of their rows.",
   [](const Snapshot& s) { return Samples{s.stats.decode_seconds}; }},
  {"prompt_tokens_per_second", kGauge, nullptr, "prompt_tokens_seconds", When::kLoaded,
   "Mean since the start, of the time spent on prompts.",
   [](const Snapshot& s) {
     return Samples{ratio(count(s.stats.num_prompt_tokens), s.stats.prefill_seconds)};
   }},
  {"generation_tokens_per_second", kGauge, nullptr, "predicted_tokens_seconds", When::kLoaded,
   "Mean since the start, of the time spent on replies.",
   [](const Snapshot& s) {
     return Samples{ratio(count(s.stats.num_generated_tokens), s.stats.decode_seconds)};
   }},
  {"context_tokens_max", kGauge, nullptr, "n_tokens_max", When::kLoaded,
   "Most tokens, prompt and reply, that a sequence had.",
   [](const Snapshot& s) { return Samples{count(s.stats.max_context)}; }},

  // ---- Prefix cache and preemption
  {"prefix_cache_queries_total", kCounter, "prefix_cache_queries_total", nullptr, When::kLoaded,
   "Prompt tokens that were looked up.",
   [](const Snapshot& s) { return Samples{count(s.stats.num_looked_up_tokens)}; }},
  {"prefix_cache_hits_total", kCounter, "prefix_cache_hits_total", nullptr, When::kLoaded,
   "Prompt tokens that were found.",
   [](const Snapshot& s) { return Samples{count(s.stats.num_cached_prompt_tokens)}; }},
  {"prefix_cache_bytes", kGauge, nullptr, nullptr, When::kLoaded,
   "Keys and values that later prompts can find, those in use included.",
   [](const Snapshot& s) {
     return Samples{count(s.stats.num_kept_pages) * count(s.model().page_positions) *
                    static_cast<double>(s.model().kv_bytes_per_position)};
   }},
  {"prefix_cache_evictions_total", kCounter, nullptr, nullptr, When::kLoaded,
   "Pages that gave way to others.",
   [](const Snapshot& s) { return Samples{count(s.stats.num_evictions)}; }},
  {"preemptions_total", kCounter, "num_preemptions_total", nullptr, When::kLoaded,
   "Sequences that gave their pages to older ones and started again.",
   [](const Snapshot& s) { return Samples{count(s.stats.num_preemptions)}; }},

  // ---- Requests
  {"requests_finished_total", kCounter, "request_success_total", nullptr, When::kAlways,
   "Choices by how they ended.",
   [](const Snapshot& s) {
     const RequestCounters& r = s.requests;
     return labelled("finished_reason",
                     {{"stop", count(r.ended_stop)}, {"length", count(r.ended_length)},
                      {"tool_calls", count(r.ended_tool_calls)}, {"abort", count(r.ended_abort)},
                      {"error", count(r.ended_error)}});
   },
   [](const Snapshot& s) {
     const RequestCounters& r = s.requests;
     return labelled("finished_reason", {{"stop", count(r.ended_stop + r.ended_tool_calls)},
                                         {"length", count(r.ended_length)},
                                         {"abort", count(r.ended_abort)}});
   }},
  {"time_to_first_token_seconds", kHistogram, "time_to_first_token_seconds", nullptr,
   When::kLoaded, "From acceptance to the first sampled token.",
   [](const Snapshot& s) { return Samples{s.stats.time_to_first_token}; }},
  {"inter_token_latency_seconds", kHistogram,
   "inter_token_latency_seconds time_per_output_token_seconds", nullptr, When::kLoaded,
   "Between two sampled tokens of a sequence.",
   [](const Snapshot& s) { return Samples{s.stats.time_between_tokens}; },
   [](const Snapshot& s) {
     return Samples{without_small_edges(s.stats.time_between_tokens, kSmallestVllmEdge)};
   }},
  {"request_time_per_output_token_seconds", kHistogram, "request_time_per_output_token_seconds",
   nullptr, When::kLoaded, "The same as a mean of each choice.",
   [](const Snapshot& s) { return Samples{s.stats.time_per_token}; },
   [](const Snapshot& s) {
     return Samples{without_small_edges(s.stats.time_per_token, kSmallestVllmEdge)};
   }},
  {"e2e_request_latency_seconds", kHistogram, "e2e_request_latency_seconds", nullptr,
   When::kLoaded, "From acceptance to the end of a choice.",
   [](const Snapshot& s) { return Samples{s.stats.total_time}; }},
  {"request_queue_time_seconds", kHistogram, "request_queue_time_seconds", nullptr,
   When::kLoaded, "From acceptance to the first step.",
   [](const Snapshot& s) { return Samples{s.stats.queue_time}; }},
  {"request_prefill_time_seconds", kHistogram, "request_prefill_time_seconds", nullptr,
   When::kLoaded, "From the first step to the first token.",
   [](const Snapshot& s) { return Samples{s.stats.prefill_time}; }},
  {"request_decode_time_seconds", kHistogram, "request_decode_time_seconds", nullptr,
   When::kLoaded, "From the first token to the end.",
   [](const Snapshot& s) { return Samples{s.stats.decode_time}; }},
  {"request_inference_time_seconds", kHistogram, "request_inference_time_seconds", nullptr,
   When::kLoaded, "From the first step to the end.",
   [](const Snapshot& s) { return Samples{s.stats.inference_time}; }},
  {"request_prompt_tokens", kHistogram, "request_prompt_tokens", nullptr, When::kLoaded,
   "Tokens of the prompts of choices that have ended.",
   [](const Snapshot& s) { return Samples{s.stats.prompt_tokens}; }},
  {"request_generation_tokens", kHistogram, "request_generation_tokens", nullptr, When::kLoaded,
   "Sampled tokens of choices that have ended.",
   [](const Snapshot& s) { return Samples{s.stats.generated_tokens}; }},
  {"request_params_max_tokens", kHistogram, "request_params_max_tokens", nullptr, When::kLoaded,
   "Most tokens that choices that have ended might have had.",
   [](const Snapshot& s) { return Samples{s.stats.max_tokens}; }},
  {"request_params_n", kHistogram, "request_params_n", nullptr, When::kAlways,
   "Choices of a request.",
   [](const Snapshot& s) { return Samples{s.requests.num_choices.data()}; }},

  // ---- Steps
  {"steps_total", kCounter, nullptr, "n_decode_total", When::kLoaded, "Steps of the engine.",
   [](const Snapshot& s) { return Samples{count(s.stats.num_steps)}; }},
  {"step_tokens", kHistogram, "iteration_tokens_total", nullptr, When::kLoaded,
   "Rows of a step.",
   [](const Snapshot& s) { return Samples{s.stats.step_tokens}; }},
  {"step_seconds", kHistogram, nullptr, nullptr, When::kLoaded,
   "Time of a step, by what it computed.",
   [](const Snapshot& s) {
     Samples samples;
     const char* const names[] = {"prefill", "decode", "mixed"};  // by StepKind
     for (size_t i = 0; i < std::size(names); ++i)
       samples.push_back({s.stats.step_seconds[i], {{"kind", names[i]}}});
     return samples;
   }},
  {"sequences_per_step", kGauge, nullptr, "n_busy_slots_per_decode", When::kLoaded,
   "Mean since the start.",
   [](const Snapshot& s) {
     return Samples{ratio(count(s.stats.num_windows), count(s.stats.num_steps))};
   }},
  {"grammar_compile_seconds", kHistogram, nullptr, nullptr, When::kLoaded,
   "Time to compile a schema or a set of tools.",
   [](const Snapshot& s) { return Samples{s.stats.constraint_seconds}; }},
  {"nan_logits_total", kCounter, nullptr, nullptr, When::kLoaded,
   "Choices that ended because the model gave something that is no number.",
   [](const Snapshot& s) { return Samples{count(s.stats.num_bad_logits)}; }},
  {"watchdog_stalls_total", kCounter, nullptr, nullptr, When::kAlways,
   "Times that the engine stood still with work to do.",
   [](const Snapshot& s) { return Samples{count(s.num_stalls)}; }},

  // ---- What serves
  {"cache_config_info", kGauge, "cache_config_info", nullptr, When::kLoaded,
   "How keys and values are kept.",
   [](const Snapshot& s) {
     const ModelDescription& m = s.model();
     return Samples{{1, {{"block_size", std::to_string(m.page_positions)},
                         {"num_gpu_blocks", std::to_string(s.stats.num_pages)},
                         {"cache_dtype", m.kv_type},
                         {"enable_prefix_caching", m.has_prefix_cache ? "True" : "False"}}}};
   }},
  {"build_info", kGauge, nullptr, nullptr, When::kLoaded, "What serves.",
   [](const Snapshot& s) {
     const ModelDescription& m = s.model();
     return Samples{{1, {{"version", version()}, {"backend", m.backend}, {"isa", m.isa},
                         {"arithmetic_id", m.arithmetic_id}}}};
   }},
  {"model_load_seconds", kGauge, nullptr, nullptr, When::kLoaded,
   "From the start of loading until ready.",
   [](const Snapshot& s) { return unless_negative(s.load_seconds); }},
  {"model_load_progress", kGauge, nullptr, nullptr, When::kAlways, "0 to 1.",
   [](const Snapshot& s) { return Samples{s.load_progress}; }},
  {"memory_bytes", kGauge, nullptr, nullptr, When::kLoaded,
   "Weights as packed; keys and values, and states of recurrent layers, as reserved.",
   [](const Snapshot& s) {
     const ModelDescription& m = s.model();
     Samples samples;
     for (const auto& [kind, bytes] :
          {std::pair("weights", m.weight_bytes), std::pair("kv", m.kv_bytes),
           std::pair("state", m.state_bytes)})
       if (bytes > 0) samples.push_back({static_cast<double>(bytes), {{"device", m.backend}, {"kind", kind}}});
     return samples;
   }},

  // ---- HTTP
  {"http_requests_total", kCounter, nullptr, nullptr, When::kAlways,
   "Requests by route and status; 499: the client left.",
   [](const Snapshot& s) {
     Samples samples;
     for (const auto& [key, value] : s.by_route)
       samples.push_back({count(value),
                          {{"route", key.first}, {"status", std::to_string(key.second)}}});
     return samples;
   }},
  {"http_rejects_total", kCounter, nullptr, nullptr, When::kAlways,
   "Requests that ended in an error, by its code.",
   [](const Snapshot& s) {
     Samples samples;
     for (const auto& [code, value] : s.by_code) samples.push_back({count(value), {{"code", code}}});
     return samples;
   }},
  {"http_connections", kGauge, nullptr, nullptr, When::kAlways, "Open connections.",
   [](const Snapshot& s) {
     return s.server == nullptr ? Samples() : Samples{count(s.server->stats().connections)};
   }},
  {"streams_open", kGauge, nullptr, nullptr, When::kAlways, "Open event streams.",
   [](const Snapshot& s) {
     return s.server == nullptr ? Samples() : Samples{count(s.server->stats().streams)};
   }},
  {"client_disconnections_total", kCounter, nullptr, nullptr, When::kAlways,
   "Clients that left before their answer, by what was going on.",
   [](const Snapshot& s) {
     const RequestCounters& r = s.requests;
     return labelled("phase", {{"queued", count(r.left_queued)}, {"prefill", count(r.left_prefill)},
                               {"decode", count(r.left_decode)}});
   }},
  {"cancelled_total", kCounter, nullptr, nullptr, When::kAlways,
   "Requests that were cancelled, by whom.",
   [](const Snapshot& s) {
     const RequestCounters& r = s.requests;
     return labelled("by", {{"client", count(r.cancelled_by_client)},
                            {"api", count(r.cancelled_by_api)},
                            {"slow_reader", count(r.cancelled_by_slow_reader)},
                            {"drain", count(r.cancelled_by_drain)}});
   }},

  // ---- The process, under the names that every exporter uses
  {"process_start_time_seconds", kGauge, nullptr, nullptr, When::kAlways,
   "Seconds since 1970.", [](const Snapshot& s) { return Samples{count(s.started)}; }},
  {"process_resident_memory_bytes", kGauge, nullptr, nullptr, When::kAlways,
   "Memory that is not swapped out.",
   [](const Snapshot&) { return unless_negative(resident_bytes()); }},
  {"process_open_fds", kGauge, nullptr, nullptr, When::kAlways, "Open file descriptors.",
   [](const Snapshot&) { return unless_negative(open_descriptors()); }},
};
// clang-format on

}  // namespace

Metrics::Metrics(const MetricsOptions& options, const ServedModel& model,
                 const RequestRegistry& requests, const Lifecycle& lifecycle)
    : options_(options),
      model_(model),
      requests_(requests),
      lifecycle_(lifecycle),
      started_(std::time(nullptr)) {}

void Metrics::count_request(const RequestRecord& record) {
  const std::lock_guard lock(mutex_);
  ++requests_by_route_[{record.route.empty() ? "none" : record.route, record.status}];
  if (!record.error_code.empty()) ++rejects_by_code_[record.error_code];
}

std::string Metrics::scrape() const {
  const Snapshot snapshot(*this);
  const MetricLabels model = {{"model_name", model_.names().front()}, {"engine", "0"}};
  MetricsText text;
  for (const Row& row : kRows) {
    if (row.when == When::kLoaded && snapshot.engine == nullptr) continue;
    const std::string own = row.own;
    const Samples samples = row.read(snapshot);
    if (own.starts_with("process_"))
      text.add(own, row.type, row.help, {}, samples);
    else
      text.add("invar_" + own, row.type, row.help, model, samples);
    if (options_.llamacpp && row.llamacpp != nullptr)
      text.add(std::string("llamacpp:") + row.llamacpp, row.type, row.help, {}, samples);
    if (!options_.vllm || row.vllm == nullptr) continue;
    const Samples theirs = row.read_vllm == nullptr ? samples : row.read_vllm(snapshot);
    const std::string names = row.vllm;
    for (size_t begin = 0; begin < names.size();) {
      const size_t end = std::min(names.find(' ', begin), names.size());
      text.add("vllm:" + names.substr(begin, end - begin), row.type, row.help, model, theirs);
      begin = end + 1;
    }
    if (options_.vllm_old && own == "kv_cache_usage_ratio")
      text.add("vllm:gpu_cache_usage_perc", row.type, row.help, model, theirs);
  }
  return text.take();
}

void add_metrics_route(Router& router, const Metrics& metrics) {
  Route route;
  route.path = "/metrics";
  route.open = metrics.options().open;
  route.inline_handler = true;
  route.handler = [&metrics](const Request&, std::shared_ptr<ResponseWriter> response) {
    Response answer;
    answer.content_type = "text/plain; version=0.0.4; charset=utf-8";
    answer.body = metrics.scrape();
    response->send(std::move(answer));
  };
  router.add(std::move(route));
}

}  // namespace invar::server
