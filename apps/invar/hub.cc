#include "hub.h"

#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/json.h"

namespace invar::cli {
namespace {

constexpr const char* kDefaultEndpoint = "https://huggingface.co";
constexpr size_t kMaxListBytes = 64u << 20;
constexpr size_t kMaxListed = 12;  // names in an error

// Quality per byte in the opinion of most users, best first; others come after, smallest first.
constexpr const char* kPreferred[] = {"q4_k_m", "q4_k", "q4_1", "q4_0",
                                      "q5_k_m", "q6_k", "q8_0", "mxfp4"};

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// A path that stays inside the folder it is joined to, and can be printed.
bool is_plain_path(const std::string& path) {
  if (path.empty() || path.front() == '/' || path.find('\\') != std::string::npos) return false;
  for (const char c : path)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
  for (size_t i = 0; i <= path.size();) {
    const size_t end = std::min(path.find('/', i), path.size());
    const std::string part = path.substr(i, end - i);
    if (part.empty() || part.front() == '.') return false;
    i = end + 1;
  }
  return true;
}

// GGUF files that are a model or its first part; not projectors or importance matrices.
bool is_gguf_model(const std::string& path) {
  const std::string name = lower(base_name(path));
  return ends_with(name, ".gguf") && name.find("mmproj") == std::string::npos &&
         name.find("imatrix") == std::string::npos;
}

// "-00002-of-00003.gguf" -> where it begins, npos without.
size_t split_at(const std::string& path) {
  constexpr size_t kTail = 20;
  if (path.size() <= kTail || path.substr(path.size() - 14, 4) != "-of-" ||
      path[path.size() - kTail] != '-')
    return std::string::npos;
  return path.size() - kTail;
}

size_t preference(const std::string& path) {
  const std::string name = lower(base_name(path));
  for (size_t i = 0; i < std::size(kPreferred); ++i)
    if (name.find(kPreferred[i]) != std::string::npos) return i;
  return std::size(kPreferred);
}

std::string some_names(const std::vector<HubFile>& files) {
  std::string list;
  for (size_t i = 0; i < files.size() && i < kMaxListed; ++i)
    list += (i == 0 ? "" : ", ") + files[i].path;
  if (files.size() > kMaxListed) list += format(" and %zu more", files.size() - kMaxListed);
  return list;
}

// All parts of the model whose file (or first part) is `file`.
Selection gguf_selection(const HubRepo& repo, const HubFile& file) {
  Selection selection;
  const size_t split = split_at(file.path);
  if (split == std::string::npos) {
    selection.files.push_back(file);
    return selection;
  }
  for (const HubFile& other : repo.files)
    if (split_at(other.path) == split && other.path.compare(0, split, file.path, 0, split) == 0)
      selection.files.push_back(other);
  selection.as_folder = true;
  return selection;
}

// Weights and what else a model folder needs, from the top of the repository only.
Selection safetensors_selection(const HubRepo& repo) {
  static constexpr const char* kNames[] = {
      "config.json",        "generation_config.json",  "model.safetensors.index.json",
      "tokenizer.json",     "tokenizer_config.json",   "chat_template.jinja",
      "chat_template.json", "special_tokens_map.json", "added_tokens.json",
  };
  Selection selection;
  selection.as_folder = true;
  for (const HubFile& file : repo.files) {
    const bool weights = file.path.starts_with("model") && ends_with(file.path, ".safetensors") &&
                         file.path.find('/') == std::string::npos;
    const bool other =
        std::find(std::begin(kNames), std::end(kNames), file.path) != std::end(kNames);
    if (weights || other) selection.files.push_back(file);
  }
  // The small files first: what is wrong with them shows before gigabytes have come.
  std::sort(selection.files.begin(), selection.files.end(), [](const HubFile& x, const HubFile& y) {
    const bool x_weights = ends_with(x.path, ".safetensors");
    const bool y_weights = ends_with(y.path, ".safetensors");
    return x_weights != y_weights ? y_weights : x.path < y.path;
  });
  return selection;
}

}  // namespace

Result<Hub> Hub::from_environment() {
  Hub hub;
  const char* endpoint = std::getenv("HF_ENDPOINT");
  hub.endpoint = endpoint != nullptr && *endpoint != '\0' ? endpoint : kDefaultEndpoint;
  while (ends_with(hub.endpoint, "/")) hub.endpoint.pop_back();
  Result<std::string> origin = url_origin(hub.endpoint);
  if (!origin) return with_context("HF_ENDPOINT", origin.error());
  hub.credentials.origin = *origin;
  if (const char* token = std::getenv("HF_TOKEN"); token != nullptr) hub.credentials.token = token;
  if (hub.credentials.token.find_first_of("\r\n") != std::string::npos)
    return invalid_argument("HF_TOKEN holds a line break");
  return hub;
}

Result<HubRepo> fetch_repo(const Hub& hub, const std::string& id, const std::string& revision) {
  HttpRequest request;
  request.url = hub.endpoint + "/api/models/" + encode_path(id) + "/revision/" +
                encode_path(revision) + "?blobs=true";
  request.credentials = hub.credentials;
  long status = 0;
  Result<std::string> text = http_get_text(request, kMaxListBytes, &status);
  if (status == 401 || status == 403) {
    return invalid_argument(
        "%s: access refused (%ld): no such repository, or a private or gated one; %s", id.c_str(),
        status,
        hub.credentials.token.empty() ? "set HF_TOKEN"
                                      : "HF_TOKEN may not read it, or its terms are not accepted");
  }
  if (status == 404)
    return not_found("%s has no repository %s with revision '%s'", hub.endpoint.c_str(), id.c_str(),
                     revision.c_str());
  if (!text) return text.error();
  const std::string where = request.url;
  Result<Json> json = Json::parse(*text);
  if (!json)
    return unavailable("%s does not speak the hub's API: %s", where.c_str(),
                       json.error().message.c_str());
  HubRepo repo;
  repo.id = id;
  Result<std::string> commit = json->optional<std::string>("sha", revision);
  if (!commit) return with_context(where, commit.error());
  repo.commit = *commit;
  const Json* siblings = json->find("siblings");
  if (siblings == nullptr || !siblings->is_array())
    return unavailable("%s does not list any files", where.c_str());
  for (const Json& sibling : siblings->items()) {
    HubFile file;
    const Json* name = sibling.find("rfilename");
    if (name == nullptr || !name->is_string() || !is_plain_path(name->as_string())) continue;
    file.path = name->as_string();
    const Json* lfs = sibling.find("lfs");
    const Json* size = sibling.find("size");
    if (lfs != nullptr && lfs->is_object()) {
      if (const Json* sha = lfs->find("sha256"); sha != nullptr && sha->is_string())
        file.sha256 = lower(sha->as_string());
      if (const Json* n = lfs->find("size"); n != nullptr) size = n;
    }
    if (size != nullptr && size->is_int() && size->as_int() > 0)
      file.size = static_cast<uint64_t>(size->as_int());
    repo.files.push_back(std::move(file));
  }
  return repo;
}

std::string file_url(const Hub& hub, const HubRepo& repo, const std::string& path) {
  return hub.endpoint + "/" + encode_path(repo.id) + "/resolve/" + encode_path(repo.commit) + "/" +
         encode_path(path);
}

Result<Selection> select_files(const HubRepo& repo, const std::string& pattern) {
  std::vector<HubFile> ggufs;
  for (const HubFile& file : repo.files)
    if (is_gguf_model(file.path)) ggufs.push_back(file);

  if (!pattern.empty()) {
    for (const HubFile& file : repo.files)
      if (file.path == pattern) {
        if (ends_with(file.path, ".gguf")) return gguf_selection(repo, file);
        Selection one;
        one.files.push_back(file);
        return one;
      }
    std::vector<HubFile> found;
    const std::string wanted = lower(pattern);
    const bool glob = wanted.find_first_of("*?[") != std::string::npos;
    for (const HubFile& file : ggufs) {
      const std::string name = lower(file.path);
      if (glob ? ::fnmatch(wanted.c_str(), name.c_str(), 0) == 0
               : name.find(wanted) != std::string::npos)
        found.push_back(file);
    }
    // Parts of one model, or names of which one is the wanted quantisation alone (Q4_K in
    // Q4_K_S and Q4_K_M stays two).
    std::vector<HubFile> heads;
    for (const HubFile& file : found)
      if (split_at(file.path) == std::string::npos ||
          file.path.find("-00001-of-") != std::string::npos)
        heads.push_back(file);
    if (heads.size() == 1) return gguf_selection(repo, heads[0]);
    if (heads.empty())
      return not_found("%s has no GGUF file like '%s'; it has: %s", repo.id.c_str(),
                       pattern.c_str(), some_names(ggufs.empty() ? repo.files : ggufs).c_str());
    return invalid_argument("%s: '%s' fits several files: %s; name one with --file",
                            repo.id.c_str(), pattern.c_str(), some_names(heads).c_str());
  }

  if (!ggufs.empty()) {
    const HubFile* best = nullptr;
    for (const HubFile& file : ggufs) {
      const size_t split = split_at(file.path);
      if (split != std::string::npos && file.path.find("-00001-of-") == std::string::npos) continue;
      if (best == nullptr || preference(file.path) < preference(best->path) ||
          (preference(file.path) == preference(best->path) && file.size < best->size))
        best = &file;
    }
    if (best == nullptr)
      return not_found("%s: no first part among its GGUF files: %s", repo.id.c_str(),
                       some_names(ggufs).c_str());
    Selection selection = gguf_selection(repo, *best);
    if (ggufs.size() > selection.files.size())
      selection.note = best->path + " chosen among " + some_names(ggufs) + "; --file takes another";
    return selection;
  }
  Selection selection = safetensors_selection(repo);
  const bool weights =
      std::any_of(selection.files.begin(), selection.files.end(),
                  [](const HubFile& file) { return ends_with(file.path, ".safetensors"); });
  const bool config = std::any_of(selection.files.begin(), selection.files.end(),
                                  [](const HubFile& file) { return file.path == "config.json"; });
  if (!weights || !config)
    return not_found(
        "%s has neither a GGUF file nor model*.safetensors with config.json; it has: %s",
        repo.id.c_str(), some_names(repo.files).c_str());
  return selection;
}

}  // namespace invar::cli
