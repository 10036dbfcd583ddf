#include "line_editor.h"

#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/file.h"
#include "environment.h"
#include "terminal.h"

namespace invar::cli {
namespace {

constexpr int kMaxEntries = 1000;
constexpr size_t kMaxHistoryBytes = 4 << 20;
// Lines of one paste come at once; nobody types a line in this time.
constexpr int kPasteMilliseconds = 15;

bool input_waits() {
  pollfd in{STDIN_FILENO, POLLIN, 0};
  return ::poll(&in, 1, kPasteMilliseconds) == 1 && (in.revents & POLLIN) != 0;
}

}  // namespace

std::string history_path() {
  std::string state = environment("XDG_STATE_HOME");
  if (state.empty()) state = environment("HOME") + "/.local/state";
  return state + "/invar/history";
}

struct LineEditor::State {
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string file;
  const char* prompt = "";

  static char* show_prompt(EditLine* editor) {
    void* data = nullptr;
    ::el_get(editor, EL_CLIENTDATA, &data);
    return const_cast<char*>(static_cast<State*>(data)->prompt);
  }

  void remember(const std::string& line) {
    HistEvent event;
    ::history(history, &event, H_ENTER, line.c_str());
    if (file.empty()) return;
    // Appended line by line: another chat may write too, and ours may be killed.
    const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) return;
    const std::string text = line + "\n";
    if (::write(fd, text.data(), text.size()) < 0) file.clear();
    ::close(fd);
  }

  // The newest entries of the file; an overlong file is cut to them.
  void load() {
    if (file.empty()) return;
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(file).parent_path(), error);
    const Result<std::string> text = read_file(file, kMaxHistoryBytes);
    if (!text) {
      if (text.error().code == ErrorCode::kCorrupt) std::filesystem::remove(file, error);
      return;
    }
    HistEvent event;
    for (size_t i = 0; i < text->size();) {
      const size_t end = std::min(text->find('\n', i), text->size());
      if (end > i) ::history(history, &event, H_ENTER, text->substr(i, end - i).c_str());
      i = end + 1;
    }
  }
};

LineEditor::LineEditor(const std::string& history_file) : state_(std::make_unique<State>()) {
  // Without a UTF-8 locale libedit would take the bytes of a character for several.
  ::setlocale(LC_CTYPE, "");
  if (std::strcmp(::nl_langinfo(CODESET), "UTF-8") != 0) ::setlocale(LC_CTYPE, "C.UTF-8");
  HistEvent event;
  state_->file = history_file;
  state_->history = ::history_init();
  ::history(state_->history, &event, H_SETSIZE, kMaxEntries);
  ::history(state_->history, &event, H_SETUNIQUE, 1);
  state_->load();
  state_->editor = ::el_init("invar", stdin, stdout_is_terminal() ? stdout : stderr, stderr);
  ::el_set(state_->editor, EL_CLIENTDATA, state_.get());
  ::el_set(state_->editor, EL_PROMPT, &State::show_prompt);
  ::el_set(state_->editor, EL_EDITOR, "emacs");
  ::el_set(state_->editor, EL_SIGNAL, 1);  // follows the window's size, comes back after Ctrl-Z
  ::el_set(state_->editor, EL_HIST, ::history, state_->history);
  ::el_set(state_->editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  ::el_set(state_->editor, EL_BIND, "\033[1~", "ed-move-to-beg", nullptr);
  ::el_set(state_->editor, EL_BIND, "\033[4~", "ed-move-to-end", nullptr);
  ::el_set(state_->editor, EL_BIND, "\033[3~", "ed-delete-next-char", nullptr);
  ::el_source(state_->editor, nullptr);  // the user's ~/.editrc
}

LineEditor::~LineEditor() {
  ::el_end(state_->editor);
  ::history_end(state_->history);
}

std::optional<std::string> LineEditor::read(const char* prompt) {
  std::string message;
  state_->prompt = prompt;
  for (bool first = true;; first = false) {
    int count = 0;
    const char* line = ::el_gets(state_->editor, &count);
    if (line == nullptr || count <= 0) {
      if (first) return std::nullopt;
      return message;
    }
    std::string text(line, static_cast<size_t>(count));
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
    if (text.find_first_not_of(" \t") != std::string::npos) state_->remember(text);
    state_->prompt = "... ";
    if (!text.empty() && text.back() == '\\') {
      text.back() = '\n';
      message += text;
      continue;
    }
    message += text;
    if (!input_waits()) return message;
    message += '\n';
  }
}

}  // namespace invar::cli
