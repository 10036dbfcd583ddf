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
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "invar/constraint.h"
#include "invar/result.h"
#include "invar/stats.h"

namespace invar {

// ---- Opening a model ----------------------------------------------------------------------------

struct EngineOptions {
  std::string model = {};       // GGUF file, Hugging Face or MLX folder
  std::string backend = "cpu";  // "cpu", "reference", or "cuda" in a build that has it
  std::string cpu_isa = {};     // "portable", "avx2", "avxvnni", "avx512"; "": the best there is
  int activation_bits = 8;      // cpu: 8 (arithmetic cpu-1) or 12 (cpu-1-a12)
  int num_threads = 0;          // 0: physical cores that this process may use
  std::string switches = {};    // cuda: what to turn off, as "no-graph"; speed only
  int64_t context = 0;          // positions a sequence may have; 0: the model's full window
  int max_sequences = 4;        // sequences that may run in one step
  int64_t kv_bytes = 0;         // memory for keys and values; 0: one full context, and no more than
                                // half of the memory that is free
  int prefill_chunk = 512;      // rows a step spends on prompts; speed only
  // While replies run, steps take fewer rows of prompts, so that a step takes at most so many times
  // as long as without (short prompts may pass it for a few steps). 0: no such bound. Speed only.
  double step_slowdown = 2;
  // Keys and values kept for later prompts that begin alike, as a part of kv_bytes; speed only.
  // -1: whatever running requests leave; 0: none.
  int64_t prefix_cache_bytes = -1;
  // Memory for states of recurrent layers at places of earlier prompts, without which their keys
  // and values cannot be used again; beside those of running sequences, and only for models that
  // have such layers; speed only. -1: eight, within an eighth of what the weights leave; 0: none.
  int64_t state_cache_bytes = -1;
  // Folder where pages of keys and values are kept between starts as well, so that a long
  // conversation goes on where it was (docs/operations.md); speed only. Empty: in memory only.
  std::string prefix_cache_folder = {};
  int64_t prefix_cache_folder_bytes = int64_t{8} << 30;  // of all models in it
  std::string chat_template = {};       // Jinja text that replaces the checkpoint's own template
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
  int64_t repeat_last_n = -1;    // tokens that repetition_penalty looks at; -1: all, 0: off
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

// A piece of a reply as its reader shows it.
struct ReplyPart {
  enum class Kind {
    kContent,
    kReasoning,
    kCallBegin,  // a tool call; `text` is the function's name
    kArguments,  // a piece of that call's arguments, JSON
  };
  Kind kind = Kind::kContent;
  std::string text = {};
  size_t begin = 0;  // kContent: where it stands in the whole text, markup and reasoning included
};

// Splits one reply's text, as it comes, into parts. What comes out must not depend on how the text
// was cut. Used by one thread at a time.
class ReplyParser {
 public:
  virtual ~ReplyParser() = default;
  virtual std::vector<ReplyPart> push(std::string_view text) = 0;
  virtual std::vector<ReplyPart> finish() = 0;  // what was held back; nothing follows
  virtual bool in_reasoning() const = 0;
};

// Reasoning that goes on too long is closed: the ids are put in the model's mouth.
struct ReasoningBudget {
  int64_t max_tokens = -1;  // of reasoning; -1: no limit. Needs make_parser
  std::vector<int32_t> closing_ids = {};
};

// Exactly one of `messages`, `messages_json`, `prompt` and `prompt_ids` is set.
struct GenerationRequest {
  std::vector<ChatMessage> messages = {};
  std::string messages_json = {};          // OpenAI-style array, for tool calls and content parts
  std::string tools_json = {};             // OpenAI-style array, with messages or messages_json
  std::string template_kwargs_json = {};   // object, extra template variables
  bool add_generation_prompt = true;       // false: the rendered prompt ends with the last message
  bool continue_final_message = false;     // the reply goes on with the last (assistant) message
  std::optional<std::string> prompt = {};  // raw text, no chat template; BOS as the vocabulary asks
  std::vector<int32_t> prompt_ids = {};
  SamplingParams sampling = {};
  int64_t max_tokens = -1;  // -1: up to the end of the context
  // Before so many tokens there is no end: end tokens and stop_token_ids are not drawn (unless a
  // constraint allows nothing else) and stop strings are not looked for.
  int64_t min_tokens = 0;
  std::vector<std::string> stop = {};        // at most 16, each 1 to 256 bytes; in content only
  bool include_stop = false;                 // the stop string is part of the text
  bool stop_in_reasoning = false;            // looked for in reasoning as well
  std::vector<int32_t> stop_token_ids = {};  // at most 64; their text is not delivered
  bool ignore_end = false;                   // go on past end tokens (benchmarks)
  bool use_prefix_cache = true;              // speed only
  std::string cache_salt = {};               // keys and values are shared within one salt only
  int top_logprobs = -1;  // -1: none; 0: the chosen token's; up to 20 alternatives
  // What the reply must be, from Engine::compile_constraint; null: free text.
  std::shared_ptr<const CompiledConstraint> constraint = {};
  // Called once a reply; empty: all of the text is content.
  std::function<std::unique_ptr<ReplyParser>()> make_parser = {};
  ReasoningBudget reasoning_budget = {};
  bool report_progress = false;  // events with `progress` while the prompt is computed
  bool count = true;             // in Engine::stats(); false for warm-ups
};

enum class FinishReason { kStop, kLength, kCancelled, kError };

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;  // natural log, before penalties, bias and temperature
};

struct PromptProgress {
  int64_t num_cached_tokens = 0;    // of the prompt, found in the prefix cache
  int64_t num_computed_tokens = 0;  // of the prompt, those included
  double queue_ms = 0, prefill_ms = 0;
};

// One sampled token and what became certain with it (nothing while a character, a tag or a possible
// stop string is incomplete).
struct TokenEvent {
  int32_t id = 0;
  std::string text;              // without a parser
  std::vector<ReplyPart> parts;  // with one
  bool is_reasoning = false;     // with one: the token is a part of the reasoning or its end tag
  // Where the token's text stands in the whole text; empty for end tokens. A part of a character
  // stands where the character does.
  size_t text_begin = 0, text_end = 0;
  std::optional<TokenLogprob> logprob;
  std::vector<TokenLogprob> top_logprobs;
  // When set there is no token: the prompt is being computed. The first comes before any work.
  std::optional<PromptProgress> progress;
};

struct GenerationResult {
  FinishReason finish_reason = FinishReason::kStop;
  Error error;                           // when kError
  std::string text;                      // with a parser: the content
  std::string stop_text;                 // the stop string that ended it, if one did
  std::optional<int32_t> stop_token_id;  // the one of stop_token_ids that ended it
  std::vector<int32_t> token_ids;        // sampled ids, end token included
  std::string token_sha;                 // SHA-256 of token_ids
  std::string arithmetic_id;
  int64_t num_prompt_tokens = 0;
  int64_t num_cached_tokens = 0;
  double queue_ms = 0, prefill_ms = 0, decode_ms = 0;
};

enum class RequestState { kQueued, kPrefill, kDecode, kPaused, kPreempted, kFinishing };

// Where a request stands: a picture of one moment, taken without waiting for a step.
struct RequestStatus {
  RequestState state = RequestState::kQueued;  // kFinishing: ended, its pages are free
  int64_t num_prompt_tokens = 0, num_cached_tokens = 0, num_prefilled_tokens = 0;
  int64_t num_completion_tokens = 0;
  int num_kv_pages = 0, num_preemptions = 0;
  double queue_ms = 0;  // until it was scheduled first, or until now
};

class TokenStream {
 public:
  virtual ~TokenStream() = default;  // cancels what still runs
  // Waits for the next event; nothing more: the stream has ended and result() is there.
  virtual std::optional<TokenEvent> next() = 0;
  virtual void cancel() = 0;
  virtual const GenerationResult& result() const = 0;
  virtual RequestStatus status() const = 0;
  // Returns when the request has ended and its pages are free, whether its events are read or not.
  virtual void wait_end() const = 0;
};

// ---- The engine ---------------------------------------------------------------------------------

struct ModelDescription {
  std::string path, family, quantization, tokenizer, chat_template_source;
  std::string chat_template;         // its text
  std::string bos_token, eos_token;  // as text; empty: none
  std::string backend, isa, isa_why, arithmetic_id, model_sha;
  std::string packing;  // where packed weights came from: "read from the packed cache", ...
  int num_threads = 0;
  int num_layers = 0, hidden_size = 0, vocab_size = 0;
  int64_t num_parameters = 0;
  int64_t max_position_embeddings = 0, context = 0;
  uint64_t file_bytes = 0, weight_bytes = 0, kv_bytes = 0, kv_bytes_per_position = 0;
  uint64_t state_bytes = 0, state_bytes_per_sequence = 0;  // of recurrent layers; all, and of one
  int64_t streamed_bytes_per_token = 0;
  std::string kv_type;     // of keys and values: "f16"
  int page_positions = 0;  // they are kept in pages of so many positions
  int num_pages = 0;
  bool has_prefix_cache = true;
  std::vector<int32_t> end_ids;
  SamplingParams default_sampling;       // from the checkpoint's generation config
  bool has_default_temperature = false;  // the config says how to sample, or not to
};

struct ChatPrompt {
  std::string text;
  std::vector<int32_t> ids;
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
  // The prompt that a chat request would run on, as text, as ids, and both of one rendering.
  virtual Result<std::string> apply_chat_template(const GenerationRequest& request) const = 0;
  virtual Result<std::vector<int32_t>> prompt_ids(const GenerationRequest& request) const = 0;
  virtual Result<ChatPrompt> chat_prompt(const GenerationRequest& request) const = 0;

  // From any thread, at any time, without waiting.
  virtual EngineStats stats() const = 0;

  // Teacher forcing: logits [vocab_size] after each of ids[0..n), in order, in chunks of
  // prefill_chunk. `visit` returns false to stop early. Runs beside requests. `stop` ends it from
  // any thread, also while it waits: kCancelled, and its pages are free.
  virtual Result<void> score(
      std::span<const int32_t> ids,
      const std::function<bool(int64_t index, std::span<const float> logits)>& visit,
      const std::stop_token& stop = {}) = 0;
};

const char* version();                                // "0.1.0"
const char* finish_reason_name(FinishReason reason);  // "stop", "length", ...
const char* request_state_name(RequestState state);   // "queued", "prefill", ...

}  // namespace invar
