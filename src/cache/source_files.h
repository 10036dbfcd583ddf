// Whether weight files still hold what they held when panels were made from them. Two answers: a
// stamp of what the file system says (cheap), and a hash over every byte (as slow as reading them).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace invar {

// The files of a checkpoint and their states when it was opened.
struct SourceFiles {
  std::vector<std::string> paths;
  std::vector<FileState> states;

  // Over all states; the device number is no part of it, as it may differ after a restart of the
  // machine. 0: a file changed in the last two seconds, within which a second change might leave
  // the same times.
  uint64_t stamp() const;
  // Whether the paths still lead to what was opened.
  bool are_unchanged() const;
};

// Over sizes and contents of the files, in order, by `num_threads` threads. kCancelled once `stop`
// is set.
Result<uint64_t> source_hash(const SourceFiles& files, int num_threads,
                             const std::atomic<bool>& stop);

}  // namespace invar
