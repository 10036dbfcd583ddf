// How an Engine is put together: open.cc makes the parts from a checkpoint, tests bring their own.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "cache/packed_cache.h"
#include "cache/page_store.h"
#include "invar/invar.h"
#include "models/model.h"
#include "tokenizer/tokenizer.h"

namespace invar {

struct EngineParts {
  std::unique_ptr<DiskPackedCache> packed_cache;  // may still be writing; null: none
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;  // made with `backend`
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<std::pair<std::string, std::string>> chat_templates;  // as in Checkpoint
  int64_t context = 0;                                              // positions of a sequence
  int num_pages = 0;                                                // at least those of one context
  int max_sequences = 4;
  int prefill_chunk = 512;
  int num_state_snapshots = 8;  // of models with recurrent layers, beside max_sequences states
  double step_slowdown = 2;     // see EngineOptions
  int prefix_cache_pages = -1;  // kept after their sequence has gone; -1: all that are free
  std::unique_ptr<PageStore> page_store = {};  // pages are kept on disk as well; null: not
  int max_waiting = 1024;                      // requests that have not ended; more are refused
  ModelDescription description;                // what open() knows; the rest is filled in
};

Result<std::unique_ptr<Engine>> make_engine(EngineParts parts);

// Pages in use and requests that have not ended, for tests of leaks. Only for make_engine()'s
// results.
struct EngineGauges {
  int num_used_pages = 0;  // by sequences
  int num_kept_pages = 0;  // by the prefix cache, those in use included
  int num_requests = 0;
  int64_t num_steps = 0;
  int64_t num_preemptions = 0;
  int num_running_states = 0;  // slots that are neither free nor snapshots
};
EngineGauges engine_gauges(const Engine& engine);

}  // namespace invar
