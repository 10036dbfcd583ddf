// Asking in company and comparing with what came alone. Knows targets and requests, prints nothing.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "verify_target.h"

namespace invar::cli {

// How a round asks.
struct VerifyRound {
  enum class Use { kOff, kOn, kMixed };
  int in_flight = 1;  // requests at a time, at most
  Use cache = Use::kOn;
  Use stream = Use::kOff;
  bool cuts = true;  // a sixth as many requests more, which go away half way
  int part = 1;      // of the requests, every part-th is asked
};
const char* use_name(VerifyRound::Use use);  // "on", "off", "mixed"

// Where a reply is not what it was alone.
struct Difference {
  int request = 0;
  int choice = 0;
  std::string what;       // "tokens", "log-probability", "text", "finish_reason", "seed", "error"
  int64_t position = -1;  // of the token; -1: unknown
  std::string expected, found;
  bool use_cache = false, stream = false;
  std::vector<std::string> company;  // "12", "31 (left after 4 events)"
  // The same request alone, once more, in the same way; empty: not asked.
  std::string again;
};

struct RoundResult {
  int num_requests = 0;  // asked for the whole reply
  int num_cut = 0;       // left before their end, and compared as far as they came
  int most_in_flight = 0;
  int64_t num_choices = 0, num_tokens = 0, num_logprobs = 0, num_cached_tokens = 0;
  double seconds = 0;
  std::optional<Difference> difference;  // the first to be seen; the round stops there
};

// What of `found` is not as `expected`; both answer `request`. Beginnings are compared as such.
std::optional<Difference> compare(const VerifyRequest& request, const Outcome& expected,
                                  const Outcome& found);

// `on_reply` is called from any thread with the number of replies so far.
using OnReply = std::function<void(int done, int total)>;

// Each alone, without the cache. A request without a seed gets the one that the server drew.
Result<std::vector<Outcome>> ask_alone(VerifyTarget& target, std::vector<VerifyRequest>& requests,
                                       const OnReply& on_reply);

// `mean_seconds`: of a request alone; pauses between arrivals are drawn up to that.
RoundResult run_round(VerifyTarget& target, const std::vector<VerifyRequest>& requests,
                      const std::vector<Outcome>& expected, const VerifyRound& round, uint64_t seed,
                      double mean_seconds, const OnReply& on_reply);

}  // namespace invar::cli
