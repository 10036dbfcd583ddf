// GET /version, /v1/models and /v1/models/{id}: what is served. Answers while loading too, with
// less in it.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "invar/invar.h"
#include "server/chat_model.h"
#include "server/generation_fields.h"
#include "server/http/router.h"

namespace invar::server {

class ServedModel {
 public:
  // `names`: as requests may call it, the first one is primary.
  ServedModel(std::vector<std::string> names, std::string backend, std::string arithmetic_id,
              std::string isa);

  // Once, when the engine is there. The engine outlives the server.
  // `context_source`: a literal, where its window comes from: "checkpoint", "flag", "auto".
  void set_engine(Engine* engine, int max_sequences, const char* context_source,
                  const RequestDefaults& defaults);
  Engine* engine() const { return engine_; }                                // nullptr while loading
  const ChatModel& chat_model() const { return chat_model_.of(*engine_); }  // once loaded
  int max_sequences() const { return max_sequences_; }
  const SamplingParams& default_sampling() const { return default_sampling_; }  // once loaded
  const std::vector<std::string>& names() const { return names_; }

  Response version() const;
  Response list() const;
  // 404 for a name that is not served.
  Response one(const std::string& name, ApiStyle style, const std::string& request_id) const;

 private:
  std::string object(const std::string& name) const;

  std::vector<std::string> names_;
  std::string backend_, arithmetic_id_, isa_;
  mutable ChatModel::Once chat_model_;
  SamplingParams default_sampling_;  // written before engine_
  std::atomic<Engine*> engine_ = nullptr;
  std::atomic<int> max_sequences_ = 0;
  std::atomic<const char*> context_source_ = "checkpoint";
  std::atomic<int64_t> created_;
};

// The last part of a path; where a file lies is private.
std::string file_name(const std::string& path);
// 0.95f as 0.95, not as 0.949999988079071.
double shown_number(float value);

// Also under the path without /v1 where the API has it. `model` outlives the server.
void add_model_routes(Router& router, const ServedModel& model);

}  // namespace invar::server
