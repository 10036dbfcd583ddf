#include "download.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "progress.h"
#include "terminal.h"

namespace invar::cli {
namespace {

constexpr int kMaxVainTries = 4;  // in a row, without a new byte
constexpr auto kFirstPause = std::chrono::milliseconds(500);
constexpr size_t kProbeBytes = 16;
constexpr uint64_t kMaxNoteBytes = 1 << 16;

struct Descriptor {
  int fd = -1;
  Descriptor() = default;
  explicit Descriptor(int value) : fd(value) {}
  Descriptor(Descriptor&& other) noexcept : fd(other.fd) { other.fd = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd, other.fd);
    return *this;
  }
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

Error system_error(const std::string& path, const char* what) {
  return io_error("%s: cannot %s: %s", path.c_str(), what, std::strerror(errno));
}

std::span<const uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// "bytes 5-99/100" -> first and total; total 0 when it is "*".
struct ContentRange {
  bool valid = false;
  uint64_t first = 0, total = 0;
};
ContentRange parse_content_range(const std::string& text) {
  ContentRange range;
  unsigned long long first = 0, last = 0, total = 0;
  if (std::sscanf(text.c_str(), "bytes %llu-%llu/%llu", &first, &last, &total) >= 2)
    range = {true, first, total};
  return range;
}

bool is_strong_etag(const std::string& etag) { return etag.size() > 2 && etag.front() == '"'; }

// A download's unfinished file and the note beside it that says which version it is part of.
class PartFile {
 public:
  // Waits for the lock. `done`: another process finished the file meanwhile.
  static Result<PartFile> open(const DownloadItem& item, bool& done) {
    PartFile part;
    part.path_ = item.path + ".part";
    for (;;) {
      part.file_ = Descriptor(::open(part.path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
      if (part.file_.fd < 0) return system_error(part.path_, "write");
      INVAR_TRY_VOID(lock_file(part.file_.fd, item.label));
      // The one we waited for may have renamed the file that we hold.
      struct stat held, named;
      if (::fstat(part.file_.fd, &held) == 0 && ::stat(part.path_.c_str(), &named) == 0 &&
          held.st_ino == named.st_ino && held.st_dev == named.st_dev) {
        part.num_bytes_ = static_cast<uint64_t>(held.st_size);
        part.read_note(item);
        return part;
      }
      if (file_exists(item.path)) {
        done = true;
        return part;
      }
    }
  }

  uint64_t num_bytes() const { return num_bytes_; }
  const std::string& etag() const { return etag_; }
  const std::string& head() const { return head_; }

  // Hashes what is there already.
  Result<void> hash_existing() {
    std::vector<char> buffer(1 << 20);
    uint64_t done = 0;
    while (done < num_bytes_) {
      const ssize_t count =
          ::pread(file_.fd, buffer.data(), buffer.size(), static_cast<off_t>(done));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return system_error(path_, "read");
      if (count == 0) break;
      take({buffer.data(), static_cast<size_t>(count)});
      done += static_cast<uint64_t>(count);
    }
    num_bytes_ = done;
    return {};
  }

  Result<void> restart(const std::string& etag, const DownloadItem& item) {
    if (::ftruncate(file_.fd, 0) != 0) return system_error(path_, "truncate");
    num_bytes_ = 0;
    hash_ = Sha256();
    head_.clear();
    etag_ = etag;
    Json note = Json::object();
    note.set("url", item.url);
    note.set("etag", etag);
    note.set("sha256", item.sha256);
    const std::string text = note.dump();
    const Descriptor out(
        ::open(note_path().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (out.fd < 0 ||
        ::write(out.fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      return system_error(note_path(), "write");
    return {};
  }

  Result<void> append(std::string_view bytes) {
    take(bytes);
    while (!bytes.empty()) {
      const ssize_t count =
          ::pwrite(file_.fd, bytes.data(), bytes.size(), static_cast<off_t>(num_bytes_));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return system_error(path_, "write");
      num_bytes_ += static_cast<uint64_t>(count);
      bytes.remove_prefix(static_cast<size_t>(count));
    }
    return {};
  }

  std::string hex_digest() { return hash_.hex_digest(); }

  Result<void> finish(const std::string& final_path) {
    if (::fsync(file_.fd) != 0) return system_error(path_, "write");
    if (::rename(path_.c_str(), final_path.c_str()) != 0)
      return system_error(final_path, "put in place");
    ::unlink(note_path().c_str());
    const std::string folder = final_path.substr(0, final_path.rfind('/'));
    const Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (directory.fd >= 0) ::fsync(directory.fd);
    return {};
  }

  void remove() {
    ::unlink(path_.c_str());
    ::unlink(note_path().c_str());
  }

 private:
  std::string note_path() const { return path_ + ".json"; }

  void take(std::string_view bytes) {
    hash_.update(as_bytes(bytes));
    if (head_.size() < kProbeBytes) head_ += bytes.substr(0, kProbeBytes - head_.size());
  }

  // Bytes of another file, or of nobody knows what, are not kept.
  void read_note(const DownloadItem& item) {
    bool same = false;
    if (Result<std::string> text = read_file(note_path(), kMaxNoteBytes); text) {
      if (Result<Json> note = Json::parse(*text); note) {
        const auto field = [&](const char* key) {
          const Json* value = note->find(key);
          return value != nullptr && value->is_string() ? value->as_string() : std::string();
        };
        etag_ = field("etag");
        // An equal hash is enough, wherever the bytes come from.
        same = item.sha256.empty() ? field("url") == item.url && is_strong_etag(etag_)
                                   : field("sha256") == item.sha256;
      }
    }
    if (!same || (item.size > 0 && num_bytes_ > item.size)) num_bytes_ = 0;
  }

  std::string path_, etag_, head_;
  Descriptor file_;
  uint64_t num_bytes_ = 0;
  Sha256 hash_;
};

Result<void> check_disk_space(const std::string& path, uint64_t num_bytes) {
  struct statvfs info;
  const std::string folder = path.substr(0, path.rfind('/'));
  if (::statvfs(folder.c_str(), &info) != 0) return {};
  const uint64_t free_bytes = uint64_t{info.f_bavail} * info.f_frsize;
  if (num_bytes <= free_bytes) return {};
  return resource_exhausted("%s: needs %s, the disk has %s free; INVAR_MODELS names another folder",
                            path.c_str(), human_bytes(num_bytes).c_str(),
                            human_bytes(free_bytes).c_str());
}

enum class Attempt { kDone, kAgain, kVain };  // kAgain: bytes came, then the connection broke

class Downloader {
 public:
  Downloader(const DownloadItem& item, PartFile part)
      : item_(item), part_(std::move(part)), progress_(item.label, Progress::Unit::kBytes) {}

  Result<DownloadOutcome> run() {
    INVAR_TRY_VOID(part_.hash_existing());
    if (item_.size > 0)
      INVAR_TRY_VOID(check_disk_space(item_.path, item_.size - part_.num_bytes()));
    progress_.start_at(part_.num_bytes());
    bool restarted_for_hash = false;
    for (int vain = 0;;) {
      resumed_ |= part_.num_bytes() > 0;
      // A part that is already whole only waits to be checked.
      Attempt attempt = Attempt::kDone;
      if (item_.size == 0 || part_.num_bytes() < item_.size) {
        INVAR_TRY(attempt, try_once());
      }
      if (attempt == Attempt::kDone) {
        const std::string digest = part_.hex_digest();
        if (item_.sha256.empty() || digest == item_.sha256) return finish(digest);
        part_.remove();
        if (!resumed_ || restarted_for_hash)
          return corrupt("%s: sha256 is %s, expected %s; the download was deleted",
                         item_.label.c_str(), digest.c_str(), item_.sha256.c_str());
        // Old bytes may be to blame: once from the beginning.
        say("the checksum is wrong; starting over");
        restarted_for_hash = true;
        resumed_ = false;
        bool done = false;
        INVAR_TRY(part_, PartFile::open(item_, done));
        continue;
      }
      vain = attempt == Attempt::kAgain ? 0 : vain + 1;
      if (vain >= kMaxVainTries)
        return unavailable("%s: %s; %s of it came, the same command goes on from there",
                           item_.label.c_str(), why_.c_str(),
                           human_bytes(part_.num_bytes()).c_str());
      say(why_ + "; going on at " + human_bytes(part_.num_bytes()));
      std::this_thread::sleep_for(vain == 0 ? kFirstPause / 5 : kFirstPause * (1 << (vain - 1)));
    }
  }

 private:
  void say(const std::string& what) {
    progress_.clear();
    print_error("invar pull: " + item_.label + ": " + what + "\n");
  }

  Result<DownloadOutcome> finish(const std::string& digest) {
    if (std::string wrong = wrong_content(item_.path, part_.head()); !wrong.empty()) {
      part_.remove();
      return corrupt("%s: %s", item_.label.c_str(), wrong.c_str());
    }
    INVAR_TRY_VOID(part_.finish(item_.path));
    DownloadOutcome outcome;
    outcome.sha256 = digest;
    outcome.num_bytes = part_.num_bytes();
    outcome.checked = !item_.sha256.empty();
    return outcome;
  }

  // Decides by status and headers what the coming bytes are; an error ends the download.
  Result<void> begin_body(const HttpResponse& response) {
    const std::string etag = response.header("etag");
    uint64_t length = 0;
    if (const std::string text = response.header("content-length"); !text.empty())
      length = std::strtoull(text.c_str(), nullptr, 10);
    if (response.status == 206) {
      const ContentRange range = parse_content_range(response.header("content-range"));
      const bool other_version = !part_.etag().empty() && !etag.empty() && etag != part_.etag();
      if (!range.valid || range.first != part_.num_bytes() || other_version) {
        why_ = other_version ? "the file changed on the server" : "the server sent another range";
        INVAR_TRY_VOID(part_.restart("", item_));
        restart_ = true;
        return {};
      }
      total_ = range.total;
    } else if (response.status == 200) {
      if (part_.num_bytes() > 0)
        say(etag != part_.etag() ? "the file changed on the server; starting over"
                                 : "the server cannot resume; starting over");
      INVAR_TRY_VOID(part_.restart(is_strong_etag(etag) ? etag : "", item_));
      progress_.start_at(0);
      total_ = length;
    } else if (response.status == 416) {
      why_ = "the server has no such range";
      INVAR_TRY_VOID(part_.restart("", item_));
      restart_ = true;
      return {};
    } else if (response.status == 429 || response.status >= 500) {
      why_ = format("the server answered %ld", response.status);
      restart_ = true;
      return {};
    } else if (response.status == 401 || response.status == 403) {
      return unavailable("%s: access refused (%ld); set HF_TOKEN for a private or gated model",
                         item_.label.c_str(), response.status);
    } else {
      return unavailable("%s: %s answered %ld", item_.label.c_str(), response.url.c_str(),
                         response.status);
    }
    if (item_.size > 0 && total_ > 0 && total_ != item_.size) {
      part_.remove();
      return corrupt("%s: the server sends %llu bytes, expected %llu", item_.label.c_str(),
                     static_cast<unsigned long long>(total_),
                     static_cast<unsigned long long>(item_.size));
    }
    if (item_.size == 0 && total_ > 0)
      INVAR_TRY_VOID(check_disk_space(item_.path, total_ - part_.num_bytes()));
    return {};
  }

  Result<void> take_body(std::string_view bytes) {
    const uint64_t limit = item_.size > 0 ? item_.size : total_;
    if (limit > 0 && part_.num_bytes() + bytes.size() > limit) {
      part_.remove();
      return corrupt("%s: the server sends more than the expected %llu bytes", item_.label.c_str(),
                     static_cast<unsigned long long>(limit));
    }
    INVAR_TRY_VOID(part_.append(bytes));
    if (part_.head().size() >= kProbeBytes) {
      if (std::string wrong = wrong_content(item_.path, part_.head()); !wrong.empty()) {
        part_.remove();
        return corrupt("%s: %s", item_.label.c_str(), wrong.c_str());
      }
    }
    progress_.update(part_.num_bytes(), limit);
    return {};
  }

  Result<Attempt> try_once() {
    HttpRequest request;
    request.url = item_.url;
    request.credentials = item_.credentials;
    if (part_.num_bytes() > 0) {
      request.headers.push_back(
          format("Range: bytes=%llu-", static_cast<unsigned long long>(part_.num_bytes())));
      if (is_strong_etag(part_.etag())) request.headers.push_back("If-Range: " + part_.etag());
    }
    restart_ = false;
    total_ = 0;
    const uint64_t before = part_.num_bytes();
    uint64_t received = 0;
    Result<void> state;
    INVAR_TRY(const HttpResult result, http_get(
                                           request,
                                           [&](const HttpResponse& response) {
                                             take_linked_metadata(response);
                                             if (state.ok()) state = begin_body(response);
                                             return state.ok() && !restart_;
                                           },
                                           [&](std::string_view bytes) {
                                             state = take_body(bytes);
                                             received += bytes.size();
                                             return state.ok();
                                           }));
    if (!state) return state.error();
    if (restart_) return Attempt::kVain;
    if (result.transfer == Transfer::kNotReached) {
      why_ = result.what;
      if (!connected_) return unavailable("%s: %s", item_.url.c_str(), why_.c_str());
      return Attempt::kVain;
    }
    connected_ = true;
    const uint64_t total = item_.size > 0 ? item_.size : total_;
    if (result.transfer == Transfer::kInterrupted || (total > 0 && part_.num_bytes() < total)) {
      why_ = result.transfer == Transfer::kInterrupted ? result.what : "the connection ended early";
      return received > 0 && part_.num_bytes() > before ? Attempt::kAgain : Attempt::kVain;
    }
    return Attempt::kDone;
  }

  // The hub's redirect says what the file is, also when we came by URL.
  void take_linked_metadata(const HttpResponse& response) {
    const auto first = [&](const char* name) {
      const auto found = response.first_headers.find(name);
      return found == response.first_headers.end() ? response.header(name) : found->second;
    };
    if (item_.size == 0) {
      if (const std::string size = first("x-linked-size"); !size.empty())
        item_.size = std::strtoull(size.c_str(), nullptr, 10);
    }
    std::string etag = first("x-linked-etag");
    if (etag.size() == 66 && etag.front() == '"') etag = etag.substr(1, 64);
    if (item_.sha256.empty() && etag.size() == 64 &&
        etag.find_first_not_of("0123456789abcdef") == std::string::npos)
      item_.sha256 = etag;
  }

  DownloadItem item_;
  PartFile part_;
  Progress progress_;
  std::string why_;
  uint64_t total_ = 0;    // of the running answer; 0: not said
  bool restart_ = false;  // this answer is of no use
  bool resumed_ = false;
  bool connected_ = false;
};

Result<std::string> file_sha256(const std::string& path) {
  INVAR_TRY(const MappedFile file, MappedFile::open(path));
  return sha256_hex(file.bytes());
}

}  // namespace

Result<void> lock_file(int fd, const std::string& what) {
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return {};
  if (errno == EWOULDBLOCK)
    print_error("invar pull: " + what + ": another process is downloading it; waiting\n");
  while (::flock(fd, LOCK_EX) != 0)
    if (errno != EINTR) return io_error("%s: cannot lock: %s", what.c_str(), std::strerror(errno));
  return {};
}

std::string wrong_content(const std::string& path, std::string_view first) {
  const auto ends_with = [&](std::string_view end) {
    return path.size() >= end.size() &&
           path.compare(path.size() - end.size(), end.size(), end) == 0;
  };
  const size_t text = first.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  std::string found;
  for (const char c : first.substr(0, 8)) found += c >= ' ' && c < 0x7f ? c : '.';
  const bool page = text != std::string_view::npos && first[text] == '<';
  const std::string what = page ? "the server sent a web page ('" + found + "...')"
                                : "the file begins with '" + found + "'";
  if (ends_with(".gguf")) return first.starts_with("GGUF") ? "" : what + ", expected GGUF";
  if (ends_with(".safetensors")) {
    // 8 bytes of header length (at most 100 MB, so bytes 4..7 are zero), then JSON.
    const bool right = first.size() >= 9 && first.substr(4, 4) == std::string_view("\0\0\0\0", 4) &&
                       first[8] == '{';
    return right ? "" : what + ", expected a safetensors header";
  }
  if (ends_with(".json")) {
    const bool right = text != std::string_view::npos && (first[text] == '{' || first[text] == '[');
    return right ? "" : what + ", expected JSON";
  }
  return page && (first.substr(text).starts_with("<!") || first.substr(text).starts_with("<html"))
             ? what
             : "";
}

Result<DownloadOutcome> download(const DownloadItem& item) {
  const auto existing = [&]() -> Result<DownloadOutcome> {
    DownloadOutcome outcome;
    outcome.was_there = true;
    INVAR_TRY(outcome.sha256, file_sha256(item.path));
    struct stat info;
    if (::stat(item.path.c_str(), &info) == 0)
      outcome.num_bytes = static_cast<uint64_t>(info.st_size);
    outcome.checked = !item.sha256.empty();
    if ((outcome.checked && outcome.sha256 != item.sha256) ||
        (item.size > 0 && item.size != outcome.num_bytes))
      return invalid_argument(
          "%s is another file of that name; --force replaces it, --name keeps both",
          item.path.c_str());
    return outcome;
  };
  if (!item.force && file_exists(item.path)) return existing();
  bool done = false;
  INVAR_TRY(PartFile part, PartFile::open(item, done));
  if (done || (!item.force && file_exists(item.path))) {
    if (!done) part.remove();
    return existing();
  }
  return Downloader(item, std::move(part)).run();
}

}  // namespace invar::cli
