// Logits on disk: what `invar eval --save-logits` writes and `--against-logits` reads. One line of
// JSON after the magic line, then fp32 rows in the order in which they were scored.
#pragma once

#include <cstdint>
#include <fstream>
#include <span>
#include <string>

#include "base/result.h"

namespace invar::cli {

struct LogitFileHeader {
  int64_t vocab_size = 0;
  int64_t num_rows = 0;
  std::string ids_sha;  // of all scored ids, window after window: both sides must read the same
  std::string model, model_sha, arithmetic_id;
};

// Written beside FILE and renamed when complete.
class LogitWriter {
 public:
  static Result<LogitWriter> create(const std::string& path, const LogitFileHeader& header);
  Result<void> add(std::span<const float> logits);
  Result<void> finish();

 private:
  std::string path_;
  std::ofstream out_;
};

class LogitReader {
 public:
  // Checks the header and that the file has all rows.
  static Result<LogitReader> open(const std::string& path);
  const LogitFileHeader& header() const { return header_; }
  bool next(std::span<float> logits);  // false: nothing more can be read

 private:
  LogitFileHeader header_;
  std::ifstream in_;
};

}  // namespace invar::cli
