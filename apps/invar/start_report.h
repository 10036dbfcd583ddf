// What a server says when it is ready: the model, where it runs and why, window, memory, template
// and addresses.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "invar/invar.h"

namespace invar::cli {

struct StartFacts {
  std::chrono::duration<double> took{0};
  std::vector<std::string> addresses = {};
  size_t num_keys = 0;
  int max_sequences = 1;
  const char* window_source = "checkpoint";  // serve_window.h
};

void report_start(const ModelDescription& model, const StartFacts& facts);

}  // namespace invar::cli
