#include "cache/source_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/block_hash.h"
#include "base/threads.h"
#include "cache/packed_file.h"

namespace invar {
namespace {

uint64_t hash_words(const std::vector<uint64_t>& words) {
  return block_hash({reinterpret_cast<const uint8_t*>(words.data()), words.size() * 8});
}

// The block's hash, or 0 and false.
bool hash_block(int fd, uint64_t offset, size_t size, std::vector<uint8_t>& buffer,
                uint64_t& hash) {
  size_t done = 0;
  while (done < size) {
    const ssize_t count =
        ::pread(fd, buffer.data() + done, size - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += static_cast<size_t>(count);
  }
  hash = block_hash({buffer.data(), size});
  return true;
}

}  // namespace

uint64_t SourceFiles::stamp() const {
  constexpr int64_t kYoungNs = 2'000'000'000;
  const int64_t now_ns = int64_t{::time(nullptr)} * 1'000'000'000;
  std::vector<uint64_t> words;
  for (const FileState& state : states) {
    if (std::max(state.ctime_ns, state.mtime_ns) > now_ns - kYoungNs) return 0;
    for (const uint64_t word : {state.size, state.inode, static_cast<uint64_t>(state.mtime_ns),
                                static_cast<uint64_t>(state.ctime_ns)})
      words.push_back(word);
  }
  return std::max<uint64_t>(hash_words(words), 1);
}

bool SourceFiles::are_unchanged() const {
  for (size_t i = 0; i < paths.size(); ++i) {
    const auto state = file_state(paths[i]);
    if (!state || !(*state == states[i])) return false;
  }
  return true;
}

Result<uint64_t> source_hash(const SourceFiles& files, int num_threads,
                             const std::atomic<bool>& stop) {
  // Buffers instead of a mapping: no page tables to fill, and a file that shrinks is an error.
  std::vector<std::vector<uint8_t>> buffers(static_cast<size_t>(num_threads),
                                            std::vector<uint8_t>(kPackedBlock));
  ThreadPool pool(num_threads);
  std::vector<uint64_t> words;
  for (const std::string& path : files.paths) {
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info;
    if (!file.is_open() || ::fstat(file.get(), &info) != 0)
      return io_error("%s: cannot read: %s", path.c_str(), std::strerror(errno));
    const auto size = static_cast<uint64_t>(info.st_size);
    std::vector<uint64_t> hashes((size + kPackedBlock - 1) / kPackedBlock);
    std::atomic<bool> sound = true;
    pool.run(static_cast<int64_t>(hashes.size()), [&](int64_t first, int64_t end, int thread) {
      for (int64_t i = first; i < end && sound && !stop; ++i) {
        const uint64_t offset = static_cast<uint64_t>(i) * kPackedBlock;
        if (!hash_block(file.get(), offset, std::min<uint64_t>(kPackedBlock, size - offset),
                        buffers[static_cast<size_t>(thread)], hashes[static_cast<size_t>(i)]))
          sound = false;
      }
    });
    if (stop) return cancelled("stopped");
    if (!sound) return io_error("%s: cannot be read to its end", path.c_str());
    words.push_back(size);
    words.push_back(hash_words(hashes));
  }
  return std::max<uint64_t>(hash_words(words), 1);
}

}  // namespace invar
