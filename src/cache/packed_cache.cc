#include "cache/packed_cache.h"

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "cache/background_writer.h"
#include "cache/source_files.h"

namespace invar {
namespace {

// Someone waits for the prompt: what could not be written by then is packed again next time.
constexpr std::chrono::seconds kPatience{5};

// The n-th section of a load. The number keeps names apart that the file's own spelling would not;
// other bytes than plain ones are spelled, because the index is JSON.
std::string numbered(size_t number, const std::string& section) {
  std::string name = std::to_string(number) + " ";
  for (const char c : section) {
    if (c >= ' ' && c <= '~' && c != '\\')
      name += c;
    else
      name += format("\\x%02x", static_cast<unsigned char>(c));
  }
  return name;
}

}  // namespace

std::unique_ptr<DiskPackedCache> DiskPackedCache::open(PackedCacheOptions options) {
  auto folder = CacheFolder::open(options.folder, true, kPackedSuffix);
  if (!folder) {
    log(LogLevel::kWarning, "packed cache: %s; weights are packed at every start",
        folder.error().message.c_str());
    return nullptr;
  }
  std::unique_ptr<DiskPackedCache> cache(
      new DiskPackedCache(std::move(options), *std::move(folder)));
  auto file = cache->open_file();
  if (file) {
    file->touch();
    cache->file_ = *std::move(file);
  } else if (file.error().code != ErrorCode::kNotFound) {
    cache->complain(file.error().message);
  }
  return cache;
}

DiskPackedCache::DiskPackedCache(PackedCacheOptions options, CacheFolder folder)
    : options_(std::move(options)), folder_(std::move(folder)) {
  name_ = options_.fingerprint.substr(0, 32) + "." + options_.backend + std::string(kPackedSuffix);
  stamp_ = options_.source.stamp();
}

Result<PackedFile> DiskPackedCache::open_file() {
  INVAR_TRY(Descriptor descriptor, folder_.open_file(name_));
  INVAR_TRY(PackedFile file, PackedFile::open(std::move(descriptor)));
  const PackedIdentity& identity = file.identity();
  if (identity.fingerprint != options_.fingerprint) return corrupt("is of another model");
  if (identity.layout != options_.layout)
    return unsupported("has layout %s, this build reads %s", identity.layout.c_str(),
                       options_.layout.c_str());
  if (stamp_ != 0 && file.stamp() == stamp_) return file;
  INVAR_TRY(const uint64_t hash, source_hash(options_.source, options_.num_threads, stop_));
  if (hash != identity.source_hash) return corrupt("was made from other weights of the same name");
  // Only if nobody wrote to the weights while they were hashed.
  if (stamp_ != 0 && options_.source.are_unchanged()) file.set_stamp(stamp_);
  return file;
}

void DiskPackedCache::complain(const std::string& what) {
  if (has_complained_) return;
  has_complained_ = true;
  log(LogLevel::kWarning, "packed cache: %s %s; weights are packed again", path().c_str(),
      what.c_str());
}

std::shared_ptr<const uint8_t[]> DiskPackedCache::find(const std::string& section, size_t num_bytes,
                                                       ThreadPool& pool) {
  if (!file_) return nullptr;
  const size_t number = kept_.size();
  const std::string name = numbered(number, section);
  if (number >= file_->sections().size() || file_->sections()[number].name != name ||
      file_->sections()[number].num_bytes != num_bytes) {
    complain("has other matrices");
    return nullptr;
  }
  std::shared_ptr<const uint8_t[]> memory = file_->read(file_->sections()[number], pool);
  if (memory == nullptr) {
    complain("is damaged");
    return nullptr;
  }
  kept_.push_back({name, memory, num_bytes});
  return memory;
}

void DiskPackedCache::keep(const std::string& section, std::shared_ptr<const uint8_t[]> memory,
                           size_t num_bytes) {
  is_missing_any_ = true;
  kept_.push_back({numbered(kept_.size(), section), std::move(memory), num_bytes});
}

uint64_t DiskPackedCache::kept_bytes() const {
  uint64_t sum = 0;
  for (const Kept& kept : kept_) sum += kept.num_bytes;
  return sum;
}

void DiskPackedCache::finish() {
  if (kept_.empty()) return;
  file_.reset();
  if (!is_missing_any_) {
    log(LogLevel::kInfo, "packed cache: %llu bytes read from %s",
        static_cast<unsigned long long>(kept_bytes()), path().c_str());
    kept_.clear();
    state_ = State::kComplete;
    return;
  }
  state_ = State::kWriting;
  has_ended_ = false;
  writer_ = std::thread([this] { write_all(); });
}

void DiskPackedCache::write_all() {
  prepare_background_writer();
  const auto written = write_file();
  if (!written) {
    state_ = State::kNotWritten;
    if (written.error().code == ErrorCode::kCancelled)
      log(LogLevel::kInfo, "packed cache: the end of the process stopped the writing of %s",
          path().c_str());
    else
      log(LogLevel::kWarning, "packed cache: %s is not written: %s", path().c_str(),
          written.error().message.c_str());
  } else {
    state_ = *written ? State::kWritten : State::kNotWritten;
  }
  kept_.clear();
  const std::lock_guard lock(mutex_);
  has_ended_ = true;
  ended_.notify_all();
}

Result<bool> DiskPackedCache::write_file() {
  folder_.remove_abandoned();
  const uint64_t num_bytes = kept_bytes();
  std::vector<std::string> removed;
  if (!folder_.make_room(num_bytes, options_.max_bytes, name_, removed)) {
    log(LogLevel::kInfo, "packed cache: %llu bytes are more than the limit of %llu",
        static_cast<unsigned long long>(num_bytes),
        static_cast<unsigned long long>(options_.max_bytes));
    return false;
  }
  INVAR_TRY_VOID(folder_.check_disk(num_bytes));
  INVAR_TRY(auto temporary, folder_.create_temporary(name_));
  if (!temporary) return false;  // another process writes the same

  const auto write = [&]() -> Result<void> {
    PackedWriter writer(temporary->file.get(), stop_);
    for (const Kept& kept : kept_)
      INVAR_TRY_VOID(writer.add(kept.name, {kept.memory.get(), kept.num_bytes}));
    PackedIdentity identity{options_.layout, options_.fingerprint, 0};
    INVAR_TRY(identity.source_hash, source_hash(options_.source, 1, stop_));
    // Panels and hash are of the same bytes only if nobody wrote in between.
    if (!options_.source.are_unchanged())
      return corrupt("the weights changed while they were read");
    INVAR_TRY_VOID(writer.finish(identity, stamp_));
    return folder_.publish(*temporary, name_);
  };
  if (auto written = write(); !written) {
    folder_.remove(temporary->name);
    return written.error();
  }
  log(LogLevel::kInfo, "packed cache: %llu bytes written to %s, %zu older files removed",
      static_cast<unsigned long long>(num_bytes), path().c_str(), removed.size());
  return true;
}

void DiskPackedCache::wait() {
  if (writer_.joinable()) writer_.join();
}

DiskPackedCache::~DiskPackedCache() {
  {
    std::unique_lock lock(mutex_);
    ended_.wait_for(lock, kPatience, [&] { return has_ended_; });
  }
  stop_ = true;
  wait();
}

std::string DiskPackedCache::describe() const {
  switch (state_.load()) {
    case State::kReading:
      return "being read";
    case State::kComplete:
      return "read from the packed cache";
    case State::kWriting:
      return "packed now, being written to the packed cache";
    case State::kWritten:
      return "packed now, written to the packed cache";
    case State::kNotWritten:
      break;
  }
  return "packed now, not written to the packed cache";
}

}  // namespace invar
