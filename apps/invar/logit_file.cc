#include "logit_file.h"

#include <sys/statvfs.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/json.h"
#include "terminal.h"

namespace invar::cli {
namespace {

constexpr const char* kMagic = "invar-logits-1\n";
constexpr size_t kMaxHeader = 4096;

}  // namespace

Result<LogitWriter> LogitWriter::create(const std::string& path, const LogitFileHeader& header) {
  LogitWriter writer;
  writer.path_ = path;
  writer.out_.open(path + ".part", std::ios::binary | std::ios::trunc);
  if (!writer.out_) return io_error("%s: cannot write: %s", path.c_str(), std::strerror(errno));
  const auto bytes = static_cast<uint64_t>(header.num_rows) *
                     static_cast<uint64_t>(header.vocab_size) * sizeof(float);
  struct statvfs info;
  if (::statvfs((path + ".part").c_str(), &info) == 0 &&
      uint64_t{info.f_bavail} * info.f_frsize < bytes) {
    std::remove((path + ".part").c_str());
    return resource_exhausted("%s: %lld rows need %s, the disk has %s free; use fewer --tokens",
                              path.c_str(), static_cast<long long>(header.num_rows),
                              human_bytes(bytes).c_str(),
                              human_bytes(uint64_t{info.f_bavail} * info.f_frsize).c_str());
  }
  Json json = Json::object();
  json.set("vocab_size", header.vocab_size);
  json.set("num_rows", header.num_rows);
  json.set("ids_sha", header.ids_sha);
  json.set("model", header.model);
  json.set("model_sha", header.model_sha);
  json.set("arithmetic_id", header.arithmetic_id);
  writer.out_ << kMagic << json.dump() << "\n";
  return writer;
}

Result<void> LogitWriter::add(std::span<const float> logits) {
  out_.write(reinterpret_cast<const char*>(logits.data()),
             static_cast<std::streamsize>(logits.size_bytes()));
  if (!out_) return io_error("%s: cannot write: %s", path_.c_str(), std::strerror(errno));
  return {};
}

Result<void> LogitWriter::finish() {
  out_.close();
  if (!out_ || std::rename((path_ + ".part").c_str(), path_.c_str()) != 0)
    return io_error("%s: cannot write: %s", path_.c_str(), std::strerror(errno));
  return {};
}

Result<LogitReader> LogitReader::open(const std::string& path) {
  LogitReader reader;
  reader.in_.open(path, std::ios::binary);
  if (!reader.in_) return not_found("%s: cannot read: %s", path.c_str(), std::strerror(errno));
  std::string magic(std::strlen(kMagic), '\0');
  reader.in_.read(magic.data(), static_cast<std::streamsize>(magic.size()));
  std::string line;
  for (char c; line.size() < kMaxHeader && reader.in_.get(c) && c != '\n';) line += c;
  const Result<Json> json = Json::parse(line);
  if (magic != kMagic || !json)
    return corrupt("%s: no file of `invar eval --save-logits`", path.c_str());
  LogitFileHeader& header = reader.header_;
  INVAR_TRY(header.vocab_size, json->required<int64_t>("vocab_size"));
  INVAR_TRY(header.num_rows, json->required<int64_t>("num_rows"));
  INVAR_TRY(header.ids_sha, json->required<std::string>("ids_sha"));
  INVAR_TRY(header.model, json->required<std::string>("model"));
  INVAR_TRY(header.model_sha, json->required<std::string>("model_sha"));
  INVAR_TRY(header.arithmetic_id, json->required<std::string>("arithmetic_id"));
  const auto begin = reader.in_.tellg();
  reader.in_.seekg(0, std::ios::end);
  const auto have = static_cast<uint64_t>(reader.in_.tellg() - begin);
  reader.in_.seekg(begin);
  if (header.vocab_size < 1 || header.vocab_size > (1 << 24) || header.num_rows < 0 ||
      header.num_rows > (int64_t{1} << 36) ||
      have != static_cast<uint64_t>(header.num_rows) * static_cast<uint64_t>(header.vocab_size) *
                  sizeof(float))
    return corrupt("%s: %llu bytes of logits, expected %lld rows of %lld", path.c_str(),
                   static_cast<unsigned long long>(have), static_cast<long long>(header.num_rows),
                   static_cast<long long>(header.vocab_size));
  return reader;
}

bool LogitReader::next(std::span<float> logits) {
  in_.read(reinterpret_cast<char*>(logits.data()),
           static_cast<std::streamsize>(logits.size_bytes()));
  return static_cast<bool>(in_);
}

}  // namespace invar::cli
