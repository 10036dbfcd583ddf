// Engine::open: from a path to the parts that make_engine() joins. What can be known without
// reading the weights is checked first, so that a wrong file, flag or size fails within two
// seconds.
#include "engine/open.h"

#include <algorithm>
#include <future>

#include "backend/page_access.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "engine/engine_parts.h"
#include "engine/memory_plan.h"
#include "sampling/sampler.h"
#include "tokenizer/chat_template.h"
#include "weights/checkpoint.h"

namespace invar {
namespace {

constexpr size_t kMaxTemplateBytes = 1 << 20;

Result<void> check_range(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return invalid_argument("%s must be between %ld and %ld, got %ld", name, long{low}, long{high},
                          long{value});
}

Result<void> check_options(const EngineOptions& options) {
  if (options.model.empty()) return invalid_argument("no model was given");
  INVAR_TRY_VOID(check_range("num_threads", options.num_threads, 0, 1024));
  INVAR_TRY_VOID(check_range("context", options.context, 0, int64_t{1} << 24));
  INVAR_TRY_VOID(check_range("max_sequences", options.max_sequences, 1, 1024));
  INVAR_TRY_VOID(check_range("kv_bytes", options.kv_bytes, 0, int64_t{1} << 50));
  INVAR_TRY_VOID(check_range("prefill_chunk", options.prefill_chunk, 1, 65536));
  if (!(options.step_slowdown == 0 ||
        (options.step_slowdown >= 1.1 && options.step_slowdown <= 1000)))
    return invalid_argument("step_slowdown must be between 1.1 and 1000, or 0 for no bound, got %g",
                            options.step_slowdown);
  INVAR_TRY_VOID(
      check_range("prefix_cache_bytes", options.prefix_cache_bytes, -1, int64_t{1} << 50));
  INVAR_TRY_VOID(check_range("state_cache_bytes", options.state_cache_bytes, -1, int64_t{1} << 50));
  INVAR_TRY_VOID(
      check_range("packed_cache_bytes", options.packed_cache_bytes, 0, int64_t{1} << 50));
  INVAR_TRY_VOID(check_range("prefix_cache_folder_bytes", options.prefix_cache_folder_bytes, 0,
                             int64_t{1} << 50));
  if (!options.prefix_cache_folder.empty() && options.prefix_cache_bytes == 0)
    return invalid_argument("prefix_cache_folder needs prefix_cache_bytes other than 0");
  return {};
}

Result<void> choose_template(const EngineOptions& options, const Checkpoint& checkpoint,
                             EngineParts& parts) {
  parts.chat_templates = checkpoint.chat_templates;
  parts.description.chat_template_source = checkpoint.chat_template_source;
  std::string text = options.chat_template;
  std::string source = "option chat_template";
  if (!options.chat_template_file.empty()) {
    if (!text.empty())
      return invalid_argument("chat_template and chat_template_file cannot both be given");
    auto read = read_file(options.chat_template_file, kMaxTemplateBytes);
    if (!read) return with_context("chat_template_file", read.error());
    text = *std::move(read);
    source = options.chat_template_file;
  }
  if (text.empty()) return {};
  // A template that somebody asked for must work; the checkpoint's own may be of no interest.
  if (const auto parsed = ChatTemplate::parse(text); !parsed)
    return with_context(source, parsed.error());
  parts.chat_templates = {{"default", std::move(text)}};
  parts.description.chat_template_source = std::move(source);
  return {};
}

// Null: no cache is wanted, or it cannot be used.
std::unique_ptr<DiskPackedCache> open_packed_cache(const EngineOptions& options,
                                                   const Checkpoint& checkpoint,
                                                   const Backend& backend) {
  const BackendInfo& info = backend.info();
  if (options.packed_cache.empty() || info.packed_layout.empty()) return nullptr;
  PackedCacheOptions cache;
  cache.folder = options.packed_cache;
  cache.max_bytes = static_cast<uint64_t>(options.packed_cache_bytes);
  cache.backend = info.name;
  cache.layout = info.packed_layout;
  cache.fingerprint = checkpoint.fingerprint;
  cache.source = {checkpoint.files, checkpoint.states};
  cache.num_threads = info.num_threads;
  return DiskPackedCache::open(std::move(cache));
}

// Pages depend on everything that a step reads: weights, configuration, arithmetic, layout.
Result<std::unique_ptr<PageStore>> open_page_store(const EngineOptions& options,
                                                   const Checkpoint& checkpoint,
                                                   const Backend& backend, uint64_t page_bytes) {
  std::unique_ptr<PageStore> none;
  if (options.prefix_cache_folder.empty()) return none;
  const auto* pages = dynamic_cast<const PageAccess*>(&backend);
  if (pages == nullptr)
    return invalid_argument("prefix_cache_folder: the %s backend cannot keep pages on disk",
                            backend.info().name.c_str());
  const uint64_t stamp = SourceFiles{checkpoint.files, checkpoint.states}.stamp();
  if (stamp == 0) {
    log(LogLevel::kWarning, "%s changed moments ago: no pages are kept on disk this time",
        options.model.c_str());
    return none;
  }
  const std::string config = checkpoint.metadata.dump();
  PageStoreOptions store;
  store.folder = options.prefix_cache_folder;
  store.max_bytes = static_cast<uint64_t>(options.prefix_cache_folder_bytes);
  store.identity = format("%s %016llx ", checkpoint.fingerprint.c_str(),
                          static_cast<unsigned long long>(stamp)) +
                   sha256_hex({reinterpret_cast<const uint8_t*>(config.data()), config.size()}) +
                   " " + backend.info().arithmetic_id + " " + pages->kv_layout();
  store.page_bytes = page_bytes;
  return PageStore::open(std::move(store));
}

// From what a page takes: backends keep keys and values in f16, or in f32 where speed is no aim.
std::string kv_type(std::span<const KvLayerShape> layers, uint64_t page_bytes) {
  uint64_t num_values = 0;
  for (const KvLayerShape& shape : layers)
    num_values += uint64_t{2} * kPagePositions * static_cast<uint64_t>(shape.num_kv_heads) *
                  static_cast<uint64_t>(shape.head_dim);
  if (num_values == 0) return "none";
  return page_bytes / num_values >= 4 ? "f32" : "f16";
}

void describe_parts(const Checkpoint& checkpoint, const ModelInfo& model, const MemoryPlan& memory,
                    uint64_t page_bytes, EngineParts& parts) {
  ModelDescription& d = parts.description;
  d.path = checkpoint.path;
  d.family = model.family;
  d.quantization = model.quantization;
  d.tokenizer = parts.tokenizer->model_name();
  const BackendInfo& backend = parts.backend->info();
  d.backend = backend.name;
  d.isa = backend.isa;
  d.isa_why = backend.why;
  d.arithmetic_id = backend.arithmetic_id;
  d.num_threads = backend.num_threads;
  d.model_sha = checkpoint.fingerprint.substr(0, 8);
  d.num_layers = model.num_layers;
  d.hidden_size = model.hidden_size;
  d.vocab_size = model.vocab_size;
  d.num_parameters = model.num_parameters;
  d.max_position_embeddings = model.max_position_embeddings;
  d.context = memory.context;
  d.file_bytes = checkpoint.total_file_bytes;
  d.weight_bytes = model.packed_bytes;
  d.kv_bytes = memory.kv_bytes;
  d.kv_bytes_per_position = page_bytes / kPagePositions;
  d.streamed_bytes_per_token = model.streamed_bytes_per_token;
  d.kv_type = kv_type(model.kv_layers, page_bytes);
}

}  // namespace

SamplingParams default_sampling(const Json& generation_config, int32_t vocab_size) {
  SamplingParams params;
  const auto number = [&](const char* key, float& value) {
    const Json* found = generation_config.find(key);
    if (found != nullptr && found->is_number()) value = static_cast<float>(found->as_double());
  };
  number("temperature", params.temperature);
  number("top_p", params.top_p);
  number("min_p", params.min_p);
  number("repetition_penalty", params.repetition_penalty);
  float top_k = 0;
  number("top_k", top_k);
  params.top_k = top_k >= 0 && top_k < 1e9f ? static_cast<int>(top_k) : 0;
  const Json* do_sample = generation_config.find("do_sample");
  if (do_sample != nullptr && do_sample->is_bool()) {
    if (!do_sample->as_bool())
      params.temperature = 0;
    else if (generation_config.find("temperature") == nullptr)
      params.temperature = 1;
  }
  if (const auto checked = check_sampling_params(params, vocab_size); !checked) {
    log(LogLevel::kWarning, "generation_config is ignored: %s", checked.error().message.c_str());
    return {};
  }
  return params;
}

Result<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options) {
  return open_engine_with(options, {});
}

Result<std::unique_ptr<Engine>> open_engine_with(const EngineOptions& options,
                                                 const WrapBackend& wrap) {
  INVAR_TRY_VOID(check_options(options));
  EngineParts parts;
  BackendOptions backend_options;
  backend_options.num_threads = options.num_threads;
  backend_options.isa = options.cpu_isa;
  backend_options.activation_bits = options.activation_bits;
  backend_options.switches = options.switches;
  INVAR_TRY(parts.backend, make_backend(options.backend, backend_options));
  if (wrap) parts.backend = wrap(std::move(parts.backend));

  INVAR_TRY(const std::unique_ptr<Checkpoint> checkpoint, Checkpoint::open(options.model));
  INVAR_TRY(const ModelInfo info, describe_model(*checkpoint));
  MemoryQuestion question;
  question.max_positions = info.max_position_embeddings;
  question.context = options.context;
  question.kv_bytes = options.kv_bytes;
  question.page_bytes = parts.backend->kv_page_bytes(info.kv_layers);
  question.weight_bytes = info.packed_bytes;
  FreeMemory free = free_memory(*parts.backend);
  question.free_bytes = free.bytes;
  question.max_sequences = options.max_sequences;
  const uint64_t slot_bytes = state_slot_bytes(*parts.backend, info.recurrent_layers);
  if (slot_bytes > 0 && !options.prefix_cache_folder.empty())
    return unsupported(
        "%s: prefix_cache_folder (--cache-disk): the states of recurrent layers cannot be kept on "
        "disk yet; leave it out",
        options.model.c_str());
  if (slot_bytes == 0 && options.state_cache_bytes > 0)
    log(LogLevel::kWarning,
        "state_cache_bytes (--state-cache-bytes) changes nothing: %s has no recurrent layers",
        options.model.c_str());
  const Result<StatePlan> states = plan_states({.slot_bytes = slot_bytes,
                                                .max_sequences = options.max_sequences,
                                                .cache_bytes = options.state_cache_bytes,
                                                .prefix_cache_bytes = options.prefix_cache_bytes,
                                                .page_bytes = question.page_bytes,
                                                .weight_bytes = question.weight_bytes,
                                                .free_bytes = question.free_bytes});
  if (!states) return with_context(options.model, states.error());
  question.state_bytes = states->bytes;
  const Result<MemoryPlan> memory = plan_memory(question);
  if (!memory) return with_context(options.model, memory.error());
  free.bytes -= question.weight_bytes + question.state_bytes;
  const auto check_room = [&](const FreeMemory& left) -> Result<void> {
    if (options.kv_bytes == 0) return {};
    return check_kv_room(*memory, question.page_bytes, left);
  };
  INVAR_TRY_VOID(check_room(free));
  parts.packed_cache = open_packed_cache(options, *checkpoint, *parts.backend);
  // What was packed before had a tokenizer that works: it can be made while panels are read. Else a
  // broken one is said before the long work.
  const bool is_packed = parts.packed_cache != nullptr && parts.packed_cache->is_filled();
  std::future<Result<std::unique_ptr<Tokenizer>>> tokenizer =
      std::async(is_packed ? std::launch::async : std::launch::deferred,
                 [&] { return Tokenizer::from_checkpoint(*checkpoint); });
  if (!is_packed) {
    INVAR_TRY(parts.tokenizer, tokenizer.get());
  }
  INVAR_TRY_VOID(choose_template(options, *checkpoint, parts));

  ProgressFn progress;
  if (options.progress)
    progress = [&](const LoadProgress& p) { options.progress(p.bytes_done, p.bytes_total); };
  INVAR_TRY(parts.model,
            load_model(*checkpoint, *parts.backend, progress, parts.packed_cache.get()));
  if (is_packed) {
    INVAR_TRY(parts.tokenizer, tokenizer.get());
  }
  if (parts.packed_cache != nullptr) {
    parts.packed_cache->finish();
    if (options.packed_cache_wait) parts.packed_cache->wait();
    parts.description.packing = parts.packed_cache->describe();
  } else {
    parts.description.packing = "packed now";
  }

  free = free_memory(*parts.backend);  // weights may take more than foreseen
  free.bytes -= std::min(free.bytes, question.state_bytes);
  INVAR_TRY_VOID(check_room(free));
  INVAR_TRY(parts.page_store,
            open_page_store(options, *checkpoint, *parts.backend, question.page_bytes));
  parts.context = memory->context;
  parts.num_pages = memory->num_pages;
  parts.max_sequences = options.max_sequences;
  parts.num_state_snapshots = states->num_snapshots;
  parts.prefill_chunk = options.prefill_chunk;
  parts.step_slowdown = options.step_slowdown;
  if (options.prefix_cache_bytes >= 0)
    parts.prefix_cache_pages =
        static_cast<int>(std::min<uint64_t>(static_cast<uint64_t>(options.prefix_cache_bytes) /
                                                std::max<uint64_t>(question.page_bytes, 1),
                                            static_cast<uint64_t>(memory->num_pages)));
  describe_parts(*checkpoint, parts.model->info(), *memory, question.page_bytes, parts);
  parts.description.state_bytes = states->bytes;
  parts.description.state_bytes_per_sequence = slot_bytes;
  parts.description.default_sampling =
      default_sampling(checkpoint->generation_config, info.vocab_size);
  for (const char* key : {"temperature", "do_sample"})
    if (checkpoint->generation_config.find(key) != nullptr)
      parts.description.has_default_temperature = true;
  return make_engine(std::move(parts));
}

}  // namespace invar
