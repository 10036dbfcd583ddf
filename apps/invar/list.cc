// `invar list`: the models in the models folder.
#include <algorithm>
#include <ctime>

#include "base/json.h"
#include "commands.h"
#include "exit_codes.h"
#include "models_folder.h"
#include "terminal.h"

namespace invar::cli {
namespace {

struct ListFlags {
  bool json = false;
  bool names = false;
};

std::string date(int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  ::localtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts);
  return text;
}

int list(const ListFlags& flags) {
  const std::vector<ListedModel> models = list_models();
  if (flags.json) {
    Json array = Json::array();
    for (const ListedModel& model : models) {
      Json entry = Json::object();
      entry.set("name", model.name);
      entry.set("path", model.path);
      entry.set("format", model.format);
      entry.set("bytes", static_cast<int64_t>(model.num_bytes));
      entry.set("modified", model.modified);
      array.push_back(std::move(entry));
    }
    print(array.dump(2) + "\n");
    return kExitOk;
  }
  if (flags.names) {
    for (const ListedModel& model : models) print(for_stdout(model.name) + "\n");
    return kExitOk;
  }
  if (models.empty()) {
    print_error("invar list: no models in " + models_folder() +
                "; `invar pull OWNER/REPO` downloads one\n");
    return kExitOk;
  }
  size_t width = 4;
  for (const ListedModel& model : models) width = std::max(width, model.name.size());
  printf("%-*s  %-11s  %9s  %s\n", static_cast<int>(width), "NAME", "FORMAT", "SIZE", "MODIFIED");
  for (const ListedModel& model : models)
    printf("%-*s  %-11s  %9s  %s\n", static_cast<int>(width), for_stdout(model.name).c_str(),
           model.format.c_str(), human_bytes(model.num_bytes).c_str(),
           date(model.modified).c_str());
  return kExitOk;
}

}  // namespace

std::function<int()> add_list(FlagSet& flags) {
  auto list_flags = std::make_shared<ListFlags>();
  flags.group("Output");
  flags.toggle("--json", list_flags->json, "One JSON array: name, path, format, bytes, modified.");
  flags.toggle("--names", list_flags->names, "Names only, one a line.");
  flags.footer("Example:\n  invar list");
  return [list_flags] { return list(*list_flags); };
}

}  // namespace invar::cli
