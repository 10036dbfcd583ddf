// ChatReply: the reply to one chat request, as every API that asks for one wants it: a sequence of
// parts (reasoning, content, tool calls), the choices gathered whole, and what is said of them at
// the end. How an answer is written is the routes' business (chat_route.cc, responses_route.cc,
// messages_route.cc).
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/answer_parts.h"
#include "server/chat_request.h"
#include "server/choices.h"
#include "server/logprobs.h"

namespace invar::server {

class ChatReply {
 public:
  struct Part {
    ReplyPart::Kind kind = ReplyPart::Kind::kContent;
    std::string text;                  // kCallBegin: the function's name
    std::vector<TokenEntry> logprobs;  // kContent: of the tokens that begin in it
  };
  // What came of one token of one choice. Any of it may be missing.
  struct Event {
    int index = 0;
    std::vector<Part> parts;
    std::optional<int32_t> token_id;
    std::optional<PromptProgress> progress;  // then nothing else is set
    bool ended = false;                      // this choice has; its result() is there
  };
  struct Call {
    std::string id, name, arguments;
  };
  // What has come of one choice so far.
  struct Choice {
    std::string reasoning, content;
    std::vector<Call> calls;
    std::vector<TokenEntry> logprobs;
  };

  // `call_prefix`: ids of calls begin with it ("call_", "toolu_").
  ChatReply(Engine& engine, ChatRequest request, const char* call_prefix);

  // Submits it; nothing runs after an error.
  std::optional<ApiError> start();
  // Waits. Nothing more: all choices have ended.
  std::optional<Event> next();
  void cancel() { choices_->cancel(); }                                 // from any thread
  const std::shared_ptr<Choices>& choices() const { return choices_; }  // once started

  const ChatRequest& request() const { return chat_; }
  Engine& engine() const { return engine_; }
  int num_choices() const { return chat_.generation.num_choices; }
  const Choice& choice(int index) const { return texts_[static_cast<size_t>(index)]; }
  const GenerationResult& result(int index) const { return choices_->result(index); }
  // Why a choice that has ended gave no answer, if it did not.
  std::optional<ApiError> error(int index) const { return reply_error(result(index)); }

  // How an ended choice ended, in no API's words.
  enum class Ending { kEnd, kStop, kToolCalls, kLimit, kWindow };
  Ending ending(int index) const;
  bool was_cut(int index) const;  // by a limit or the window

  // Counts and times: as far as known while it runs, true once all choices have ended.
  Totals totals() const;
  // The `invar` object of the end.
  Json invar_facts() const;

 private:
  void take_token(TokenEvent token, Event& event);
  void warn_of_calls(int index);

  Engine& engine_;
  ChatRequest chat_;
  const std::string call_prefix_, prompt_sha_;
  std::shared_ptr<Choices> choices_;
  std::vector<Choice> texts_;
  std::vector<LogprobAligner> aligners_;
  int num_open_ = 0;
  int64_t num_tokens_ = 0, num_reasoning_tokens_ = 0;
  std::optional<PromptProgress> progress_;
  std::optional<std::chrono::steady_clock::time_point> prefill_began_, first_token_;
};

}  // namespace invar::server
