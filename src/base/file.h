// Read-only files: mapped whole, or read whole with a size limit. Knows no format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace invar {

// What the file system says about a file's content: equal states of a path mean that nobody wrote
// to the file or put another in its place. ctime is the change of anything; no program can set it
// back.
struct FileState {
  uint64_t size = 0, inode = 0;
  int64_t mtime_ns = 0, ctime_ns = 0;
  bool operator==(const FileState&) const = default;
};
Result<FileState> file_state(const std::string& path);

// A file mapped read-only. The bytes stay valid while the object lives. A file that another process
// shortens while it is mapped ends ours with SIGBUS; docs/operations.md says so.
class MappedFile {
 public:
  // Errors: kNotFound, kIo (a directory, no permission), kCorrupt (empty file).
  static Result<MappedFile> open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  const FileState& state() const { return state_; }  // when it was mapped

  // Tells the kernel that [offset, offset + size) will not be read again soon, so that its page
  // cache pages may go. Speed and memory only.
  void drop_pages(size_t offset, size_t size) const;

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  FileState state_;
};

// The whole file as a string. Errors as MappedFile::open, and kCorrupt when larger than max_bytes.
Result<std::string> read_file(const std::string& path, size_t max_bytes);

bool file_exists(const std::string& path);
bool is_directory(const std::string& path);

}  // namespace invar
