// The file format of the packed cache: named sections of bytes, each in blocks with a checksum, so
// that a damaged or half-written file is found out before a byte of it is used. Reading and writing
// one file; which file belongs to which model is packed_cache.h, where files live cache_folder.h.
//
//   0            header: magic, version, where the index is, checksums of index and header
//   4096         stamp: the source files' state when the content was last compared, and its check
//   8192 ...     sections, each from a multiple of 4096 on
//   index        JSON: layout, fingerprint, source_hash, sections with offset, size and the
//                block_hash of each kPackedBlock bytes
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/threads.h"

namespace invar {

inline constexpr size_t kPackedBlock = size_t{256} << 10;

// An open descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_;
};

// What panels in a file were made from and how.
struct PackedIdentity {
  std::string layout;        // BackendInfo::packed_layout
  std::string fingerprint;   // Checkpoint::fingerprint
  uint64_t source_hash = 0;  // of all bytes of the weight files
};

inline constexpr std::string_view kPackedSuffix = ".packed";

class PackedFile {
 public:
  struct Section {
    std::string name;
    uint64_t offset = 0, num_bytes = 0;
    std::vector<uint64_t> block_hashes;
  };

  // Checks header and index, not the sections. The message says what is wrong with the file.
  static Result<PackedFile> open(Descriptor file);

  const PackedIdentity& identity() const { return identity_; }
  const std::vector<Section>& sections() const { return sections_; }
  uint64_t num_bytes() const { return num_bytes_; }

  // The section's bytes, all its blocks checked by the threads of `pool`; null: damaged. They are
  // mapped: quick to have, shared between processes, and the kernel's to drop and read again.
  std::shared_ptr<const uint8_t[]> read(const Section& section, ThreadPool& pool) const;

  // 0: none, or a damaged one.
  uint64_t stamp() const;
  // Damage that an interruption does here is found by the stamp's own check.
  void set_stamp(uint64_t stamp) const;
  // For the least-recently-used order.
  void touch() const;

 private:
  Descriptor file_;
  uint64_t num_bytes_ = 0;
  PackedIdentity identity_;
  std::vector<Section> sections_;
  std::shared_ptr<uint8_t[]> mapping_;  // of the whole file
};

// Writes a packed file into an empty one. The header comes last, so that a file without it is no
// packed file.
class PackedWriter {
 public:
  // `stop`: checked between blocks; set, every call ends with kCancelled.
  PackedWriter(int fd, const std::atomic<bool>& stop) : fd_(fd), stop_(stop) {}

  Result<void> add(const std::string& name, std::span<const uint8_t> bytes);
  // Index, header, and a wait until the disk has it all.
  Result<void> finish(const PackedIdentity& identity, uint64_t stamp);

 private:
  Result<void> write(std::span<const uint8_t> bytes, uint64_t offset);
  int fd_;
  const std::atomic<bool>& stop_;
  uint64_t end_ = 8192;
  uint64_t started_ = 0;  // up to here the disk was asked to write
  std::vector<PackedFile::Section> sections_;
};

}  // namespace invar
