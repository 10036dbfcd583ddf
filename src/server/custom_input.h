// CustomInput: the free text of a custom tool's call, out of {"input": "..."}, which is how the
// model writes it (responses_tools.h). A pure byte machine: pieces may be cut anywhere.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace invar::server {

class CustomInput {
 public:
  // The text that became certain. Arguments of another form come out as they are.
  std::string push(std::string_view arguments);
  std::string finish();  // what was held back; nothing follows

 private:
  enum class State { kHead, kText, kEscape, kHex, kEnd, kRaw };
  // 1: the text begins behind held_, 0: not yet known, -1: another form.
  int read_head() const;
  void take(char c, std::string& out);
  void take_hex(std::string& out);

  State state_ = State::kHead;
  std::string held_;             // of the head, or of an escape's digits
  uint32_t high_surrogate_ = 0;  // waits for its other half
};

}  // namespace invar::server
