// What a scripted model says, as read from a file (docs/scripted-backend.md): tokens step by step,
// with delays and faults, and which of the scripts answers which prompt. Knows ids, no engine.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace invar::scripted {

// One step of the engine for this reply.
struct Step {
  int64_t first_token = 0;      // its place in the reply
  std::vector<int32_t> tokens;  // said in this order; with logits the first is drawn instead
  std::optional<std::vector<std::pair<int32_t, float>>> logits;
  float other_logits = -1000;  // of ids that are not in `logits`
  double delay_ms = 0;
};

struct Script {
  std::vector<Step> steps;  // by first_token
  double prefill_ms_per_token = 0;
  int64_t fail_at_step = -1, nan_at_step = -1;  // indices of steps; -1: never
  int64_t eos_after = -1;                       // tokens; -1: after the last step
};

struct SpecialToken {
  std::string text;
  int32_t id = 0;
};

// How the template writes a turn, so that the last user message can be found in a prompt.
struct TurnMarks {
  std::string user = "<|im_start|>user\n", tool = "<|im_start|>tool\n", end = "<|im_end|>";
};

struct ScriptFile {
  static Result<ScriptFile> parse(std::string_view text);

  // A key's scripts by the number of tool results behind the last user message; the last one for
  // all higher numbers.
  using Replies = std::vector<Script>;

  std::vector<SpecialToken> specials;  // ascending ids from 256
  int32_t end_id = 0;
  std::vector<std::string> pieces;  // tokens of several bytes; ids follow those of the specials
  std::string chat_template;
  TurnMarks turns;
  int64_t context_length = 1 << 20;
  int prefill_chunk = 16;
  std::map<std::string, Replies, std::less<>> replies;  // by key
  struct Rule {
    std::string contains, key;
  };
  std::vector<Rule> rules;  // for prompts without a key, the first that fits

  int32_t first_piece_id() const { return specials.empty() ? 256 : specials.back().id + 1; }
};

// The key that stands behind the last "KEY:" of `text`: all of the rest, its first line or its
// first word, whichever is a key of the file; else the first word, of which a key may be the
// beginning. Nothing: there is no "KEY:".
std::optional<std::string> find_key(const ScriptFile& file, std::string_view text);

}  // namespace invar::scripted
