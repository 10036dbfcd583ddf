// Regex: PCRE2 behind a small interface, for patterns of tokenizer.json that have no hand-written
// matcher (split_patterns.h), and as the oracle that those matchers are tested against.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace invar {

class Regex {
 public:
  // Unicode-aware; \s and \S mean White_Space as in Hugging Face's engine. Error: the pattern does
  // not compile, or uses syntax that the two engines read differently.
  static Result<Regex> compile(std::string_view pattern);

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // A text that is searched many times: checked once, or every search would check all that is left.
  // Invalid bytes stand in for a control character, so that they match as symbols do.
  class Subject {
   public:
    explicit Subject(std::string_view text);
    Subject(const Subject&) = delete;
    Subject& operator=(const Subject&) = delete;
    std::string_view text() const { return text_; }  // same length as the text given

   private:
    std::string replaced_;
    std::string_view text_;
  };

  // The first match at or after `from`. False when there is none, or when the match limits are
  // reached (a pattern that backtracks without end then just does not match).
  bool find(const Subject& subject, size_t from, size_t& begin, size_t& end) const;
  bool find(std::string_view text, size_t from, size_t& begin, size_t& end) const {
    return find(Subject(text), from, begin, end);
  }

 private:
  struct State;
  explicit Regex(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace invar
