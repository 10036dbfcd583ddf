#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace invar {
namespace {

// An open descriptor that closes itself.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

FileState state_of(const struct stat& info) {
  const auto ns = [](const timespec& t) { return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec; };
  return {static_cast<uint64_t>(info.st_size), static_cast<uint64_t>(info.st_ino), ns(info.st_mtim),
          ns(info.st_ctim)};
}

// Opens a regular file.
Result<FileState> open_regular(const std::string& path, Descriptor& descriptor) {
  // Without O_NONBLOCK the opening of a pipe waits until somebody writes to it.
  descriptor.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor.fd < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return not_found("%s: no such file", path.c_str());
    return io_error("%s: cannot open: %s", path.c_str(), std::strerror(errno));
  }
  struct stat info;
  if (::fstat(descriptor.fd, &info) != 0)
    return io_error("%s: cannot stat: %s", path.c_str(), std::strerror(errno));
  if (S_ISDIR(info.st_mode)) return io_error("%s: is a folder, expected a file", path.c_str());
  if (!S_ISREG(info.st_mode)) return io_error("%s: is not a regular file", path.c_str());
  return state_of(info);
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  Descriptor descriptor;
  INVAR_TRY(const FileState state, open_regular(path, descriptor));
  const size_t size = state.size;
  if (size == 0) return corrupt("%s: file is empty", path.c_str());
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor.fd, 0);
  if (data == MAP_FAILED)
    return io_error("%s: cannot map %zu bytes: %s", path.c_str(), size, std::strerror(errno));
  MappedFile file;
  file.path_ = path;
  file.data_ = static_cast<const uint8_t*>(data);
  file.size_ = size;
  file.state_ = state;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(state_, other.state_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
}

void MappedFile::drop_pages(size_t offset, size_t size) const {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = (offset + page - 1) / page * page;
  const size_t end = (offset + size) / page * page;
  if (end > begin && end <= size_)
    ::madvise(const_cast<uint8_t*>(data_) + begin, end - begin, MADV_DONTNEED);
}

Result<std::string> read_file(const std::string& path, size_t max_bytes) {
  Descriptor descriptor;
  INVAR_TRY(const FileState state, open_regular(path, descriptor));
  const size_t size = state.size;
  if (size > max_bytes)
    return corrupt("%s: %zu bytes, expected at most %zu", path.c_str(), size, max_bytes);
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t count = ::read(descriptor.fd, text.data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return io_error("%s: cannot read: %s", path.c_str(), std::strerror(errno));
    if (count == 0) return io_error("%s: file became shorter while it was read", path.c_str());
    done += static_cast<size_t>(count);
  }
  return text;
}

Result<FileState> file_state(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0)
    return io_error("%s: cannot stat: %s", path.c_str(), std::strerror(errno));
  return state_of(info);
}

bool file_exists(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0;
}

bool is_directory(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace invar
