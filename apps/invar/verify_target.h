// What `invar verify` puts its requests to: an engine in this process, or a server at a URL. And
// what comes back, in the form in which replies are compared.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "options.h"
#include "verify_requests.h"

namespace invar::cli {

struct ChoiceOutcome {
  std::string token_sha;
  std::vector<int32_t> ids;  // empty where a server does not say them
  std::string text;          // reasoning included
  std::string finish_reason;
  std::vector<double> logprobs;
};

struct Outcome {
  std::vector<ChoiceOutcome> choices;
  uint64_t seed = 0;
  int64_t num_prompt_tokens = 0, num_cached_tokens = 0;
  std::string arithmetic_id, model_sha;
  bool was_cut = false;  // by us, before its end: what is there is a beginning
};

struct AskOptions {
  bool use_cache = false;
  bool stream = false;
  int cut_after = -1;  // events after which we go away; -1: never
};

// Both may be asked from any number of threads.
class VerifyTarget {
 public:
  virtual ~VerifyTarget() = default;
  virtual Result<Outcome> ask(const VerifyRequest& request, const AskOptions& options) = 0;
};

// What can be opened in several ways.
struct EngineSetting {
  int num_threads = 1;
  int chunk = 512;
  int max_sequences = 1;
  int extra_pages = -1;  // of keys and values beyond one context; -1: as many as may be used
};

class EngineTarget final : public VerifyTarget {
 public:
  EngineTarget(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}
  Result<Outcome> ask(const VerifyRequest& request, const AskOptions& options) override;
  Engine& engine() { return *engine_; }
  int64_t num_preemptions() const;

 private:
  Result<std::shared_ptr<const CompiledConstraint>> constraint(const std::string& schema);

  std::unique_ptr<Engine> engine_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const CompiledConstraint>> constraints_;
};

// What of the mix a model can do. Errors: its context is too small.
Result<TextFacts> facts_of(Engine& engine);

class HttpTarget final : public VerifyTarget {
 public:
  // `url` with or without "/v1" at its end. `key` is sent there and nowhere else: redirects are not
  // followed.
  HttpTarget(std::string url, std::string key);
  Result<Outcome> ask(const VerifyRequest& request, const AskOptions& options) override;

  // Asks what is served and what it can do; before the first ask().
  Result<TextFacts> connect();
  const std::string& model() const { return model_; }
  // What the server lacks, a line each.
  const std::vector<std::string>& left_out() const { return left_out_; }

 private:
  struct Answer {
    long status = 0;
    std::string body;
  };
  // `on_data` (null: collect the body) returns false to go away. Waits and tries again while the
  // server has no room.
  Result<Answer> send(const std::string& path, const Json* body,
                      const std::function<bool(std::string_view)>& on_data);
  Result<Json> send_json(const std::string& path, const Json* body);

  std::string url_, key_, model_;
  std::vector<std::string> left_out_;
};

}  // namespace invar::cli
