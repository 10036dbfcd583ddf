// A conversation in the terminal: what `invar run` does when it has no prompt.
#pragma once

#include <functional>
#include <string>

#include "invar/invar.h"

namespace invar::cli {

struct ChatOptions {
  std::string system;
  std::string history_file;   // "": none
  bool raw = false;           // each line is continued as it is, without template or memory
  bool stats = false;         // after each reply
  GenerationRequest request;  // all but the messages
  std::function<SamplingParams()>
      sampling;  // asked for each reply: a seed that was not given is new
};

// Returns the exit code.
int chat(Engine& engine, const ChatOptions& options);

}  // namespace invar::cli
