// The requests of `invar verify`: made from a seed alone, so that a report's seed and request
// number give the same request again. Knows no engine and sends nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "invar/invar.h"

namespace invar::cli {

// One request, to be put to an engine or to a server.
struct VerifyRequest {
  int index = 0;
  std::vector<ChatMessage> messages;  // empty: `prompt` is raw text
  std::string prompt;
  SamplingParams sampling;
  bool has_seed = true;  // false: the server draws one and says which
  int64_t max_tokens = 16;
  std::vector<std::string> stop;
  bool ignore_end = false;
  int num_choices = 1;
  std::string schema;     // of the reply, as JSON; empty: free text
  bool logprobs = false;  // compared as well: they show what no token shows yet

  bool is_chat() const { return !messages.empty(); }
  // "chat, sampled, 2 choices, schema": what is special about it.
  std::string describe() const;
  // The body of an OpenAI-style request without `model`, `stream` and `cache_prompt`.
  Json body() const;
  GenerationRequest native() const;  // without the constraint
};

// What has to be known of the model.
struct TextFacts {
  int64_t context = 0;         // positions a request may have
  double tokens_per_word = 2;  // of our texts
  std::vector<int32_t> ids;    // some ids of the vocabulary
  bool has_chat = true;        // a chat template
  bool has_schemas = true;     // schemas can be enforced
};

// The least context that requests can be made for.
inline constexpr int64_t kMinVerifyContext = 192;

// A text with every word that prompts are made of, to measure tokens_per_word on.
std::string sample_text();
int sample_words();

std::vector<VerifyRequest> make_verify_requests(uint64_t seed, int count, const TextFacts& facts);

// How many requests have what; the report's first lines.
struct RequestMix {
  int greedy = 0, sampled = 0, chat = 0, raw = 0, penalties = 0, biases = 0, stops = 0, schemas = 0,
      several = 0, logprobs = 0;
};
RequestMix mix_of(const std::vector<VerifyRequest>& requests);

// Uniform numbers that are the same with every standard library.
class VerifyRandom {
 public:
  explicit VerifyRandom(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 0x1234567u) {}
  uint64_t bits();
  int64_t below(int64_t limit) { return static_cast<int64_t>(bits() >> 1) % limit; }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool chance(int percent) { return below(100) < percent; }

 private:
  uint64_t state_;
};

}  // namespace invar::cli
