// One file from a URL to a path: resumed, checked and put in place in one step, or not at all. What
// has come so far lies in PATH.part, which nothing else reads; one process at a time writes it.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "http.h"

namespace invar::cli {

struct DownloadItem {
  std::string url;
  std::string path;    // where the whole file goes
  std::string label;   // for the progress bar
  uint64_t size = 0;   // as the hub says; 0: unknown
  std::string sha256;  // as the hub says, lower-case hex; "": unknown
  bool force = false;  // replace a file that is there
  Credentials credentials;
};

struct DownloadOutcome {
  std::string sha256;
  uint64_t num_bytes = 0;
  bool was_there = false;
  bool checked = false;  // the hash was known beforehand and is equal
};

Result<DownloadOutcome> download(const DownloadItem& item);

// A lock that the process holds on `fd`; waits for another process and says so once.
Result<void> lock_file(int fd, const std::string& what);

// Why the first bytes of a file named `path` cannot be what the name says, or "". Undecided (and
// "") while there are fewer than 16.
std::string wrong_content(const std::string& path, std::string_view first_bytes);

}  // namespace invar::cli
