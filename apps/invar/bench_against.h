// The comparison of `invar bench`: runs another command and reads the tokens per second it prints.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "bench_cases.h"

namespace invar::cli {

// A case and what the other command made of it.
struct OtherResult {
  BenchCase what;
  double tokens_per_second = 0;
};

// `command` runs in a shell; its standard output is a JSON object with "results", an array of
// objects, or one object a line. Each has "tokens_per_second" and says which case it is: "work"
// ("prefill" or "decode"), "tokens", "depth" (0), "sequences" (1). `invar bench --json` and
// bench/peer.py print this form.
Result<std::vector<OtherResult>> run_other(const std::string& command);
Result<std::vector<OtherResult>> parse_other(const std::string& text);

// Ours over theirs, a ratio for each round that both measured.
struct Comparison {
  BenchCase what;
  std::vector<double> ours, theirs;  // tokens a second, by round
  std::vector<double> ratios() const;
};

}  // namespace invar::cli
