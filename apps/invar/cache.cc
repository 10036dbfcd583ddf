// `invar cache`: what the packed cache holds, and clearing it. What is in a file and when it is
// used is cache/packed_cache.h's business.
#include <ctime>

#include "base/json.h"
#include "cache/cache_folder.h"
#include "commands.h"
#include "exit_codes.h"
#include "packed_cache_folder.h"
#include "terminal.h"

namespace invar::cli {
namespace {

constexpr const char* kCommand = "cache";

struct CacheFlags {
  std::string folder;
  bool clear = false;
  bool json = false;
};

std::string date(int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  ::localtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts);
  return text;
}

int cache(const CacheFlags& flags) {
  const std::string path = packed_cache_folder(flags.folder);
  std::vector<CacheFolder::Entry> entries;
  if (!path.empty()) {
    const auto folder = CacheFolder::open(path, false, kPackedSuffix);
    if (folder) {
      entries = folder->list();
      if (flags.clear) {
        for (const CacheFolder::Entry& entry : entries) folder->remove(entry.name);
        folder->remove_abandoned();
      }
    } else if (folder.error().code != ErrorCode::kNotFound) {
      return fail(kCommand, folder.error().message, kExitFailed);
    }
  }
  uint64_t num_bytes = 0;
  for (const CacheFolder::Entry& entry : entries) num_bytes += entry.num_bytes;
  if (flags.json) {
    Json files = Json::array();
    for (const CacheFolder::Entry& entry : entries) {
      Json json = Json::object();
      json.set("file", entry.name);
      json.set("model_sha", entry.name.substr(0, 8));
      json.set("bytes", static_cast<int64_t>(entry.num_bytes));
      json.set("used", entry.used_ns / 1'000'000'000);
      files.push_back(std::move(json));
    }
    Json json = Json::object();
    json.set("folder", path.empty() ? Json() : Json(path));
    json.set("bytes", static_cast<int64_t>(num_bytes));
    json.set("cleared", flags.clear);
    json.set("files", std::move(files));
    print(json.dump(2) + "\n");
    return kExitOk;
  }
  if (path.empty()) {
    print("the packed cache is off\n");
    return kExitOk;
  }
  print(for_stdout(format("%s: %s in %zu files%s\n", path.c_str(), human_bytes(num_bytes).c_str(),
                          entries.size(), flags.clear ? ", removed" : "")));
  if (flags.clear) return kExitOk;
  for (const CacheFolder::Entry& entry : entries)
    print(for_stdout(format("model_sha %s  %9s  last used %s\n", entry.name.substr(0, 8).c_str(),
                            human_bytes(entry.num_bytes).c_str(),
                            date(entry.used_ns / 1'000'000'000).c_str())));
  return kExitOk;
}

}  // namespace

std::function<int()> add_cache(FlagSet& flags) {
  auto options = std::make_shared<CacheFlags>();
  flags.group("Which");
  flags.text("--packed-cache", "DIR", options->folder,
             "Default: $INVAR_PACKED_CACHE, else $XDG_CACHE_HOME/invar/packed, else "
             "~/.cache/invar/packed.");
  flags.group("What");
  flags.toggle("--clear", options->clear, "Removes all of it; models are packed anew when opened.");
  flags.group("Output");
  flags.toggle("--json", options->json, "One JSON object: folder, bytes, cleared, files.");
  flags.footer("Example:\n  invar cache --clear");
  return [options] { return cache(*options); };
}

}  // namespace invar::cli
