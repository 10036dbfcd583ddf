#include "scripted/open_scripted.h"

#include <algorithm>

#include "base/file.h"
#include "base/hash.h"
#include "engine/engine_parts.h"
#include "engine/memory_plan.h"
#include "scripted/scripted_model.h"
#include "tokenizer/chat_template.h"

namespace invar::scripted {
namespace {

constexpr size_t kMaxScriptBytes = 64 << 20, kMaxTemplateBytes = 1 << 20;

Result<void> set_template(const EngineOptions& options, std::string text, EngineParts& parts) {
  std::string source = "script file";
  if (!options.chat_template_file.empty()) {
    source = options.chat_template_file;
    INVAR_TRY(text, read_file(source, kMaxTemplateBytes));
  }
  if (const auto parsed = ChatTemplate::parse(text); !parsed)
    return with_context(source + ": template", parsed.error());
  parts.description.chat_template_source = std::move(source);
  parts.chat_templates = {{"default", std::move(text)}};
  return {};
}

}  // namespace

Result<std::unique_ptr<Engine>> open_scripted_engine(const std::string& script_file,
                                                     const EngineOptions& options) {
  if (!options.prefix_cache_folder.empty())
    return invalid_argument("prefix_cache_folder: the scripted backend cannot keep pages on disk");
  INVAR_TRY(const std::string text, read_file(script_file, kMaxScriptBytes));
  Result<ScriptFile> parsed = ScriptFile::parse(text);
  if (!parsed) return with_context(script_file, parsed.error());
  const auto file = std::make_shared<const ScriptFile>(*std::move(parsed));

  EngineParts parts;
  INVAR_TRY_VOID(set_template(options, file->chat_template, parts));
  auto tokenizer = std::make_unique<ScriptedTokenizer>(*file);
  parts.model = std::make_unique<ScriptedModel>(file, *tokenizer);
  parts.tokenizer = std::move(tokenizer);
  parts.backend = make_scripted_backend();

  const ModelInfo& info = parts.model->info();
  MemoryQuestion question;
  question.max_positions = info.max_position_embeddings;
  question.context = options.context;
  question.kv_bytes = options.kv_bytes;
  question.page_bytes = parts.backend->kv_page_bytes(info.kv_layers);
  question.free_bytes = free_memory().bytes;
  question.max_sequences = options.max_sequences;
  // Pages cost nothing here: by default every sequence has a whole window.
  if (question.kv_bytes == 0)
    question.kv_bytes =
        static_cast<int64_t>(question.page_bytes) * options.max_sequences *
        ((options.context > 0 ? options.context : question.max_positions) / kPagePositions + 1);
  INVAR_TRY(const MemoryPlan memory, plan_memory(question));
  parts.context = memory.context;
  parts.num_pages = memory.num_pages;
  parts.max_sequences = options.max_sequences;
  parts.prefill_chunk = std::min(options.prefill_chunk, file->prefill_chunk);
  parts.step_slowdown = options.step_slowdown;
  if (options.prefix_cache_bytes >= 0)
    parts.prefix_cache_pages = static_cast<int>(
        std::min<uint64_t>(static_cast<uint64_t>(options.prefix_cache_bytes) / question.page_bytes,
                           static_cast<uint64_t>(memory.num_pages)));

  ModelDescription& d = parts.description;
  const BackendInfo backend = scripted_backend_info();
  d.path = script_file;
  d.family = info.family;
  d.quantization = info.quantization;
  d.tokenizer = parts.tokenizer->model_name();
  d.backend = backend.name;
  d.isa = backend.isa;
  d.isa_why = backend.why;
  d.arithmetic_id = backend.arithmetic_id;
  d.num_threads = 1;
  d.model_sha =
      sha256_hex({reinterpret_cast<const uint8_t*>(text.data()), text.size()}).substr(0, 8);
  d.vocab_size = info.vocab_size;
  d.max_position_embeddings = info.max_position_embeddings;
  d.context = memory.context;
  d.file_bytes = text.size();
  d.kv_bytes = memory.kv_bytes;
  d.kv_type = "none";
  d.kv_bytes_per_position = question.page_bytes / kPagePositions;
  return make_engine(std::move(parts));
}

}  // namespace invar::scripted
