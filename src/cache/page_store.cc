#include "cache/page_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "base/block_hash.h"
#include "base/hash.h"
#include "base/log.h"
#include "cache/background_writer.h"

namespace invar {
namespace {

constexpr std::string_view kSuffix = ".kvpage";
constexpr size_t kMaxWaitingBytes = 256 << 20;
constexpr char kMagic[8] = {'I', 'N', 'V', 'A', 'R', 'K', 'V', '1'};

// The file: this, the tokens as 4 bytes little-endian each, the page.
struct Header {
  char magic[8];
  char key[64];
  uint64_t num_tokens;
  uint64_t num_bytes;
  uint64_t hash;  // block_hash of the page, plus that of the tokens
};
static_assert(sizeof(Header) == 96);

std::string file_name(const PageStore::Key& key) { return key + std::string(kSuffix); }

std::span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::span<const uint8_t> bytes_of(std::span<const int32_t> tokens) {
  return {reinterpret_cast<const uint8_t*>(tokens.data()), tokens.size_bytes()};
}

Header header_of(const PageStore::Key& key, std::span<const int32_t> tokens,
                 std::span<const uint8_t> page) {
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof header.magic);
  std::memcpy(header.key, key.data(), sizeof header.key);
  header.num_tokens = tokens.size();
  header.num_bytes = page.size();
  header.hash = block_hash(page) + block_hash(bytes_of(tokens));
  return header;
}

bool write_all_bytes(int fd, const void* data, size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = ::write(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

bool read_all_bytes(int fd, void* data, size_t size) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t n = ::read(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

std::unique_ptr<PageStore> PageStore::open(PageStoreOptions options) {
  Result<CacheFolder> folder = CacheFolder::open(options.folder, true, kSuffix);
  if (!folder) {
    log(LogLevel::kWarning, "no pages are kept on disk: %s", folder.error().message.c_str());
    return nullptr;
  }
  folder->remove_abandoned();
  return std::unique_ptr<PageStore>(new PageStore(std::move(options), *std::move(folder)));
}

PageStore::PageStore(PageStoreOptions options, CacheFolder folder)
    : options_(std::move(options)), folder_(std::move(folder)) {
  for (const CacheFolder::Entry& entry : folder_.list())
    keys_.insert(entry.name.substr(0, entry.name.size() - kSuffix.size()));
  writer_ = std::thread([this] { write_all(); });
}

PageStore::~PageStore() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  writer_.join();
  log(LogLevel::kInfo, "%s: %lld pages loaded, %lld written, %lld damaged, %lld left out",
      folder_.path().c_str(), static_cast<long long>(counts_.num_loaded),
      static_cast<long long>(counts_.num_saved), static_cast<long long>(counts_.num_damaged),
      static_cast<long long>(counts_.num_left_out));
}

PageStore::Key PageStore::root_key(std::string_view salt) const {
  // Lengths first: no identity and salt can be cut in another way.
  return sha256_hex(bytes_of(std::to_string(options_.identity.size()) + ":" + options_.identity +
                             std::string(salt)));
}

PageStore::Key PageStore::next_key(const Key& before, std::span<const int32_t> page_tokens) {
  Sha256 hash;
  hash.update(bytes_of(before));
  hash.update(bytes_of(page_tokens));
  return hash.hex_digest();
}

bool PageStore::has(const Key& key) const {
  const std::lock_guard lock(mutex_);
  return keys_.contains(key);
}

void PageStore::forget(const Key& key) {
  const std::lock_guard lock(mutex_);
  keys_.erase(key);
}

std::optional<std::vector<uint8_t>> PageStore::load(const Key& key,
                                                    std::span<const int32_t> tokens) {
  {
    // Before the folder: the writer takes a page from here when its file is there.
    const std::lock_guard lock(mutex_);
    for (const Waiting& page : waiting_)
      if (page.key == key) return page.bytes;
  }
  const std::string name = file_name(key);
  const Result<Descriptor> file = folder_.open_file(name);
  if (!file) {  // another process made room
    forget(key);
    return std::nullopt;
  }
  Header header;
  std::vector<int32_t> found(tokens.size());
  std::vector<uint8_t> page(options_.page_bytes);
  char more = 0;
  const bool is_read = read_all_bytes(file->get(), &header, sizeof header) &&
                       read_all_bytes(file->get(), found.data(), tokens.size_bytes()) &&
                       read_all_bytes(file->get(), page.data(), page.size()) &&
                       ::read(file->get(), &more, 1) == 0;
  const Header expected = header_of(key, found, page);
  if (!is_read || std::memcmp(&header, &expected, sizeof header) != 0 ||
      !std::equal(found.begin(), found.end(), tokens.begin())) {
    log(LogLevel::kWarning, "%s/%s is damaged; it is set aside and computed again",
        folder_.path().c_str(), name.c_str());
    folder_.set_aside(name);
    forget(key);
    const std::lock_guard lock(mutex_);
    ++counts_.num_damaged;
    return std::nullopt;
  }
  ::futimens(file->get(), nullptr);  // used last
  const std::lock_guard lock(mutex_);
  ++counts_.num_loaded;
  return page;
}

size_t PageStore::take_room(size_t num_pages) {
  const std::lock_guard lock(mutex_);
  const size_t room =
      (kMaxWaitingBytes - waiting_bytes_) / std::max<size_t>(options_.page_bytes, 1);
  if (room >= num_pages) return num_pages;
  if (counts_.num_left_out == 0)
    log(LogLevel::kWarning, "%s: pages are left out, because so many wait to be written already",
        folder_.path().c_str());
  counts_.num_left_out += static_cast<int64_t>(num_pages - room);
  return room;
}

void PageStore::save(const Key& key, std::span<const int32_t> tokens, std::vector<uint8_t> bytes) {
  // Whatever takes memory comes first, so that nothing is half done where there is none.
  std::set<Key> named = {key};
  const size_t num_bytes = bytes.size();
  Waiting page{key, {tokens.begin(), tokens.end()}, std::move(bytes), {}};
  {
    const std::lock_guard lock(mutex_);
    if (keys_.contains(key) || waiting_bytes_ + num_bytes > kMaxWaitingBytes) return;
    waiting_.push_back(std::move(page));
    waiting_bytes_ += num_bytes;
    keys_.merge(named);
  }
  changed_.notify_all();
}

void PageStore::touch(std::vector<Key> keys) {
  if (keys.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({{}, {}, {}, std::move(keys)});
  }
  changed_.notify_all();
}

void PageStore::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return waiting_.empty(); });
}

PageStore::Counts PageStore::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void PageStore::write_all() {
  prepare_background_writer();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const Waiting& page = waiting_.front();  // stays there, where load() finds it
    lock.unlock();
    bool is_written = false;
    try {
      is_written = write(page);
    } catch (const std::bad_alloc&) {  // then it is not kept
    }
    lock.lock();
    if (!is_written)
      keys_.erase(page.key);
    else if (page.touched.empty())
      ++counts_.num_saved;
    waiting_bytes_ -= page.bytes.size();
    waiting_.pop_front();
    changed_.notify_all();
  }
}

bool PageStore::write(const Waiting& page) {
  if (!page.touched.empty()) {
    touch_all(page.touched);
    return true;
  }
  return publish(page);
}

void PageStore::touch_all(const std::vector<Key>& keys) {
  // Later than what was just written, whose times are the kernel's and may be some milliseconds
  // behind; never the same time twice.
  const int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  last_touch_ns_ = std::max(now, last_touch_ns_ + 1);
  for (size_t i = keys.size(); i-- > 0;) folder_.set_used(file_name(keys[i]), last_touch_ns_++);
}

bool PageStore::publish(const Waiting& page) {
  const std::string name = file_name(page.key);
  const auto complain = [&](const std::string& what) {
    log(LogLevel::kWarning, "a page was not kept on disk: %s", what.c_str());
    return false;
  };
  const uint64_t num_bytes = sizeof(Header) + page.tokens.size() * 4 + page.bytes.size();
  std::vector<std::string> removed;
  const bool fits = folder_.make_room(num_bytes, options_.max_bytes, name, removed);
  for (const std::string& other : removed) forget(other.substr(0, other.size() - kSuffix.size()));
  if (!fits) return complain("it is larger than the limit of the folder");
  if (const Result<void> checked = folder_.check_disk(num_bytes); !checked)
    return complain(checked.error().message);
  Result<std::optional<CacheFolder::Temporary>> temporary = folder_.create_temporary(name);
  if (!temporary) return complain(temporary.error().message);
  if (!*temporary) return true;  // another process writes the same
  const int fd = (*temporary)->file.get();
  const Header header = header_of(page.key, page.tokens, page.bytes);
  if (!write_all_bytes(fd, &header, sizeof header) ||
      !write_all_bytes(fd, page.tokens.data(), page.tokens.size() * 4) ||
      !write_all_bytes(fd, page.bytes.data(), page.bytes.size())) {
    const std::string cause = std::strerror(errno);
    folder_.remove((*temporary)->name);
    return complain(cause);
  }
  const Result<void> published = folder_.publish(**temporary, name);
  return published ? true : complain(published.error().message);
}

}  // namespace invar
