// Hugging Face and MLX folders as a Checkpoint: which files belong to the model, its JSON files,
// its chat templates.
#include <dirent.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <unordered_map>

#include "base/keyed_hash.h"
#include "base/log.h"
#include "weights/hf_tensors.h"
#include "weights/quoted.h"
#include "weights/readers.h"
#include "weights/safetensors_header.h"

namespace invar {
namespace {

constexpr size_t kMaxJsonFileBytes = 16u << 20;
constexpr size_t kMaxIndexBytes = 32u << 20;
constexpr size_t kMaxTemplateBytes = 1u << 20;

std::string real_path(const std::string& path) {
  char resolved[PATH_MAX];
  return ::realpath(path.c_str(), resolved) != nullptr ? std::string(resolved) : std::string();
}

// A model folder must not make us read elsewhere, so links have to stay in it. One layout is let
// through, as it is how Hugging Face's own cache stores every file:
// .../snapshots/<revision>/<file> -> .../blobs/<hash>. `name` may lead through folders.
Result<std::string> file_in(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name;
  if (!file_exists(path)) return not_found("%s: no such file", path.c_str());
  INVAR_TRY_VOID(check_regular(path));
  const std::string home = real_path(folder), target_folder = folder_of(real_path(path));
  if (target_folder == folder_of(home + "/" + name)) return path;
  const std::string parent = folder_of(home);
  if (base_name(parent) == "snapshots" && target_folder == folder_of(parent) + "/blobs")
    return path;
  return invalid_argument("%s: is a link that leaves the model's folder; put the file itself there",
                          path.c_str());
}

// Python's json module writes NaN and Infinity, which are no JSON; some configs have them
// ("time_step_limit": [0.0, Infinity]). They become null.
std::string without_non_finite(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  bool in_string = false;
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = std::string_view(text).substr(i);
    if (!in_string) {
      size_t skip = 0;
      for (const std::string_view word : {"NaN", "Infinity", "-Infinity"})
        if (rest.starts_with(word)) skip = word.size();
      if (skip > 0) {
        out += "null";
        i += skip;
        continue;
      }
      in_string = text[i] == '"';
    } else if (text[i] == '\\' && i + 1 < text.size()) {
      out += text[i++];
    } else if (text[i] == '"') {
      in_string = false;
    }
    out += text[i++];
  }
  return out;
}

struct JsonFile {
  std::string text;
  Json json;
};

Result<JsonFile> json_file(const std::string& folder, const std::string& name) {
  INVAR_TRY(const std::string path, file_in(folder, name));
  JsonFile file;
  INVAR_TRY(file.text, read_file(path, kMaxJsonFileBytes));
  auto json = Json::parse(without_non_finite(file.text));
  if (!json) return with_context(path, json.error());
  if (!json->is_object())
    return corrupt("%s: is %s, expected an object", path.c_str(), json->kind_name());
  file.json = std::move(*json);
  return file;
}

// "model-00002-of-00005.safetensors": part 2 of 5.
bool parse_part(const std::string& name, int& part, int& count) {
  const size_t dash = name.rfind("-of-");
  if (dash == std::string::npos || dash < 6) return false;
  int consumed = 0;
  const std::string tail = name.substr(dash - 6);
  return std::sscanf(tail.c_str(), "-%5d-of-%5d.safetensors%n", &part, &count, &consumed) == 2 &&
         consumed == static_cast<int>(tail.size());
}

class SafetensorsCheckpoint : public Checkpoint {
 public:
  Result<void> load(const std::string& folder, const std::string& single_file) {
    path = single_file.empty() ? folder : single_file;
    container = Container::kSafetensors;
    if (!file_exists(folder + "/config.json"))
      return not_found(
          "%s/config.json: no such file; the weights need the model's config.json beside "
          "them",
          folder.c_str());
    INVAR_TRY(JsonFile config, json_file(folder, "config.json"));
    metadata = std::move(config.json);
    INVAR_TRY_VOID(load_weights(folder, single_file));
    if (file_exists(folder + "/generation_config.json")) {
      INVAR_TRY(JsonFile file, json_file(folder, "generation_config.json"));
      generation_config = std::move(file.json);
    }
    if (file_exists(folder + "/tokenizer.json")) {
      INVAR_TRY(tokenizer_json, file_in(folder, "tokenizer.json"));
    }
    if (file_exists(folder + "/tokenizer_config.json")) {
      INVAR_TRY(JsonFile file, json_file(folder, "tokenizer_config.json"));
      tokenizer_config = std::move(file.json);
    }
    INVAR_TRY_VOID(load_templates(folder));
    for (const WeightFile& weights : files_) {
      files.push_back(weights.file.path());
      states.push_back(weights.file.state());
      total_file_bytes += weights.file.bytes().size();
    }
    fingerprint = weight_fingerprint(files_, config.text);
    return {};
  }

  void drop_pages(const MatrixView& matrix) const override {
    if (matrix.format != WeightFormat::kMlxAffine)
      return drop_pages_of(files_, matrix.data, matrix.num_bytes());
    const auto num_rows = static_cast<size_t>(matrix.num_rows);
    drop_pages_of(files_, matrix.data, num_rows * static_cast<size_t>(matrix.row_bytes));
    const size_t scale_bytes = num_rows * static_cast<size_t>(matrix.num_cols / matrix.group_size) *
                               dtype_bytes(matrix.scale_dtype);
    drop_pages_of(files_, matrix.scales, scale_bytes);
    drop_pages_of(files_, matrix.biases, scale_bytes);
  }

 private:
  Result<void> load_weights(const std::string& folder, const std::string& single_file) {
    std::vector<std::string> paths;
    SafetensorsIndex weight_index;
    const std::string index_name = "model.safetensors.index.json";
    if (!single_file.empty()) {
      paths = {single_file};  // the user's own choice, wherever a link leads
    } else if (file_exists(folder + "/" + index_name)) {
      INVAR_TRY(const std::string index_path, file_in(folder, index_name));
      INVAR_TRY(const std::string text, read_file(index_path, kMaxIndexBytes));
      auto parsed = parse_safetensors_index(text);
      if (!parsed) return with_context(index_path, parsed.error());
      weight_index = std::move(*parsed);
      for (const std::string& name : weight_index.files) {
        auto file_path = file_in(folder, name);
        if (!file_path && file_path.error().code == ErrorCode::kNotFound)
          return not_found("%s/%s: no such file, but %s lists it; fetch the missing file",
                           folder.c_str(), name.c_str(), index_name.c_str());
        if (!file_path) return file_path.error();
        paths.push_back(*file_path);
      }
    } else {
      INVAR_TRY(paths, unindexed_files(folder));
    }

    std::vector<StoredTensor> stored;
    std::unordered_map<std::string, std::string, KeyedHash> file_of;
    for (const std::string& file_path : paths) {
      INVAR_TRY(MappedFile file, MappedFile::open(file_path));
      INVAR_TRY_VOID(check_not_foreign(file_path, file.bytes()));
      auto header = parse_safetensors_header(file.bytes());
      if (!header) return with_context(file_path, header.error());
      for (SafetensorsTensor& tensor : header->tensors) {
        const auto [other, is_new] = file_of.emplace(tensor.name, file_path);
        if (!is_new)
          return corrupt("%s: tensor %s also stands in %s", file_path.c_str(),
                         quoted(tensor.name).c_str(), other->second.c_str());
        stored.push_back({std::move(tensor.name), std::move(tensor.dtype), std::move(tensor.shape),
                          file.bytes().data() + tensor.begin, base_name(file_path)});
      }
      files_.push_back({std::move(file), static_cast<size_t>(header->data_begin)});
    }
    size_t num_missing = 0;
    for (const std::string& name : weight_index.tensor_names) {
      if (file_of.contains(name)) continue;
      if (num_missing++ == 0)
        log(LogLevel::kWarning, "weights index=%s tensor=%s listed_but_in_no_file=true",
            index_name.c_str(), quoted(name).c_str());
    }
    if (!weight_index.files.empty() &&
        stored.size() + num_missing > weight_index.tensor_names.size())
      log(LogLevel::kWarning, "weights index=%s tensors_not_listed=%zu", index_name.c_str(),
          stored.size() + num_missing - weight_index.tensor_names.size());

    INVAR_TRY(tensors_, fold_tensors(stored, metadata));
    for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
    if (tensors_.empty()) return corrupt("%s: has no weights", paths[0].c_str());
    return {};
  }

  // Without an index: model*.safetensors, or weights*.safetensors as old MLX conversions have it.
  static Result<std::vector<std::string>> unindexed_files(const std::string& folder) {
    std::vector<std::string> names;
    for (const std::string& name : list_folder(folder))
      if (name.ends_with(".safetensors")) names.push_back(name);
    for (const char* prefix : {"model", "weights"}) {
      std::vector<std::string> matching;
      for (const std::string& name : names)
        if (name.starts_with(prefix)) matching.push_back(name);
      if (matching.empty()) continue;
      names = std::move(matching);
      break;
    }
    int count = 0, part = 0;
    if (parse_part(names[0], part, count) && count > static_cast<int>(names.size())) {
      for (int i = 1; i <= count; ++i) {
        const std::string name = names[0].substr(0, names[0].rfind("-of-") - 6) +
                                 format("-%05d-of-%05d.safetensors", i, count);
        if (std::ranges::find(names, name) == names.end())
          return not_found("%s/%s: part %d of %d of this model is missing; fetch the missing file",
                           folder.c_str(), name.c_str(), i, count);
      }
    }
    std::vector<std::string> paths;
    for (const std::string& name : names) {
      INVAR_TRY(std::string file_path, file_in(folder, name));
      paths.push_back(std::move(file_path));
    }
    return paths;
  }

  // chat_template.jinja, then tokenizer_config.json. The folder additional_chat_templates holds
  // named ones beside the first.
  Result<void> load_templates(const std::string& folder) {
    if (file_exists(folder + "/chat_template.jinja")) {
      INVAR_TRY(const std::string file, file_in(folder, "chat_template.jinja"));
      INVAR_TRY(std::string text, read_file(file, kMaxTemplateBytes));
      chat_templates.emplace_back("default", std::move(text));
      chat_template_source = "chat_template.jinja";
      const std::string more = "additional_chat_templates";
      for (const std::string& name : list_folder(folder + "/" + more)) {
        if (!name.ends_with(".jinja")) continue;
        INVAR_TRY(const std::string named, file_in(folder, more + "/" + name));
        INVAR_TRY(std::string named_text, read_file(named, kMaxTemplateBytes));
        chat_templates.emplace_back(name.substr(0, name.size() - 6), std::move(named_text));
      }
      return {};
    }
    const Json* value = tokenizer_config.find("chat_template");
    if (value == nullptr || value->is_null()) return {};
    chat_template_source = "tokenizer_config.json";
    const std::string where = folder + "/tokenizer_config.json: key 'chat_template'";
    if (value->is_string()) {
      chat_templates.emplace_back("default", value->as_string());
      return {};
    }
    if (!value->is_array())
      return corrupt("%s is %s, expected a string or an array", where.c_str(), value->kind_name());
    for (const Json& item : value->items()) {
      auto name = item.required<std::string>("name");
      if (!name) return with_context(where, name.error());
      auto text = item.required<std::string>("template");
      if (!text) return with_context(where, text.error());
      chat_templates.emplace_back(std::move(*name), std::move(*text));
    }
    return {};
  }

  std::vector<WeightFile> files_;
};

}  // namespace

Result<std::unique_ptr<Checkpoint>> open_safetensors(const std::string& folder,
                                                     const std::string& single_file) {
  // One shard of several stands for the whole model.
  int part = 0, count = 0;
  const bool whole = parse_part(base_name(single_file), part, count) && count > 1;
  auto checkpoint = std::make_unique<SafetensorsCheckpoint>();
  INVAR_TRY_VOID(checkpoint->load(folder, whole ? "" : single_file));
  if (whole) checkpoint->path = single_file;
  return std::unique_ptr<Checkpoint>(std::move(checkpoint));
}

}  // namespace invar
