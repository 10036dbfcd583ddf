// `invar run`: one prompt answered, or a chat when standard input is a terminal.
#include <chrono>

#include "chat.h"
#include "commands.h"
#include "exit_codes.h"
#include "line_editor.h"
#include "models_folder.h"
#include "options.h"
#include "reply.h"
#include "terminal.h"
#include "text_input.h"
#include "weights/checkpoint.h"

namespace invar::cli {
namespace {

constexpr const char* kCommand = "run";

struct RunFlags {
  std::string model;
  std::optional<std::string> prompt;
  std::string system;
  bool raw = false;
  std::optional<int64_t> max_tokens;
  std::vector<std::string> stop;
  bool stats = false, json = false, no_history = false;
  EngineFlags engine;
  SamplingFlags sampling;
};

// All of the request that does not depend on the prompt.
GenerationRequest base_request(const RunFlags& flags) {
  GenerationRequest request;
  request.max_tokens = flags.max_tokens.value_or(-1);
  request.stop = flags.stop;
  return request;
}

int answer(Engine& engine, const RunFlags& flags, const std::string& prompt, double load_ms) {
  GenerationRequest request = base_request(flags);
  request.sampling = flags.sampling.params(engine.description().default_sampling);
  if (flags.raw) {
    request.prompt = prompt;
  } else {
    if (!flags.system.empty()) request.messages.push_back({"system", flags.system});
    request.messages.push_back({"user", prompt});
  }
  Result<Reply> reply = make_reply(engine, request, !flags.json);
  if (!reply) {
    // submit() checks the request; a prompt beyond the context is one that cannot work.
    const bool usage = reply.error().code == ErrorCode::kInvalidArgument ||
                       reply.error().code == ErrorCode::kResourceExhausted;
    return fail(kCommand, reply.error().message,
                usage ? kExitUsage : exit_code(reply.error().code));
  }
  const GenerationResult& result = reply->result;
  if (flags.json) print(reply_json(engine, request, result, load_ms).dump() + "\n");
  if (flags.stats) {
    print_error(
        format("loaded in %.0f ms, weights %s\n", load_ms, engine.description().packing.c_str()) +
        reply_stats(result, request.sampling));
  } else if (!flags.json && !flags.sampling.seed && request.sampling.temperature > 0) {
    print_error(dim(format("seed %llu", static_cast<unsigned long long>(request.sampling.seed))) +
                "\n");
  }
  if (result.finish_reason == FinishReason::kError)
    return fail(kCommand, result.error.message, kExitFailed);
  return reply->interrupted ? kExitInterrupted : kExitOk;
}

// Found in the header, before weights are read for nothing.
Result<bool> has_chat_template(const std::string& model) {
  INVAR_TRY(const std::string path, resolve_model(model));
  INVAR_TRY(const std::unique_ptr<Checkpoint> checkpoint, Checkpoint::open(path));
  return !checkpoint->chat_templates.empty();
}

int run(const RunFlags& flags) {
  const bool chats = !flags.prompt && stdin_is_terminal();
  if (chats && flags.json)
    return fail(kCommand, "--json needs --prompt or a prompt on standard input", kExitUsage);
  if (flags.raw && !flags.system.empty())
    return fail(kCommand, "--system needs the chat template that --raw turns off", kExitUsage);
  if (flags.raw && !flags.engine.chat_template_file.empty())
    return fail(kCommand, "--chat-template has no effect with --raw", kExitUsage);
  if (flags.prompt && flags.prompt->empty()) return fail(kCommand, "--prompt is empty", kExitUsage);
  Interrupts::start();

  if (!flags.raw && flags.engine.chat_template_file.empty()) {
    const Result<bool> has_template = has_chat_template(flags.model);
    if (!has_template) return fail(kCommand, has_template.error());
    if (!*has_template)
      return fail(kCommand,
                  flags.model +
                      " has no chat template (a base model?); --raw continues plain text, "
                      "--chat-template FILE gives it one",
                  kExitUsage);
  }
  std::string prompt = flags.prompt.value_or("");
  const auto begin = std::chrono::steady_clock::now();
  int code = kExitOk;
  // The model first: a wrong name shows before anybody has typed a prompt.
  const std::unique_ptr<Engine> engine = open_engine(kCommand, flags.model, flags.engine, 1, code);
  if (engine == nullptr) return code;
  const double load_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  if (chats) {
    ChatOptions options;
    options.system = flags.system;
    options.raw = flags.raw;
    options.stats = flags.stats;
    options.history_file = flags.no_history ? "" : history_path();
    options.request = base_request(flags);
    options.sampling = [&] {
      return flags.sampling.params(engine->description().default_sampling);
    };
    return chat(*engine, options);
  }
  if (!flags.prompt) {
    Result<std::string> text = read_standard_input();
    if (!text) return fail(kCommand, text.error());
    prompt = *std::move(text);
    // The line break that ends `echo` is no part of the prompt.
    if (prompt.ends_with("\n")) prompt.pop_back();
    if (prompt.ends_with("\r")) prompt.pop_back();
    if (prompt.empty())
      return fail(kCommand, "no prompt: standard input is empty; --prompt TEXT gives one",
                  kExitUsage);
  }
  return answer(*engine, flags, prompt, load_ms);
}

}  // namespace

std::function<int()> add_run(FlagSet& flags) {
  auto options = std::make_shared<RunFlags>();
  add_model(flags, options->model);
  flags.group("Prompt");
  flags.text("--prompt", "TEXT", options->prompt,
             "Answers TEXT and ends. Default: standard input, or a chat when that is a terminal.");
  flags.text("--system", "TEXT", options->system, "System message before the conversation.");
  options->engine.add_chat_template(flags);
  flags.toggle("--raw", options->raw, "Continues the prompt as plain text, without chat template.");
  flags.group("Length");
  flags.whole("--max-tokens", "N", {1, int64_t{1} << 24}, options->max_tokens,
              "Tokens of a reply. Default: up to the end of the context.");
  flags.texts("--stop", "TEXT", options->stop,
              "Ends the reply before TEXT; may be repeated, up to 16 times.",
              [](const std::string& text) -> std::string {
                if (!text.empty() && text.size() <= 256) return {};
                return format("a stop text has 1 to 256 bytes, not %zu", text.size());
              });
  options->sampling.add(flags);
  options->engine.add_backend(flags);
  options->engine.add_context(flags);
  flags.group("Output");
  flags.toggle("--stats", options->stats, "Tokens per second and token hash, on standard error.");
  flags.toggle("--json", options->json,
               "One object: text, token_ids, token_sha, arithmetic_id, seed, usage, timings.");
  flags.toggle("--no-history", options->no_history, "Keeps no file of what was typed.");
  flags.footer(
      "The chat knows /help, /stats, /reset and /exit. Ctrl-C stops a reply, a second one the\n"
      "program.\n\n"
      "Examples:\n"
      "  invar run smollm2-135m-instruct-q4_1\n"
      "  invar run model.gguf --prompt 'Name three rivers.' --max-tokens 64 --stats\n"
      "  git diff | invar run model.gguf --system 'Write a commit message.' --temperature 0.7");
  return [options] { return run(*options); };
}

}  // namespace invar::cli
