#include "chat.h"

#include <optional>
#include <vector>

#include "base/log.h"
#include "exit_codes.h"
#include "line_editor.h"
#include "models_folder.h"
#include "reply.h"
#include "terminal.h"

namespace invar::cli {
namespace {

constexpr const char* kHelp =
    "/help   this text\n"
    "/stats  tokens per second and token hash of the last reply\n"
    "/reset  forgets the conversation\n"
    "/exit   ends the program, as Ctrl-D does\n"
    "A \\ at the end of a line goes on in the next. Ctrl-C stops a reply, and the program when "
    "there "
    "is none.\n";

class Conversation {
 public:
  Conversation(Engine& engine, const ChatOptions& options) : engine_(engine), options_(options) {
    reset();
  }

  void reset() {
    messages_.clear();
    if (!options_.system.empty()) messages_.push_back({"system", options_.system});
  }

  void say(const std::string& text) {
    GenerationRequest request = options_.request;
    request.sampling = options_.sampling();
    if (options_.raw) {
      request.prompt = text;
    } else {
      messages_.push_back({"user", text});
      request.messages = messages_;
    }
    Result<Reply> reply = make_reply(engine_, request, true);
    if (!reply) {
      // The question is taken back, so that a shorter one can follow.
      if (!options_.raw) messages_.pop_back();
      fail("run", reply.error().message, kExitFailed);
      return;
    }
    const GenerationResult& result = reply->result;
    if (!options_.raw) messages_.push_back({"assistant", result.text});
    stats_ = reply_stats(result, request.sampling);
    if (result.finish_reason == FinishReason::kError)
      fail("run", result.error.message, kExitFailed);
    if (reply->interrupted) print_error(dim("[stopped]") + "\n");
    if (result.finish_reason == FinishReason::kLength)
      print_error(dim("[cut: the limit of tokens is reached]") + "\n");
    if (options_.stats) print_error(dim(stats_));
  }

  void show_stats() {
    print_error(stats_.empty() ? "no reply yet\n" : stats_);
    print_error(format("%zu messages, context %lld\n", messages_.size(),
                       static_cast<long long>(engine_.description().context)));
  }

 private:
  Engine& engine_;
  const ChatOptions& options_;
  std::vector<ChatMessage> messages_;
  std::string stats_;
};

}  // namespace

int chat(Engine& engine, const ChatOptions& options) {
  const ModelDescription& model = engine.description();
  const std::string banner = format(
      "invar %s, %s (%s, %s)\n%s %s, %d threads, arithmetic %s, context %lld; /help lists "
      "commands\n",
      version(), model_label(model.path).c_str(), model.family.c_str(), model.quantization.c_str(),
      model.backend.c_str(), model.isa.c_str(), model.num_threads, model.arithmetic_id.c_str(),
      static_cast<long long>(model.context));
  print_error(dim(banner));
  LineEditor editor(options.history_file);
  Conversation conversation(engine, options);
  while (std::optional<std::string> line = editor.read(">>> ")) {
    const size_t first = line->find_first_not_of(" \t\r\n");
    if (first == std::string::npos) continue;
    const std::string word = line->substr(first, line->find_last_not_of(" \t\r\n") - first + 1);
    if (word == "/exit" || word == "/quit") return kExitOk;
    if (word == "/help" || word == "/?") {
      print_error(kHelp);
    } else if (word == "/stats") {
      conversation.show_stats();
    } else if (word == "/reset") {
      conversation.reset();
      print_error(dim("[the conversation is forgotten]") + "\n");
    } else if (word[0] == '/' && word.find_first_of(" /\n", 1) == std::string::npos) {
      // A word of a path or a sentence after the slash is a message.
      print_error("no command " + escape_control(word) + "; /help lists them\n");
    } else {
      conversation.say(*line);
    }
  }
  print_error("\n");
  return kExitOk;
}

}  // namespace invar::cli
