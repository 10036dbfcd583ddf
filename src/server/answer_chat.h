// answer_chat(): what routes that answer a chat do alike once the request is read: submit it, enter
// it where running requests are listed, write its answer. How an answer is written is the routes'
// business (chat_route.cc, responses_route.cc, messages_route.cc).
#pragma once

#include <memory>
#include <utility>

#include "server/chat_reply.h"
#include "server/engine_call.h"
#include "server/request_registry.h"
#include "server/warning_log.h"

namespace invar::server {

// `Answer` is made of the reply, what else its route has read, the X-Request-Id and the writer; it
// has id(), answer() and stream(). `call_prefix` as ChatReply has it.
template <typename Answer, typename... More>
void answer_chat(const EngineCall& call, const std::shared_ptr<ResponseWriter>& writer,
                 ChatRequest chat, const char* call_prefix, const More&... more) {
  ChatReply reply(call.engine, std::move(chat), call_prefix);
  if (const auto error = reply.start()) return writer->fail(*error);
  Answer answer(reply, more..., call.http.request_id, writer);
  const GenerationFields& generation = reply.request().generation;
  const RequestRegistry::Entry entry(call.options.requests,
                                     request_facts(call.http, answer.id(), generation), writer,
                                     reply.choices());
  if (generation.stream)
    answer.stream();
  else
    answer.answer();
  if (call.options.warning_log != nullptr) call.options.warning_log->note(generation.warnings);
}

}  // namespace invar::server
