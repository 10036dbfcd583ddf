#include "tuning.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/file.h"
#include "base/hash.h"

namespace invar::cli {
namespace {

constexpr int kFormat = 1;
constexpr size_t kMaxFileBytes = 1 << 20, kMaxCrossovers = 256;
constexpr int64_t kMaxRows = 1 << 20;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name") && !line.starts_with("CPU part")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

Json key_json(const TuningKey& key) {
  Json json = Json::object();
  json.set("cpu", key.cpu);
  json.set("cpus", key.num_cpus);
  json.set("threads", key.num_threads);
  json.set("backend", key.backend);
  json.set("isa", key.isa);
  json.set("arithmetic_id", key.arithmetic_id);
  json.set("model_sha", key.model_sha);
  json.set("version", key.version);
  return json;
}

Result<KernelCrossover> parse_crossover(const Json& json) {
  KernelCrossover crossover;
  INVAR_TRY(crossover.gated, json.required<bool>("gated"));
  INVAR_TRY(crossover.num_rows, json.required<int64_t>("rows"));
  INVAR_TRY(crossover.num_cols, json.required<int64_t>("cols"));
  INVAR_TRY(const int64_t min_rows, json.required<int64_t>("min_rows"));
  if (min_rows < 1 || min_rows > kMaxRows)
    return corrupt("min_rows is %ld, not 1 to %ld", long{min_rows}, long{kMaxRows});
  crossover.min_rows = static_cast<int>(min_rows);
  return crossover;
}

}  // namespace

TuningKey tuning_key(const ModelDescription& model) {
  TuningKey key;
  key.cpu = cpu_name();
  key.num_cpus = static_cast<int>(std::thread::hardware_concurrency());
  key.num_threads = model.num_threads;
  key.backend = model.backend;
  key.isa = model.isa;
  key.arithmetic_id = model.arithmetic_id;
  key.model_sha = model.model_sha;
  key.version = version();
  return key;
}

std::string tuning_folder() {
  const std::string chosen = environment("INVAR_TUNING");
  if (chosen == "off") return "";
  if (!chosen.empty()) return chosen;
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/invar/tuning";
  if (const std::string home = environment("HOME"); !home.empty())
    return home + "/.cache/invar/tuning";
  return "";
}

std::string tuning_path(const std::string& folder, const TuningKey& key) {
  const std::string text = key_json(key).dump();
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  return folder + "/" + key.model_sha + "-" + key.isa + "-" +
         sha256_hex(std::span(bytes, text.size())).substr(0, 12) + ".json";
}

Json tuning_json(const TuningKey& key, const Tuning& tuning) {
  Json list = Json::array();
  for (const KernelCrossover& crossover : tuning.crossovers) {
    Json json = Json::object();
    json.set("gated", crossover.gated);
    json.set("rows", crossover.num_rows);
    json.set("cols", crossover.num_cols);
    json.set("min_rows", crossover.min_rows);
    list.push_back(std::move(json));
  }
  Json json = Json::object();
  json.set("format", kFormat);
  json.set("key", key_json(key));
  json.set("crossovers", std::move(list));
  return json;
}

Result<Tuning> parse_tuning(const std::string& text, const TuningKey& key) {
  INVAR_TRY(const Json json, Json::parse(text));
  INVAR_TRY(const int64_t form, json.required<int64_t>("format"));
  if (form != kFormat) return unsupported("format %ld, this build reads %d", long{form}, kFormat);
  const Json* stated = json.find("key");
  if (stated == nullptr || !(*stated == key_json(key)))
    return invalid_argument("it was measured on another machine, model or build");
  const Json* list = json.find("crossovers");
  if (list == nullptr || !list->is_array() || list->items().size() > kMaxCrossovers)
    return corrupt("crossovers is no list of at most %zu", kMaxCrossovers);
  Tuning tuning;
  for (const Json& entry : list->items()) {
    INVAR_TRY(KernelCrossover crossover, parse_crossover(entry));
    tuning.crossovers.push_back(crossover);
  }
  return tuning;
}

Result<void> write_tuning(const std::string& folder, const TuningKey& key, const Json& file) {
  std::error_code fault;
  std::filesystem::create_directories(folder, fault);
  const std::string path = tuning_path(folder, key);
  const std::string temporary = path + format(".%d.new", static_cast<int>(::getpid()));
  const std::string text = file.dump(2) + "\n";
  const int fd =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return io_error("%s: %s", temporary.c_str(), std::strerror(errno));
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       ::fsync(fd) == 0;
  int why = errno;
  ::close(fd);
  if (written && ::rename(temporary.c_str(), path.c_str()) == 0) return {};
  if (written) why = errno;
  ::unlink(temporary.c_str());
  return io_error("%s: %s", path.c_str(), std::strerror(why));
}

Result<std::unique_ptr<Engine>> open_tuned_engine(const EngineOptions& options,
                                                  const WrapBackend& wrap, std::string* note) {
  Tunable* tunable = nullptr;
  INVAR_TRY(auto engine, open_engine_with(options, [&](std::unique_ptr<Backend> inner) {
              tunable = dynamic_cast<Tunable*>(inner.get());
              return wrap ? wrap(std::move(inner)) : std::move(inner);
            }));
  const std::string folder = tuning_folder();
  if (folder.empty() || tunable == nullptr) return engine;
  const TuningKey key = tuning_key(engine->description());
  const std::string path = tuning_path(folder, key);
  if (!file_exists(path)) return engine;
  const Result<std::string> text = read_file(path, kMaxFileBytes);
  const Result<Tuning> tuning = text ? parse_tuning(*text, key) : Result<Tuning>(text.error());
  if (!tuning) {
    *note = "tuning file " + path + " is not used: " + tuning.error().message;
    return engine;
  }
  // No request is there yet, so no step runs.
  tunable->set_crossovers(tuning->crossovers);
  *note = "tuned by " + path;
  return engine;
}

}  // namespace invar::cli
