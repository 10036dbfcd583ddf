// ReplyText: from a reply's ids to what its reader gets. Bytes become characters (Detokenizer), the
// text becomes parts (the request's ReplyParser), and stop strings are looked for in what is left
// as content. In that order, so that a stop never cuts a tag or a call and never delays one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/stop_filter.h"
#include "invar/invar.h"
#include "tokenizer/tokenizer.h"

namespace invar {

struct StopRules {
  std::vector<std::string> texts = {};
  bool include = false;       // the stop string is delivered
  bool in_reasoning = false;  // looked for in reasoning as well
};

class ReplyText {
 public:
  // `parser` null: all text is content, delivered as TokenEvent::text.
  ReplyText(const Tokenizer& tokenizer, const StopRules& rules,
            std::unique_ptr<ReplyParser> parser);

  // Fills in everything of `event` that is text. `look_for_stops` false: it goes past the stops.
  void push(int32_t id, bool look_for_stops, TokenEvent& event);
  // Nothing follows: what was held back.
  void finish(bool look_for_stops, TokenEvent& event);

  bool stopped() const { return stop_ != nullptr; }
  const std::string& stop_text() const { return *stop_; }
  bool in_reasoning() const { return parser_ != nullptr && parser_->in_reasoning(); }
  const std::string& content() const { return content_; }  // delivered so far

 private:
  // One kind's filter, and where what it holds back ends in the whole text.
  struct Watched {
    StopFilter filter;
    size_t end = 0;
  };
  void take(std::string_view text, bool look_for_stops, TokenEvent& event);
  void take_part(ReplyPart part, bool look_for_stops, TokenEvent& event);
  void release(ReplyPart::Kind kind, Watched& watched, TokenEvent& event);
  void deliver(ReplyPart part, TokenEvent& event);

  Detokenizer detokenizer_;
  const std::unique_ptr<ReplyParser> parser_;
  const bool includes_stop_, stops_in_reasoning_;
  Watched content_watch_, reasoning_watch_;
  const std::string* stop_ = nullptr;  // that ended the text
  size_t num_bytes_ = 0;               // of the whole text so far
  std::string content_;
};

}  // namespace invar
