// Log-probabilities as the API gives them: entries, and in which piece of delivered text each
// belongs. A token's entry goes with its first delivered byte; tokens that deliver nothing (end
// tokens, a trimmed stop) have none.
#pragma once

#include <deque>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "invar/invar.h"
#include "server/fields.h"

namespace invar::server {

struct TokenEntry {
  TokenEvent event;
  std::string bytes;  // the token's own, maybe a part of a character
};

class LogprobAligner {
 public:
  void push(TokenEntry entry) { entries_.push_back(std::move(entry)); }
  // Bytes [begin, end) of the whole text are delivered; ranges come in order. The entries of tokens
  // that lie in it and were not delivered yet. Those that lie before it deliver nothing.
  std::vector<TokenEntry> deliver(size_t begin, size_t end);

 private:
  std::deque<TokenEntry> entries_;
};

// {"token", "logprob", "bytes", "top_logprobs": [...]}
Json chat_logprob_json(const Engine& engine, const TokenEntry& entry);

// What the model thought of each token of a prompt of `ids`, whose text is `text`: the first has no
// logprob. Errors, and what `stop` does, are Engine::score()'s.
Result<std::vector<TokenEntry>> score_prompt(Engine& engine, const std::vector<int32_t>& ids,
                                             std::string_view text, int num_top,
                                             const std::stop_token& stop);

// The four parallel lists of /v1/completions.
class CompletionLogprobs {
 public:
  CompletionLogprobs(const Engine& engine, int num_top, bool tokens_as_ids)
      : engine_(engine), num_top_(num_top), tokens_as_ids_(tokens_as_ids) {}
  void add(const TokenEntry& entry);
  bool empty() const { return tokens_.items().empty(); }
  Json take();  // what was added since the last call

 private:
  std::string name(int32_t id, const std::string& bytes) const;

  const Engine& engine_;
  const int num_top_;
  const bool tokens_as_ids_;
  Json tokens_ = Json::array(), values_ = Json::array(), tops_ = Json::array(),
       offsets_ = Json::array();
  int64_t offset_ = 0;  // code points so far
};

}  // namespace invar::server
