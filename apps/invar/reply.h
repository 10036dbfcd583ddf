// One reply: streamed to standard output, stopped by Ctrl-C, and its figures as a line or as JSON.
#pragma once

#include <string>

#include "base/json.h"
#include "invar/invar.h"

namespace invar::cli {

struct Reply {
  GenerationResult result;
  bool interrupted = false;
};

// Errors are those of submit(); an error while it runs is in result.error. `show`: print the text
// as it comes, ended by a line break.
Result<Reply> make_reply(Engine& engine, const GenerationRequest& request, bool show);

double prefill_tokens_per_second(const GenerationResult& result);
double decode_tokens_per_second(const GenerationResult& result);

// Two lines for people.
std::string reply_stats(const GenerationResult& result, const SamplingParams& sampling);

// The object that `invar run --json` prints (docs/command-line.md).
Json reply_json(const Engine& engine, const GenerationRequest& request,
                const GenerationResult& result, double load_ms);

}  // namespace invar::cli
