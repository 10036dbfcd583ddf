// Words for what is in a step: for log lines and for `--cuda-switches`.
#include "backend/cuda/step.h"

#include <iterator>

namespace invar::cuda {
namespace {

struct Switch {
  std::string_view word;
  bool StepSwitches::* field;
};
constexpr Switch kSwitches[] = {
    {"graph", &StepSwitches::graph},
    {"dependent-launch", &StepSwitches::dependent},
    {"norm-inside", &StepSwitches::norm_inside},
    {"rope-inside", &StepSwitches::rope_inside},
    {"buffer-reuse", &StepSwitches::reuse},
    {"late-trigger", &StepSwitches::late},
    {"stream-attention", &StepSwitches::stream_attention},
    {"token-attention", &StepSwitches::token_attention},
};

}  // namespace

const char* step_op_name(StepOpKind kind) {
  constexpr const char* kNames[] = {"embed",        "rms_norm", "head_rms_norm", "linear",
                                    "gated_linear", "rope",     "attention",     "gather_rows",
                                    "lm_head",      "best_ids"};
  return kNames[static_cast<size_t>(kind)];
}

Result<StepSwitches> parse_switches(std::string_view words) {
  StepSwitches switches;
  while (!words.empty()) {
    const size_t comma = words.find(',');
    const std::string_view word = words.substr(0, comma);
    words = comma == std::string_view::npos ? "" : words.substr(comma + 1);
    const bool off = word.starts_with("no-");
    const std::string_view name = off ? word.substr(3) : word;
    bool found = false;
    for (const Switch& s : kSwitches) {
      if (s.word != name) continue;
      switches.*s.field = !off;
      found = true;
    }
    if (found) continue;
    std::string known;
    for (const Switch& s : kSwitches) known += (known.empty() ? "" : ", ") + std::string(s.word);
    return invalid_argument("unknown switch '%.*s'; known, each also with no- before it: %s",
                            static_cast<int>(word.size()), word.data(), known.c_str());
  }
  return switches;
}

}  // namespace invar::cuda
