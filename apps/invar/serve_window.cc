#include "serve_window.h"

#include "engine/memory_plan.h"
#include "model_files.h"
#include "scripted.h"
#include "serve_options.h"

namespace invar::cli {

Result<Window> choose_window(const ServeFlags& flags, const std::string& path, int max_sequences) {
  Window window;
  if (flags.context != "auto") {
    parse_number(flags.context, window.context);
    if (window.context > 0) window.source = "flag";
    return window;
  }
  if (flags.engine.backend == kScriptedBackend) return window;
  INVAR_TRY(const std::unique_ptr<Backend> backend, open_backend(flags.engine));
  INVAR_TRY(const ModelFiles files, open_model_files(path));
  MemoryQuestion question;
  question.max_positions = files.info.max_position_embeddings;
  question.kv_bytes = flags.engine.kv_bytes;
  question.page_bytes = backend->kv_page_bytes(files.info.kv_layers);
  question.weight_bytes = files.info.packed_bytes;
  question.free_bytes = free_memory(*backend).bytes;
  question.max_sequences = max_sequences;
  INVAR_TRY(const StatePlan states,
            plan_states({.slot_bytes = state_slot_bytes(*backend, files.info.recurrent_layers),
                         .max_sequences = max_sequences,
                         .cache_bytes = flags.engine.state_cache_bytes,
                         .prefix_cache_bytes = prefix_cache_bytes(flags),
                         .page_bytes = question.page_bytes,
                         .weight_bytes = question.weight_bytes,
                         .free_bytes = question.free_bytes}));
  question.state_bytes = states.bytes;
  const int64_t fits = largest_context(question);
  // Nothing fits: opening the engine says so.
  if (fits > 0 && fits < question.max_positions) window = {fits, "auto"};
  return window;
}

}  // namespace invar::cli
