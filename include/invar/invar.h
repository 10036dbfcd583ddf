// The public API of libinvar: open a checkpoint, submit requests, read tokens.
//
//   auto engine = invar::Engine::open({.model = "smollm2.gguf"});
//   auto stream = (*engine)->submit({.messages = {{"user", "Hello!"}}, .max_tokens = 64});
//   while (auto event = (*stream)->next()) std::cout << event->text << std::flush;
//
// A reply depends on messages, sampling parameters and seed only: batching, chunk sizes, cache hits
// and threads change its speed, never a token. All functions may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "invar/constraint.h"
#include "invar/result.h"

namespace invar {

// ---- Opening a model ----------------------------------------------------------------------------

struct EngineOptions {
  std::string model = {};       // GGUF file, Hugging Face or MLX folder
  std::string backend = "cpu";  // "cpu" or "reference"
  std::string cpu_isa = {};     // "portable", "avx2", "avxvnni", "avx512"; "": the best there is
  int activation_bits = 8;      // cpu: 8 (arithmetic cpu-1) or 12 (cpu-1-a12)
  int num_threads = 0;          // 0: physical cores that this process may use
  int64_t context = 0;          // positions a sequence may have; 0: the model's full window
  int max_sequences = 4;        // sequences that may run in one step
  int64_t kv_bytes = 0;         // memory for keys and values; 0: one full context, and no more than
                                // half of the memory that is free
  int prefill_chunk = 512;      // rows a step spends on prompts; speed only
  // Keys and values kept for later prompts that begin alike, as a part of kv_bytes; speed only.
  // -1: whatever running requests leave; 0: none.
  int64_t prefix_cache_bytes = -1;
  std::string chat_template_file = {};  // replaces the checkpoint's own template
  // Folder where packed weights are kept between starts, so that later ones are quicker
  // (docs/operations.md); speed only. Empty: packed at every start.
  std::string packed_cache = {};
  int64_t packed_cache_bytes = int64_t{32} << 30;  // of all models in it; unused ones go first
  bool packed_cache_wait = false;  // open() returns when the folder has been written
  // Called from the loading threads, bytes of weights read so far and in all.
  std::function<void(uint64_t done, uint64_t total)> progress = {};
};

// ---- Asking -------------------------------------------------------------------------------------

struct SamplingParams {
  float temperature = 0;         // 0: greedy
  int top_k = 0;                 // 0: off
  float top_p = 1;               // 1: off
  float min_p = 0;               // 0: off
  float repetition_penalty = 1;  // over prompt and reply; 1: off
  float presence_penalty = 0;    // over the reply
  float frequency_penalty = 0;   // over the reply
  // Token id, added to its logit; -100: never drawn; 100: only ids so marked are drawn.
  std::vector<std::pair<int32_t, float>> logit_bias = {};
  uint64_t seed = 0;  // noise is a function of (seed, position in the reply, token id)
};

struct ChatMessage {
  std::string role = {};  // "system", "user", "assistant", "tool"
  std::string content = {};
};

// Exactly one of `messages`, `messages_json`, `prompt` and `prompt_ids` is set.
struct GenerationRequest {
  std::vector<ChatMessage> messages = {};
  std::string messages_json = {};          // OpenAI-style array, for tool calls and content parts
  std::string tools_json = {};             // OpenAI-style array, with messages or messages_json
  std::string template_kwargs_json = {};   // object, extra template variables
  std::optional<std::string> prompt = {};  // raw text, no chat template; BOS as the vocabulary asks
  std::vector<int32_t> prompt_ids = {};
  SamplingParams sampling = {};
  int64_t max_tokens = -1;             // -1: up to the end of the context
  std::vector<std::string> stop = {};  // at most 16, each 1 to 256 bytes; not part of the text
  bool ignore_end = false;             // go on past end tokens (benchmarks)
  bool use_prefix_cache = true;        // speed only
  std::string cache_salt = {};         // keys and values are shared within one salt only
  int top_logprobs = -1;               // -1: none; 0: the chosen token's; up to 20 alternatives
  // What the reply must be, from Engine::compile_constraint; null: free text.
  std::shared_ptr<const CompiledConstraint> constraint = {};
};

enum class FinishReason { kStop, kLength, kCancelled, kError };

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;  // natural log, before penalties, bias and temperature
};

// One sampled token and the text that became certain with it (empty while a character or a possible
// stop string is incomplete).
struct TokenEvent {
  int32_t id = 0;
  std::string text;
  std::optional<TokenLogprob> logprob;
  std::vector<TokenLogprob> top_logprobs;
};

struct GenerationResult {
  FinishReason finish_reason = FinishReason::kStop;
  Error error;  // when kError
  std::string text;
  std::string stop_text;           // the stop string that ended it, if one did
  std::vector<int32_t> token_ids;  // sampled ids, end token included
  std::string token_sha;           // SHA-256 of token_ids
  std::string arithmetic_id;
  int64_t num_prompt_tokens = 0;
  int64_t num_cached_tokens = 0;
  double queue_ms = 0, prefill_ms = 0, decode_ms = 0;
};

class TokenStream {
 public:
  virtual ~TokenStream() = default;  // cancels what still runs
  // Waits for the next event; nothing more: the stream has ended and result() is there.
  virtual std::optional<TokenEvent> next() = 0;
  virtual void cancel() = 0;
  virtual const GenerationResult& result() const = 0;
};

// ---- The engine ---------------------------------------------------------------------------------

struct ModelDescription {
  std::string path, family, quantization, tokenizer, chat_template_source;
  std::string backend, isa, isa_why, arithmetic_id, model_sha;
  std::string packing;  // where packed weights came from: "read from the packed cache", ...
  int num_threads = 0;
  int num_layers = 0, hidden_size = 0, vocab_size = 0;
  int64_t num_parameters = 0;
  int64_t max_position_embeddings = 0, context = 0;
  uint64_t file_bytes = 0, weight_bytes = 0, kv_bytes = 0, kv_bytes_per_position = 0;
  int64_t streamed_bytes_per_token = 0;
  std::vector<int32_t> end_ids;
  SamplingParams default_sampling;       // from the checkpoint's generation config
  bool has_default_temperature = false;  // the config says how to sample, or not to
};

class Engine {
 public:
  // Loads the model; errors name file, key or option, and the remedy.
  static Result<std::unique_ptr<Engine>> open(const EngineOptions& options);
  virtual ~Engine() = default;  // ends running requests with kCancelled

  virtual const ModelDescription& description() const = 0;

  // Everything is checked here, before anything runs.
  virtual Result<std::unique_ptr<TokenStream>> submit(const GenerationRequest& request) = 0;

  // Masks for this engine's vocabulary; may be used by any number of requests. Takes up to about
  // two seconds for the largest schemas. Errors: kInvalidArgument names a keyword that cannot be
  // enforced and its place; kResourceExhausted names the limit ("schema too complex: ...").
  virtual Result<std::shared_ptr<const CompiledConstraint>> compile_constraint(
      const ConstraintSpec& spec) const = 0;

  virtual Result<std::vector<int32_t>> tokenize(std::string_view text, bool allow_special,
                                                bool add_special) const = 0;
  virtual std::string detokenize(std::span<const int32_t> ids, bool with_special) const = 0;
  virtual std::string token_text(int32_t id) const = 0;  // for display, specials included
  // What the token adds to a reply, maybe a part of a character; nothing for specials.
  virtual std::string token_bytes(int32_t id) const = 0;
  // The prompt that a chat request would run on, as text and as ids.
  virtual Result<std::string> apply_chat_template(const GenerationRequest& request) const = 0;
  virtual Result<std::vector<int32_t>> prompt_ids(const GenerationRequest& request) const = 0;

  // Teacher forcing: logits [vocab_size] after each of ids[0..n), in order, in chunks of
  // prefill_chunk. `visit` returns false to stop early. Runs beside requests.
  virtual Result<void> score(
      std::span<const int32_t> ids,
      const std::function<bool(int64_t index, std::span<const float> logits)>& visit) = 0;
};

const char* version();                                // "0.1.0"
const char* finish_reason_name(FinishReason reason);  // "stop", "length", ...

}  // namespace invar
