#include "models_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "environment.h"
#include "flags.h"

namespace invar::cli {
namespace fs = std::filesystem;
namespace {

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// "x-00002-of-00003.gguf": base "x", part 2. part 0: no split file.
struct SplitName {
  std::string base;
  int part = 0;
};
SplitName split_name(const std::string& stem) {
  // -NNNNN-of-NNNNN is 15 characters.
  constexpr size_t kTail = 15;
  if (stem.size() <= kTail) return {stem, 0};
  const std::string tail = stem.substr(stem.size() - kTail);
  const auto digits = [&](size_t at) {
    return std::all_of(tail.begin() + static_cast<long>(at),
                       tail.begin() + static_cast<long>(at) + 5,
                       [](char c) { return c >= '0' && c <= '9'; });
  };
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || !digits(1) || !digits(10)) return {stem, 0};
  return {stem.substr(0, stem.size() - kTail), std::atoi(tail.substr(1, 5).c_str())};
}

// The model in a folder of its own, or a name without format when there is none.
ListedModel folder_model(const fs::path& folder) {
  ListedModel model;
  model.name = folder.filename().string();
  model.path = folder.string();
  bool has_config = false, has_safetensors = false, has_gguf = false;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    struct stat info;
    if (::stat(entry.path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    const bool safetensors = ends_with(name, ".safetensors"), gguf = ends_with(name, ".gguf");
    has_config |= name == "config.json";
    has_safetensors |= safetensors;
    has_gguf |= gguf;
    if (safetensors || gguf) model.num_bytes += static_cast<uint64_t>(info.st_size);
    model.modified = std::max<int64_t>(model.modified, info.st_mtime);
  }
  if (has_config && has_safetensors) {
    model.format = "safetensors";
  } else if (has_gguf) {
    model.format = "GGUF";
  }
  return model;
}

}  // namespace

std::string models_folder() {
  if (std::string folder = environment("INVAR_MODELS"); !folder.empty()) return folder;
  const std::string folder = cache_folder("models");
  return folder.empty() ? "/.cache/invar/models" : folder;
}

bool is_unfinished(const std::string& path) {
  const std::string name = model_label(path);
  return ends_with(name, ".part") || ends_with(name, ".part.json");
}

std::string model_label(const std::string& path) {
  fs::path p(path);
  if (!p.has_filename()) p = p.parent_path();
  return p.filename().string();
}

std::vector<ListedModel> list_models() {
  std::map<std::string, ListedModel> models;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(models_folder(), error)) {
    const std::string name = entry.path().filename().string();
    struct stat info;
    if (name.starts_with(".") || is_unfinished(name)) continue;
    if (::stat(entry.path().c_str(), &info) != 0) continue;
    if (S_ISDIR(info.st_mode)) {
      ListedModel model = folder_model(entry.path());
      if (!model.format.empty()) models[model.name] = model;
    } else if (S_ISREG(info.st_mode) && ends_with(name, ".gguf")) {
      const SplitName split = split_name(entry.path().stem().string());
      ListedModel& model = models[split.base];
      model.name = split.base;
      model.format = "GGUF";
      if (split.part <= 1) model.path = entry.path().string();
      model.num_bytes += static_cast<uint64_t>(info.st_size);
      model.modified = std::max<int64_t>(model.modified, info.st_mtime);
    }
  }
  std::vector<ListedModel> list;
  for (auto& [name, model] : models)
    if (!model.path.empty()) list.push_back(std::move(model));  // parts without the first: no model
  return list;
}

Result<std::string> resolve_model(const std::string& model) {
  if (is_unfinished(model))
    return not_found("%s is an unfinished download; run the same `invar pull` again to finish it",
                     model.c_str());
  if (file_exists(model)) return model;
  const std::string folder = models_folder();
  std::vector<std::string> names;
  for (const ListedModel& listed : list_models()) {
    if (listed.name == model || model_label(listed.path) == model) return listed.path;
    names.push_back(listed.name);
  }
  if (model.find('/') != std::string::npos)
    return not_found("%s: no such file or folder; `invar list` shows the models in %s",
                     model.c_str(), folder.c_str());
  if (file_exists(folder + "/" + model + ".part") ||
      file_exists(folder + "/" + model + ".gguf.part"))
    return not_found("'%s' is not completely downloaded; run the same `invar pull` again",
                     model.c_str());
  std::string guess = nearest(model, names);
  for (const std::string& name : names)
    if (guess.empty() && name.find(model) != std::string::npos) guess = name;
  if (!guess.empty())
    return not_found("no model '%s' in %s; did you mean '%s'?", model.c_str(), folder.c_str(),
                     guess.c_str());
  return not_found("no model '%s' in %s; `invar list` shows what is there, `invar pull` gets more",
                   model.c_str(), folder.c_str());
}

}  // namespace invar::cli
