// Reading: nothing of the file is believed before its check fits, and no number in it is used
// before it is in range. Files come from our own folder, but a disk, a crash or another program may
// have been at them.
#include "cache/packed_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/block_hash.h"
#include "base/json.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22  // Linux 5.14
#endif

namespace invar {
namespace {

constexpr uint64_t kAlignment = 4096;
constexpr uint64_t kStampOffset = 4096;
constexpr uint64_t kDataOffset = 8192;
constexpr uint64_t kMaxIndexBytes = uint64_t{256} << 20;
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 46;
constexpr char kMagic[8] = {'I', 'N', 'V', 'A', 'R', 'P', 'A', 'K'};
constexpr uint32_t kFormatVersion = 1;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t block_bytes;
  uint64_t file_bytes;
  uint64_t index_offset;
  uint64_t index_bytes;
  uint64_t index_hash;
  uint64_t header_hash;  // of all before
};
static_assert(sizeof(Header) == 56);

struct Stamp {
  uint64_t stamp;
  uint64_t check;
};

template <typename T>
std::span<const uint8_t> bytes_of(const T& value, size_t size = sizeof(T)) {
  return {reinterpret_cast<const uint8_t*>(&value), size};
}

uint64_t header_hash(const Header& header) {
  return block_hash(bytes_of(header, offsetof(Header, header_hash)));
}

uint64_t stamp_check(uint64_t stamp) { return block_hash(bytes_of(stamp)); }

bool read_at(int fd, void* out, size_t size, uint64_t offset) {
  auto* bytes = static_cast<uint8_t*>(out);
  while (size > 0) {
    const ssize_t count = ::pread(fd, bytes, size, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes += count;
    offset += static_cast<uint64_t>(count);
    size -= static_cast<size_t>(count);
  }
  return true;
}

// Fixed-width hexadecimal: JSON numbers would lose the upper bits.
std::string hex(uint64_t value) {
  return format("%016llx", static_cast<unsigned long long>(value));
}

bool parse_hex(std::string_view text, uint64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return text.size() == 16 && error == std::errc() && end == text.data() + text.size();
}

Result<PackedFile::Section> parse_section(const Json& json, uint64_t begin, uint64_t end) {
  PackedFile::Section section;
  INVAR_TRY(section.name, json.required<std::string>("name"));
  INVAR_TRY(const int64_t offset, json.required<int64_t>("offset"));
  INVAR_TRY(const int64_t size, json.required<int64_t>("bytes"));
  INVAR_TRY(const std::string hashes, json.required<std::string>("hashes"));
  section.offset = static_cast<uint64_t>(offset);
  section.num_bytes = static_cast<uint64_t>(size);
  if (offset < 0 || size < 1 || section.offset < begin || section.offset > end ||
      section.num_bytes > end - section.offset)
    return corrupt("a section lies outside of the data");
  if (hashes.size() != (section.num_bytes + kPackedBlock - 1) / kPackedBlock * 16)
    return corrupt("a section's checksums do not fit its size");
  section.block_hashes.resize(hashes.size() / 16);
  for (size_t i = 0; i < section.block_hashes.size(); ++i)
    if (!parse_hex(std::string_view(hashes).substr(i * 16, 16), section.block_hashes[i]))
      return corrupt("a section's checksum is no number");
  return section;
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Result<PackedFile> PackedFile::open(Descriptor descriptor) {
  PackedFile file;
  file.file_ = std::move(descriptor);
  struct stat info;
  if (::fstat(file.file_.get(), &info) != 0) return io_error("cannot stat: %s", strerror(errno));
  Header header;
  if (static_cast<uint64_t>(info.st_size) < kDataOffset ||
      !read_at(file.file_.get(), &header, sizeof header, 0))
    return corrupt("is cut off");
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return corrupt("has no header");
  if (header.version != kFormatVersion || header.block_bytes != kPackedBlock)
    return unsupported("has format version %u, this build reads %u", header.version,
                       kFormatVersion);
  if (header.header_hash != header_hash(header)) return corrupt("has a damaged header");
  file.num_bytes_ = header.file_bytes;
  if (header.file_bytes != static_cast<uint64_t>(info.st_size) || header.file_bytes > kMaxFileBytes)
    return corrupt("has %lld bytes, its header says %llu", static_cast<long long>(info.st_size),
                   static_cast<unsigned long long>(header.file_bytes));
  if (header.index_bytes > kMaxIndexBytes || header.index_offset < kDataOffset ||
      header.index_offset > header.file_bytes ||
      header.index_bytes != header.file_bytes - header.index_offset)
    return corrupt("has its index in the wrong place");
  std::string text(header.index_bytes, '\0');
  if (!read_at(file.file_.get(), text.data(), text.size(), header.index_offset))
    return io_error("cannot read the index");
  if (block_hash({reinterpret_cast<const uint8_t*>(text.data()), text.size()}) != header.index_hash)
    return corrupt("has a damaged index");

  INVAR_TRY(const Json index, Json::parse(text));
  INVAR_TRY(file.identity_.layout, index.required<std::string>("layout"));
  INVAR_TRY(file.identity_.fingerprint, index.required<std::string>("fingerprint"));
  INVAR_TRY(const std::string source_hash, index.required<std::string>("source_hash"));
  const Json* sections = index.find("sections");
  if (!parse_hex(source_hash, file.identity_.source_hash) || sections == nullptr ||
      !sections->is_array())
    return corrupt("has a strange index");
  uint64_t begin = kDataOffset;
  for (const Json& json : sections->items()) {
    INVAR_TRY(Section section, parse_section(json, begin, header.index_offset));
    begin = section.offset + section.num_bytes;
    file.sections_.push_back(std::move(section));
  }

  const size_t size = file.num_bytes_;
  void* mapping = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.file_.get(), 0);
  if (mapping == MAP_FAILED) return io_error("cannot be mapped: %s", std::strerror(errno));
  file.mapping_ = {static_cast<uint8_t*>(mapping), [size](uint8_t* data) { ::munmap(data, size); }};
  ::madvise(mapping, size, MADV_HUGEPAGE);  // where the file system has such pages
  ::madvise(mapping, size, MADV_WILLNEED);
  return file;
}

std::shared_ptr<const uint8_t[]> PackedFile::read(const Section& section, ThreadPool& pool) const {
  uint8_t* data = mapping_.get() + section.offset;
  std::atomic<bool> sound = true;
  pool.run(static_cast<int64_t>(section.block_hashes.size()), [&](int64_t first, int64_t end, int) {
    for (int64_t i = first; i < end && sound; ++i) {
      const size_t at = static_cast<size_t>(i) * kPackedBlock;
      const size_t size = std::min<size_t>(kPackedBlock, section.num_bytes - at);
      // Brings the pages in at once, and says EFAULT where touching one would be a SIGBUS: a bad
      // disk, or a file that became shorter. Kernels before 5.14 do not know it.
      if ((::madvise(data + at, size, MADV_POPULATE_READ) != 0 && errno == EFAULT) ||
          block_hash({data + at, size}) != section.block_hashes[static_cast<size_t>(i)])
        sound = false;
    }
  });
  if (!sound) return nullptr;
  return {mapping_, data};
}

uint64_t PackedFile::stamp() const {
  Stamp stamp;
  if (!read_at(file_.get(), &stamp, sizeof stamp, kStampOffset)) return 0;
  return stamp.check == stamp_check(stamp.stamp) ? stamp.stamp : 0;
}

void PackedFile::set_stamp(uint64_t stamp) const {
  const Stamp block{stamp, stamp_check(stamp)};
  // A failure only means that the next start compares the content again.
  [[maybe_unused]] const ssize_t written =
      ::pwrite(file_.get(), &block, sizeof block, static_cast<off_t>(kStampOffset));
}

void PackedFile::touch() const { ::futimens(file_.get(), nullptr); }

Result<void> PackedWriter::write(std::span<const uint8_t> bytes, uint64_t offset) {
  // The disk begins early and is never far behind, so that stop_ is heard soon.
  constexpr uint64_t kAhead = uint64_t{32} << 20;
  while (!bytes.empty()) {
    if (stop_) return cancelled("stopped");
    const ssize_t count = ::pwrite(fd_, bytes.data(), std::min(bytes.size(), kPackedBlock),
                                   static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return io_error("%s", std::strerror(errno));
    if (count == 0) return io_error("the disk takes no more");
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
    if (offset < started_ + kAhead) continue;
    ::sync_file_range(fd_, static_cast<off_t>(started_), static_cast<off_t>(offset - started_),
                      SYNC_FILE_RANGE_WRITE);
    if (started_ >= kAhead)
      ::sync_file_range(
          fd_, static_cast<off_t>(started_ - kAhead), static_cast<off_t>(kAhead),
          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    started_ = offset;
  }
  return {};
}

Result<void> PackedWriter::add(const std::string& name, std::span<const uint8_t> bytes) {
  PackedFile::Section section;
  section.name = name;
  section.offset = end_;
  section.num_bytes = bytes.size();
  for (size_t at = 0; at < bytes.size(); at += kPackedBlock) {
    const auto block = bytes.subspan(at, std::min(kPackedBlock, bytes.size() - at));
    section.block_hashes.push_back(block_hash(block));
    INVAR_TRY_VOID(write(block, end_ + at));
  }
  end_ = (end_ + bytes.size() + kAlignment - 1) / kAlignment * kAlignment;
  sections_.push_back(std::move(section));
  return {};
}

Result<void> PackedWriter::finish(const PackedIdentity& identity, uint64_t stamp) {
  Json sections = Json::array();
  for (const PackedFile::Section& section : sections_) {
    std::string hashes;
    for (const uint64_t hash : section.block_hashes) hashes += hex(hash);
    Json json = Json::object();
    json.set("name", section.name);
    json.set("offset", static_cast<int64_t>(section.offset));
    json.set("bytes", static_cast<int64_t>(section.num_bytes));
    json.set("hashes", std::move(hashes));
    sections.push_back(std::move(json));
  }
  Json index = Json::object();
  index.set("layout", identity.layout);
  index.set("fingerprint", identity.fingerprint);
  index.set("source_hash", hex(identity.source_hash));
  index.set("sections", std::move(sections));
  const std::string text = index.dump();
  const std::span<const uint8_t> text_bytes(reinterpret_cast<const uint8_t*>(text.data()),
                                            text.size());
  INVAR_TRY_VOID(write(text_bytes, end_));

  const Stamp block{stamp, stamp_check(stamp)};
  INVAR_TRY_VOID(write(bytes_of(block), kStampOffset));
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kFormatVersion;
  header.block_bytes = kPackedBlock;
  header.file_bytes = end_ + text.size();
  header.index_offset = end_;
  header.index_bytes = text.size();
  header.index_hash = block_hash(text_bytes);
  header.header_hash = header_hash(header);
  INVAR_TRY_VOID(write(bytes_of(header), 0));
  if (::fsync(fd_) != 0) return io_error("%s", std::strerror(errno));
  return {};
}

}  // namespace invar
