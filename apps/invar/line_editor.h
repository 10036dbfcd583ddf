// Reading lines from a terminal: editing and history by libedit, the history kept in a file.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace invar::cli {

// $XDG_STATE_HOME/invar/history, else ~/.local/state/invar/history.
std::string history_path();

class LineEditor {
 public:
  // "" keeps no history beyond this session. A file that cannot be written is no error.
  explicit LineEditor(const std::string& history_file);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // One message: a line, the lines that follow a backslash at a line's end, or all lines of one
  // paste. Nothing at the end of input (Ctrl-D).
  std::optional<std::string> read(const char* prompt);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace invar::cli
