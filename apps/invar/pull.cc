// `invar pull`: a model from the Hugging Face hub or a URL into the models folder. What to fetch is
// decided here and in hub.cc, how in download.cc.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/log.h"
#include "commands.h"
#include "download.h"
#include "exit_codes.h"
#include "hub.h"
#include "models_folder.h"
#include "terminal.h"
#include "weights/checkpoint.h"

namespace invar::cli {
namespace {

constexpr const char* kCommand = "pull";

struct PullFlags {
  std::string source;
  std::string file;
  std::string revision = "main";
  std::string name;
  bool force = false;
};

// Errors of a network or a server are answers, those of names and flags are usage.
int report(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
      return fail(kCommand, error.message, kExitUsage);
    case ErrorCode::kResourceExhausted:
      return fail(kCommand, error.message, kExitFailed);
    case ErrorCode::kNotFound:
    case ErrorCode::kCorrupt:
      return fail(kCommand, error.message, kExitModel);
    default:
      return fail(kCommand, error.message, kExitFailed);
  }
}

bool is_url(const std::string& text) { return text.find("://") != std::string::npos; }

bool is_plain_name(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.find_first_of("/\\") == std::string::npos &&
         name.size() <= 200 && escape_control(name) == name &&
         name.find_first_of("\t\n") == std::string::npos;
}

void report_file(const DownloadItem& item, const DownloadOutcome& outcome) {
  print(for_stdout(item.path) + (outcome.was_there ? "  (was there)" : "") + "\n");
  print("  sha256 " + outcome.sha256 +
        (outcome.checked ? ", as the hub says\n" : " (nothing to compare it with)\n"));
}

// The reader's own checks: ranges of all tensors inside the file, among others. What it merely
// cannot run is no fault of the download.
Result<void> check_structure(const std::string& path) {
  Result<std::unique_ptr<Checkpoint>> checkpoint = Checkpoint::open(path);
  if (!checkpoint && checkpoint.error().code == ErrorCode::kCorrupt) return checkpoint.error();
  if (!checkpoint) print_error("invar pull: note: " + checkpoint.error().message + "\n");
  return {};
}

Result<void> fetch_one(const DownloadItem& item) {
  INVAR_TRY(const DownloadOutcome outcome, download(item));
  if (model_label(item.path).ends_with(".gguf")) {
    Result<void> structure = check_structure(item.path);
    if (!structure) {
      // Without a checksum a file cut short looks complete until it is read.
      if (!outcome.was_there) ::unlink(item.path.c_str());
      return corrupt("%s; %s", structure.error().message.c_str(),
                     outcome.was_there ? "--force downloads it again" : "the download was deleted");
    }
  }
  report_file(item, outcome);
  return {};
}

// Several files become one folder, which gets its name when all are there and checked.
Result<std::string> fetch_folder(const Hub& hub, const HubRepo& repo, const Selection& selection,
                                 const std::string& folder, bool force) {
  if (file_exists(folder) && !force) {
    print(for_stdout(folder) + "  (was there; --force downloads it again)\n");
    return folder;
  }
  const std::string staging = folder + ".part";
  if (::mkdir(staging.c_str(), 0755) != 0 && errno != EEXIST)
    return io_error("%s: cannot make the folder: %s", staging.c_str(), std::strerror(errno));
  const int lock = ::open(staging.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock < 0) return io_error("%s: cannot open: %s", staging.c_str(), std::strerror(errno));
  INVAR_TRY_VOID(lock_file(lock, model_label(folder)));
  struct stat held, named;
  if (::fstat(lock, &held) != 0 || ::stat(staging.c_str(), &named) != 0 ||
      held.st_ino != named.st_ino) {
    ::close(lock);  // whoever held the lock has finished the folder
    return fetch_folder(hub, repo, selection, folder, force);
  }
  int index = 0;
  for (const HubFile& file : selection.files) {
    DownloadItem item;
    item.url = file_url(hub, repo, file.path);
    item.path = staging + "/" + model_label(file.path);
    item.label = format("[%d/%zu] ", ++index, selection.files.size()) + model_label(file.path);
    item.size = file.size;
    item.sha256 = file.sha256;
    item.credentials = hub.credentials;
    Result<DownloadOutcome> outcome = download(item);
    if (!outcome && outcome.error().code == ErrorCode::kInvalidArgument) {
      // A file of an earlier revision in our own staging folder: not the user's.
      item.force = true;
      outcome = download(item);
    }
    if (!outcome) return outcome.error();
    item.path = folder + "/" + model_label(file.path);
    report_file(item, *outcome);
  }
  std::error_code error;
  if (force) std::filesystem::remove_all(folder, error);
  if (::rename(staging.c_str(), folder.c_str()) != 0)
    return io_error("%s: cannot put in place: %s", folder.c_str(), std::strerror(errno));
  ::close(lock);
  INVAR_TRY_VOID(check_structure(folder));
  return folder;
}

Result<std::string> pull_url(const PullFlags& flags, const std::string& models) {
  INVAR_TRY(const std::string origin, url_origin(flags.source));
  std::string name = flags.name.empty() ? url_file_name(flags.source) : flags.name;
  if (!flags.name.empty() && !name.ends_with(".gguf")) name += ".gguf";
  if (!is_plain_name(name) || !name.ends_with(".gguf"))
    return invalid_argument(
        "%s does not end in the name of a .gguf file; --name gives it one, and OWNER/REPO takes a "
        "whole repository",
        flags.source.c_str());
  INVAR_TRY(const Hub hub, Hub::from_environment());
  DownloadItem item;
  item.url = flags.source;
  item.path = models + "/" + name;
  item.label = name;
  item.force = flags.force;
  item.credentials = hub.credentials;  // goes to the hub's origin only
  INVAR_TRY_VOID(fetch_one(item));
  return item.path;
}

Result<std::string> pull_repo(const PullFlags& flags, const std::string& models) {
  std::string id = flags.source, pattern = flags.file;
  if (const size_t colon = id.find(':'); colon != std::string::npos) {
    if (!pattern.empty())
      return invalid_argument("both %s and --file name a file; give one", flags.source.c_str());
    pattern = id.substr(colon + 1);
    id.resize(colon);
  }
  const size_t slash = id.find('/');
  if (slash == std::string::npos || id.find('/', slash + 1) != std::string::npos ||
      !is_plain_name(id.substr(0, slash)) || !is_plain_name(id.substr(slash + 1)))
    return invalid_argument("'%s' is neither OWNER/REPO[:FILE] nor a URL", flags.source.c_str());
  INVAR_TRY(const Hub hub, Hub::from_environment());
  INVAR_TRY(const HubRepo repo, fetch_repo(hub, id, flags.revision));
  INVAR_TRY(const Selection selection, select_files(repo, pattern));
  if (!selection.note.empty()) print_error("invar pull: " + selection.note + "\n");

  if (selection.as_folder) {
    const std::string folder = flags.name.empty() ? id.substr(slash + 1) : flags.name;
    return fetch_folder(hub, repo, selection, models + "/" + folder, flags.force);
  }
  const HubFile& file = selection.files[0];
  if (!file.path.ends_with(".gguf"))
    return invalid_argument(
        "%s is no model on its own; without a file, safetensors come with all they need",
        file.path.c_str());
  DownloadItem item;
  item.url = file_url(hub, repo, file.path);
  std::string name = flags.name.empty() ? model_label(file.path) : flags.name;
  if (!name.ends_with(".gguf")) name += ".gguf";
  item.path = models + "/" + name;
  item.label = name;
  item.size = file.size;
  item.sha256 = file.sha256;
  item.force = flags.force;
  item.credentials = hub.credentials;
  INVAR_TRY_VOID(fetch_one(item));
  return item.path;
}

int pull(const PullFlags& flags) {
  Interrupts::start();
  Interrupts::set_last_words("invar pull: interrupted; the same command goes on from here\n");
  if (!flags.name.empty() && !is_plain_name(flags.name))
    return fail(kCommand, "--name: '" + flags.name + "' is not a plain file name", kExitUsage);
  const std::string models = models_folder();
  std::error_code error;
  std::filesystem::create_directories(models, error);
  if (error)
    return fail(kCommand, models + ": cannot make the folder: " + error.message(), kExitFailed);
  Result<std::string> path =
      is_url(flags.source) ? pull_url(flags, models) : pull_repo(flags, models);
  if (!path) return report(path.error());
  std::string name = model_label(*path);
  if (name.ends_with(".gguf")) name.resize(name.size() - 5);
  print_error("Try: invar run " + name + "\n");
  return kExitOk;
}

}  // namespace

std::function<int()> add_pull(FlagSet& flags) {
  auto options = std::make_shared<PullFlags>();
  flags.argument("SOURCE", options->source,
                 "OWNER/REPO, OWNER/REPO:FILE (a name, a glob, or a part such as Q4_K_M), or the "
                 "https URL of a .gguf file.");
  flags.group("What");
  flags.text("--file,--include", "PATTERN", options->file,
             "Which file, as after the colon. Default: a GGUF (Q4_K_M before others), else the "
             "safetensors and what belongs to them.");
  flags.text("--revision", "REV", options->revision, "Branch, tag or commit.", "main");
  flags.group("Where");
  flags.text("--name", "NAME", options->name,
             "Its name in the models folder. Default: the file's, or REPO for several files.");
  flags.toggle("--force", options->force, "Replaces what has that name.");
  flags.footer(
      "HF_ENDPOINT names another hub (default https://huggingface.co); HF_TOKEN is sent to it and\n"
      "to no other host. Unfinished downloads end in .part; the same command goes on with them.\n\n"
      "Example:\n  invar pull bartowski/SmolLM2-135M-Instruct-GGUF:Q4_K_M");
  return [options] { return pull(*options); };
}

}  // namespace invar::cli
