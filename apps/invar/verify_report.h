// What `invar verify` prints: what was tried, what was compared, and the first difference.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "verify_rounds.h"

namespace invar::cli {

struct VerifyRow {
  std::optional<EngineSetting> setting;  // nothing: a server's own
  VerifyRound round;
  RoundResult result;
  int64_t num_preemptions = -1;  // -1: unknown
};

struct VerifyReport {
  std::string target;  // path or URL
  std::string about;   // "llama Q4_1 on cpu (avx2)"
  std::string arithmetic_id, model_sha;
  uint64_t seed = 0;
  std::vector<VerifyRequest> requests;
  std::vector<Outcome> alone;
  std::optional<EngineSetting> reference;
  double alone_seconds = 0;
  std::vector<VerifyRow> rows;
  std::vector<std::string> left_out;
  std::string tuning_path;  // what rounds with these threads run with (tuning.h); "": nothing

  // Of the last row, where the work stopped.
  const Difference* difference() const {
    return rows.empty() || !rows.back().result.difference ? nullptr
                                                          : &*rows.back().result.difference;
  }
};

std::string verify_table(const VerifyReport& report);
Json verify_json(const VerifyReport& report);

}  // namespace invar::cli
