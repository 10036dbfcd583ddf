#include "tuning.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/file.h"
#include "base/hash.h"
#include "cpu_name.h"
#include "environment.h"

namespace invar::cli {
namespace {

constexpr int kFormat = 1;
constexpr size_t kMaxFileBytes = 1 << 20, kMaxCrossovers = 256;
constexpr int64_t kMaxRows = 1 << 20;

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

// False: errno says why. A disk that is full writes a part first.
bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    text.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

// What a file's key has that ours has not: "threads 4, here 2"; "" where it says no key.
std::string key_difference(const std::string& path, const TuningKey& key) {
  const Result<std::string> text = read_file(path, kMaxFileBytes);
  if (!text) return {};
  const Result<Json> json = Json::parse(*text);
  const Json* stated = json ? json->find("key") : nullptr;
  if (stated == nullptr || !stated->is_object()) return {};
  const Json ours = key_json(key);
  std::string difference;
  for (const auto& [name, value] : ours.members()) {
    const Json* theirs = stated->find(name);
    if (theirs == nullptr || *theirs == value) continue;
    difference +=
        (difference.empty() ? "" : "; ") + name + " " + theirs->dump() + ", here " + value.dump();
  }
  return difference;
}

// Where there is a file of the model, but none that fits: which one, and why not; else "".
std::string other_file(const std::string& folder, const TuningKey& key) {
  std::vector<std::string> names;
  std::error_code fault;
  for (const auto& entry : std::filesystem::directory_iterator(folder, fault))
    if (std::string name = entry.path().filename().string();
        name.starts_with(key.model_sha + "-") && name.ends_with(".json"))
      names.push_back(std::move(name));
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name;
    if (const std::string difference = key_difference(path, key); !difference.empty())
      return "tuning file " + path + " is not used: it was measured with " + difference;
  }
  return {};
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
  return cache_folder("tuning");
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
  const bool written = write_all(fd, text) && ::fsync(fd) == 0;
  int why = errno;
  ::close(fd);
  if (written && ::rename(temporary.c_str(), path.c_str()) == 0) return {};
  if (written) why = errno;
  ::unlink(temporary.c_str());
  return io_error("%s: %s", path.c_str(), std::strerror(why));
}

Result<std::unique_ptr<Engine>> open_tuned_engine(const EngineOptions& options,
                                                  const WrapBackend& wrap, TuningNote* note) {
  Tunable* tunable = nullptr;
  INVAR_TRY(auto engine, open_engine_with(options, [&](std::unique_ptr<Backend> inner) {
              tunable = dynamic_cast<Tunable*>(inner.get());
              return wrap ? wrap(std::move(inner)) : std::move(inner);
            }));
  const std::string folder = tuning_folder();
  if (folder.empty() || tunable == nullptr) return engine;
  const TuningKey key = tuning_key(engine->description());
  const std::string path = tuning_path(folder, key);
  if (!file_exists(path)) {
    note->text = other_file(folder, key);
    return engine;
  }
  const Result<std::string> text = read_file(path, kMaxFileBytes);
  const Result<Tuning> tuning = text ? parse_tuning(*text, key) : Result<Tuning>(text.error());
  if (!tuning) {
    note->text = "tuning file " + path + " is not used: " + tuning.error().message;
    note->is_warning = true;
    return engine;
  }
  // No request is there yet, so no step runs.
  tunable->set_crossovers(tuning->crossovers);
  note->text = "tuned by " + path;
  note->used_path = path;
  return engine;
}

}  // namespace invar::cli
