// Checkpoint::open: finds out what a path holds and hands it to its reader; and what the readers
// share.
#include "weights/checkpoint.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/hash.h"
#include "base/prefetch.h"
#include "weights/readers.h"

namespace invar {

const TensorInfo* Checkpoint::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

namespace {

bool is_projector(const std::string& name) { return name.find("mmproj") != std::string::npos; }

// The one GGUF model of a folder: a file, or the first part of a split model. Files that accompany
// a model (projectors of vision models) do not count.
Result<std::string> gguf_of_folder(const std::string& folder,
                                   const std::vector<std::string>& names) {
  std::vector<std::string> models;
  for (const std::string& name : names) {
    if (!name.ends_with(".gguf") || is_projector(name)) continue;
    const size_t of = name.rfind("-of-");
    const bool later_part = of != std::string::npos && of >= 6 &&
                            name.size() == of + sizeof("-of-00001.gguf") - 1 &&
                            name[of - 6] == '-' && name.compare(of - 5, 5, "00001") != 0;
    if (!later_part) models.push_back(name);
  }
  // Only later parts: open one, so that the missing first part is named.
  if (models.empty()) {
    for (const std::string& name : names)
      if (name.ends_with(".gguf") && !is_projector(name)) return folder + "/" + name;
    return std::string();
  }
  if (models.size() == 1) return folder + "/" + models[0];
  return invalid_argument("%s: holds %zu GGUF models (%s, %s%s); give the path of one of them",
                          folder.c_str(), models.size(), models[0].c_str(), models[1].c_str(),
                          models.size() > 2 ? ", ..." : "");
}

Result<std::unique_ptr<Checkpoint>> open_folder(const std::string& folder) {
  const std::vector<std::string> names = list_folder(folder);
  bool config = false, safetensors = false, pickle = false;
  for (const std::string& name : names) {
    config = config || name == "config.json";
    safetensors =
        safetensors || name.ends_with(".safetensors") || name == "model.safetensors.index.json";
    pickle = pickle || name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth");
  }
  if (safetensors && config) return open_safetensors(folder, "");
  INVAR_TRY(const std::string gguf, gguf_of_folder(folder, names));
  if (!gguf.empty()) return open_gguf(gguf);
  if (safetensors) return open_safetensors(folder, "");  // says that config.json is missing
  if (pickle)
    return unsupported(
        "%s: holds pickle weights (.bin, .pt) only, which can run code and are never "
        "loaded; take a safetensors or GGUF version of the model",
        folder.c_str());
  return not_found(
      "%s: no model in this folder; expected a .gguf file, or config.json with "
      "*.safetensors",
      folder.c_str());
}

bool is_safetensors(std::span<const uint8_t> bytes) {
  return bytes.size() > 8 && bytes[8] == '{' && bytes[6] == 0 && bytes[7] == 0;
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> Checkpoint::open(const std::string& given) {
  struct stat info;
  if (given.empty()) return invalid_argument("the model's path is empty");
  if (::stat(given.c_str(), &info) != 0) {
    if (errno != ENOENT && errno != ENOTDIR)
      return io_error("%s: cannot open: %s", given.c_str(), std::strerror(errno));
    return not_found(
        "%s: no such file or folder; expected a .gguf file, a .safetensors file or a "
        "model's folder",
        given.c_str());
  }
  if (S_ISDIR(info.st_mode)) {
    std::string folder = given;
    while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
    auto checkpoint = open_folder(folder);
    if (checkpoint) (*checkpoint)->path = given;
    return checkpoint;
  }
  INVAR_TRY_VOID(check_regular(given));
  INVAR_TRY(const MappedFile file, MappedFile::open(given));
  const std::span<const uint8_t> bytes = file.bytes();
  if (bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0) return open_gguf(given);
  INVAR_TRY_VOID(check_not_foreign(given, bytes));
  if (given.ends_with(".safetensors") || is_safetensors(bytes))
    return open_safetensors(folder_of(given), given);
  if (given.ends_with(".json"))
    return invalid_argument("%s: is no weights file; give the model's folder", given.c_str());
  std::string start;
  for (size_t i = 0; i < std::min<size_t>(bytes.size(), 8); ++i)
    start += format(i == 0 ? "%02x" : " %02x", unsigned{bytes[i]});
  return corrupt(
      "%s: is neither GGUF nor safetensors: it begins with the bytes %s; check where it "
      "was fetched from",
      given.c_str(), start.c_str());
}

Result<void> check_regular(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    return invalid_argument("%s: is no regular file", path.c_str());
  return {};
}

Result<void> check_not_foreign(const std::string& path, std::span<const uint8_t> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                              std::min<size_t>(bytes.size(), 512));
  const size_t first = std::min(text.find_first_not_of(" \t\r\n\xef\xbb\xbf"), text.size());
  std::string begin(text.substr(first, 32));
  for (char& c : begin) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (begin.starts_with("<!doctype") || begin.starts_with("<html") || begin.starts_with("<?xml"))
    return corrupt(
        "%s: is a web page, not a model: the download went wrong; check the address and "
        "whether it needs a token, then fetch the file again",
        path.c_str());
  if (begin.starts_with("version https://git-lfs"))
    return corrupt(
        "%s: is a Git LFS pointer, not the file itself; run `git lfs pull` in its folder",
        path.c_str());
  const bool pickle =
      text.size() > 2 && text[2] != 0 && text[0] == '\x80' && text[1] >= 2 && text[1] <= 5;
  if ((text.starts_with("PK\x03\x04") || pickle) && !path.ends_with(".safetensors"))
    return unsupported(
        "%s: is a pickle or zip checkpoint, which can run code and is never loaded; "
        "take a safetensors or GGUF version of the model",
        path.c_str());
  if (text.starts_with("lmgg") || text.starts_with("fmgg") || text.starts_with("tjgg"))
    return unsupported("%s: is in a GGML format older than GGUF; take a GGUF version of the model",
                       path.c_str());
  return {};
}

std::vector<std::string> list_folder(const std::string& folder) {
  std::vector<std::string> names;
  DIR* dir = ::opendir(folder.c_str());
  if (dir == nullptr) return names;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(dir);
  std::ranges::sort(names);
  return names;
}

std::string base_name(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string weight_fingerprint(const std::vector<WeightFile>& files, const std::string& extra) {
  // 256 samples over the whole model, so that a model of many files opens as fast on a slow disk.
  constexpr size_t kSampleBytes = 4096;
  const size_t num_samples = std::max<size_t>(256 / std::max<size_t>(files.size(), 1), 4);
  Sha256 hash;
  const auto update_text = [&](const std::string& text) {
    hash.update({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  };
  update_text(format("invar checkpoint 1\n%zu\n", extra.size()));
  update_text(extra);
  for (const WeightFile& weights : files) {
    const std::span<const uint8_t> bytes = weights.file.bytes();
    update_text(format("\n%zu %zu\n", bytes.size(), weights.header_bytes));
    hash.update(bytes.first(weights.header_bytes));
    const std::span<const uint8_t> data = bytes.subspan(weights.header_bytes);
    if (data.size() <= num_samples * kSampleBytes) {
      hash.update(data);
      continue;
    }
    const size_t span = data.size() - kSampleBytes;  // the last sample ends with the file
    const auto sample = [&](size_t i) {
      const size_t begin =
          span / (num_samples - 1) * i + span % (num_samples - 1) * i / (num_samples - 1);
      return data.subspan(begin, kSampleBytes);
    };
    // All asked for before the first is waited for: a disk that has none of them in memory answers
    // many scattered reads in the time of a few.
    for (size_t i = 0; i < num_samples; ++i) prefetch_pages(sample(i).data(), kSampleBytes);
    for (size_t i = 0; i < num_samples; ++i) hash.update(sample(i));
  }
  return hash.hex_digest();
}

void drop_pages_of(const std::vector<WeightFile>& files, const uint8_t* data, size_t size) {
  for (const WeightFile& weights : files) {
    const std::span<const uint8_t> bytes = weights.file.bytes();
    if (data < bytes.data() || data >= bytes.data() + bytes.size()) continue;
    weights.file.drop_pages(static_cast<size_t>(data - bytes.data()), size);
    return;
  }
}

}  // namespace invar
