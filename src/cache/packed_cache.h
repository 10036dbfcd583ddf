// Packed weights kept on disk between starts: one file for each model and backend. The backend asks
// for each matrix while a model is loaded (PackedCache in backend.h); what was not there is packed
// and written afterwards, in the background. Nothing that goes wrong here is an error of the load:
// the matrix is packed again, and one log line says why.
//
// What a file is good for: the same layout (BackendInfo::packed_layout), the same fingerprint
// (size, headers and samples of the weight files) and the same bytes in all of them. The last is
// not read at every start: the file remembers the state of the weight files (FileState), and only
// when that differs, or the weights changed moments ago, all bytes are hashed and compared. So a
// change that keeps size, inode, mtime, ctime and every sample is missed: only a change below the
// file system could be one.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "cache/cache_folder.h"
#include "cache/source_files.h"

namespace invar {

struct PackedCacheOptions {
  std::string folder;
  uint64_t max_bytes = 0;   // of all files in the folder
  std::string backend;      // part of the file's name
  std::string layout;       // BackendInfo::packed_layout
  std::string fingerprint;  // Checkpoint::fingerprint
  SourceFiles source;       // the checkpoint's weight files
  int num_threads = 1;      // for hashing the weight files, where that is needed
};

class DiskPackedCache final : public PackedCache {
 public:
  // Null, with a log line, when the folder cannot be used at all.
  static std::unique_ptr<DiskPackedCache> open(PackedCacheOptions options);
  ~DiskPackedCache() override;  // waits a few seconds for a writer, then stops it

  bool is_filled() const override { return file_.has_value(); }
  std::shared_ptr<const uint8_t[]> find(const std::string& section, size_t num_bytes,
                                        ThreadPool& pool) override;
  void keep(const std::string& section, std::shared_ptr<const uint8_t[]> memory,
            size_t num_bytes) override;

  // The model is complete: begins to write what was not there, if anything.
  void finish();
  // Until the writer has ended.
  void wait();

  enum class State { kReading, kComplete, kWriting, kWritten, kNotWritten };
  State state() const { return state_; }
  // "read from the packed cache", ...: one phrase for people.
  std::string describe() const;

  std::string path() const { return folder_.path() + "/" + name_; }

 private:
  struct Kept {
    std::string name;
    std::shared_ptr<const uint8_t[]> memory;
    size_t num_bytes;
  };

  DiskPackedCache(PackedCacheOptions options, CacheFolder folder);
  // Opens the file and decides whether it is this model's.
  Result<PackedFile> open_file();
  void complain(const std::string& what);
  void write_all();
  Result<bool> write_file();  // false: not written, and that is no fault
  uint64_t kept_bytes() const;

  PackedCacheOptions options_;
  CacheFolder folder_;
  std::string name_;
  uint64_t stamp_ = 0;  // of the weight files when they were opened
  std::optional<PackedFile> file_;
  std::vector<Kept> kept_;  // in order of the calls
  bool is_missing_any_ = false;
  bool has_complained_ = false;

  std::atomic<State> state_ = State::kReading;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool has_ended_ = true;
  std::thread writer_;
};

}  // namespace invar
