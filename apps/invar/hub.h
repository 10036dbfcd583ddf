// The Hugging Face hub's API: which files a repository has at a revision, and which of them make a
// model. Downloads nothing but that list.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "http.h"

namespace invar::cli {

// HF_ENDPOINT (default https://huggingface.co) and HF_TOKEN.
struct Hub {
  std::string endpoint;
  Credentials credentials;
  static Result<Hub> from_environment();
};

struct HubFile {
  std::string path;    // inside the repository
  uint64_t size = 0;   // 0: not said
  std::string sha256;  // of large files; "" when the hub does not know it
};

struct HubRepo {
  std::string id;      // "owner/name"
  std::string commit;  // what the revision stands for now
  std::vector<HubFile> files;
};

Result<HubRepo> fetch_repo(const Hub& hub, const std::string& id, const std::string& revision);

std::string file_url(const Hub& hub, const HubRepo& repo, const std::string& path);

struct Selection {
  std::vector<HubFile> files;  // one GGUF file, or all that one folder needs
  bool as_folder = false;      // several files that belong together
  std::string note;            // what was chosen among several, "" when there was no choice
};

// `pattern`: "" (a GGUF by preference, else the safetensors set), a file's exact path, a glob, or a
// part of a file name such as Q4_K_M, in any case. The error lists what there is.
Result<Selection> select_files(const HubRepo& repo, const std::string& pattern);

}  // namespace invar::cli
