#include "cache/cache_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/log.h"

namespace invar {
namespace {

// "." + final name + "." + 16 digits + this.
constexpr std::string_view kTemporarySuffix = ".tmp";

// Nobody else may have made it, and nobody else may change it.
Result<void> check_ours(int fd, const std::string& path) {
  struct stat info;
  if (::fstat(fd, &info) != 0)
    return io_error("%s: cannot stat: %s", path.c_str(), std::strerror(errno));
  if (info.st_uid != ::geteuid())
    return unsupported("%s belongs to user %u, not to us", path.c_str(), info.st_uid);
  if ((info.st_mode & 022) != 0)
    return unsupported("%s can be written to by others (mode %03o)", path.c_str(),
                       info.st_mode & 0777u);
  return {};
}

std::vector<std::string> names_in(int folder) {
  std::vector<std::string> names;
  const int fd = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* dir = fd < 0 ? nullptr : ::fdopendir(fd);
  if (dir == nullptr) {
    if (fd >= 0) ::close(fd);
    return names;
  }
  while (const dirent* entry = ::readdir(dir)) names.emplace_back(entry->d_name);
  ::closedir(dir);
  return names;
}

}  // namespace

bool CacheFolder::is_temporary(std::string_view name) const {
  return name.starts_with('.') && name.ends_with(kTemporarySuffix) &&
         name.find(suffix_) != std::string_view::npos;
}

Result<CacheFolder> CacheFolder::open(const std::string& path, bool create,
                                      std::string_view suffix) {
  CacheFolder folder;
  folder.path_ = path;
  folder.suffix_ = suffix;
  if (create && ::mkdir(path.c_str(), 0700) != 0 && errno == ENOENT) {
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
    ::mkdir(path.c_str(), 0700);  // what went wrong, opening says
  }
  folder.folder_ =
      Descriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.folder_.is_open()) {
    if (errno == ENOENT) return not_found("%s: no such folder", path.c_str());
    return io_error("%s: cannot open: %s", path.c_str(),
                    errno == ELOOP ? "is a link" : std::strerror(errno));
  }
  INVAR_TRY_VOID(check_ours(folder.folder_.get(), path));
  return folder;
}

Result<Descriptor> CacheFolder::open_file(const std::string& name) const {
  // Reading alone must work too: a folder may be shipped read-only.
  constexpr int kFlags = O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
  Descriptor file(::openat(folder_.get(), name.c_str(), O_RDWR | kFlags));
  if (!file.is_open() && (errno == EACCES || errno == EROFS || errno == EPERM))
    file = Descriptor(::openat(folder_.get(), name.c_str(), O_RDONLY | kFlags));
  const std::string full = path_ + "/" + name;
  if (!file.is_open()) {
    if (errno == ENOENT) return not_found("%s: no such file", full.c_str());
    return io_error("%s: cannot open: %s", full.c_str(),
                    errno == ELOOP ? "is a link" : std::strerror(errno));
  }
  struct stat info;
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return io_error("%s: is no regular file", full.c_str());
  INVAR_TRY_VOID(check_ours(file.get(), full));
  return file;
}

Result<std::optional<CacheFolder::Temporary>> CacheFolder::create_temporary(
    const std::string& final_name) const {
  // A writer of the same file that lives holds its lock.
  const std::string prefix = "." + final_name + ".";
  for (const std::string& name : names_in(folder_.get())) {
    if (!is_temporary(name) || !name.starts_with(prefix)) continue;
    const Descriptor other(
        ::openat(folder_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (other.is_open() && ::flock(other.get(), LOCK_EX | LOCK_NB) != 0)
      return std::optional<Temporary>();
  }
  uint64_t random = 0;
  if (::getentropy(&random, sizeof random) != 0) random = static_cast<uint64_t>(::getpid());
  Temporary temporary;
  temporary.name = prefix + format("%016llx", static_cast<unsigned long long>(random)) +
                   std::string(kTemporarySuffix);
  temporary.file = Descriptor(::openat(folder_.get(), temporary.name.c_str(),
                                       O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!temporary.file.is_open())
    return io_error("%s: cannot write: %s", path_.c_str(), std::strerror(errno));
  if (::flock(temporary.file.get(), LOCK_EX | LOCK_NB) != 0) {
    // Somebody who cleans up was quicker; it will be gone.
    remove(temporary.name);
    return std::optional<Temporary>();
  }
  return std::optional<Temporary>(std::move(temporary));
}

Result<void> CacheFolder::publish(const Temporary& temporary, const std::string& final_name) const {
  if (::renameat(folder_.get(), temporary.name.c_str(), folder_.get(), final_name.c_str()) != 0)
    return io_error("%s: cannot rename: %s", path_.c_str(), std::strerror(errno));
  ::fsync(folder_.get());  // the name, too, outlives a loss of power; without it the old state does
  return {};
}

void CacheFolder::remove(const std::string& name) const {
  ::unlinkat(folder_.get(), name.c_str(), 0);
}

void CacheFolder::set_aside(const std::string& name) const {
  ::renameat(folder_.get(), name.c_str(), folder_.get(), ("damaged" + suffix_ + ".old").c_str());
}

std::vector<CacheFolder::Entry> CacheFolder::list() const {
  std::vector<Entry> entries;
  for (const std::string& name : names_in(folder_.get())) {
    struct stat info;
    if (name.starts_with('.') || !name.ends_with(suffix_) ||
        ::fstatat(folder_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(info.st_mode))
      continue;
    entries.push_back({name, static_cast<uint64_t>(info.st_size),
                       int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec});
  }
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    return a.used_ns != b.used_ns ? a.used_ns < b.used_ns : a.name < b.name;
  });
  return entries;
}

void CacheFolder::remove_abandoned() const {
  for (const std::string& name : names_in(folder_.get())) {
    if (!is_temporary(name)) continue;
    const Descriptor file(
        ::openat(folder_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    if (file.is_open() && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) remove(name);
  }
}

bool CacheFolder::make_room(uint64_t num_bytes, uint64_t limit, const std::string& keep,
                            std::vector<std::string>& removed) const {
  if (num_bytes > limit) return false;
  uint64_t total = num_bytes;
  const std::vector<Entry> entries = list();
  for (const Entry& entry : entries)
    if (entry.name != keep) total += entry.num_bytes;
  for (const Entry& entry : entries) {
    if (total <= limit) break;
    if (entry.name == keep) continue;
    remove(entry.name);
    total -= entry.num_bytes;
    removed.push_back(entry.name);
  }
  return true;
}

Result<void> CacheFolder::check_disk(uint64_t num_bytes) const {
  struct statvfs info;
  if (::fstatvfs(folder_.get(), &info) != 0) return {};
  const uint64_t free = uint64_t{info.f_bavail} * info.f_frsize;
  if (free / 2 >= num_bytes) return {};
  return resource_exhausted("it would take %llu of %llu free bytes, more than half",
                            static_cast<unsigned long long>(num_bytes),
                            static_cast<unsigned long long>(free));
}

void CacheFolder::set_used(const std::string& name, int64_t used_ns) const {
  const timespec time = {static_cast<time_t>(used_ns / 1'000'000'000), used_ns % 1'000'000'000};
  const timespec times[] = {time, time};
  ::utimensat(folder_.get(), name.c_str(), times, AT_SYMLINK_NOFOLLOW);
}

}  // namespace invar
