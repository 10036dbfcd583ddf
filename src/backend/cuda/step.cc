// Words for what is in a step: for log lines and for `--tuning`.
#include "backend/cuda/step.h"

#include <iterator>

namespace invar::cuda {
namespace {

struct Switch {
  std::string_view word;
  bool StepTuning::* field;
};
constexpr Switch kSwitches[] = {
    {"graph", &StepTuning::graph},
    {"dependent-launch", &StepTuning::dependent},
    {"norm-inside", &StepTuning::norm_inside},
    {"rope-inside", &StepTuning::rope_inside},
    {"buffer-reuse", &StepTuning::reuse},
    {"late-trigger", &StepTuning::late},
    {"stream-attention", &StepTuning::stream_attention},
    {"token-attention", &StepTuning::token_attention},
};

}  // namespace

const char* step_op_name(StepOpKind kind) {
  constexpr const char* kNames[] = {"embed",        "rms_norm", "head_rms_norm", "linear",
                                    "gated_linear", "rope",     "attention",     "gather_rows",
                                    "lm_head",      "best_ids"};
  return kNames[static_cast<size_t>(kind)];
}

Result<StepTuning> parse_tuning(std::string_view words) {
  StepTuning tuning;
  while (!words.empty()) {
    const size_t comma = words.find(',');
    const std::string_view word = words.substr(0, comma);
    words = comma == std::string_view::npos ? "" : words.substr(comma + 1);
    const bool off = word.starts_with("no-");
    const std::string_view name = off ? word.substr(3) : word;
    bool found = false;
    for (const Switch& s : kSwitches) {
      if (s.word != name) continue;
      tuning.*s.field = !off;
      found = true;
    }
    if (found) continue;
    std::string known;
    for (const Switch& s : kSwitches) known += (known.empty() ? "" : ", ") + std::string(s.word);
    return invalid_argument("unknown tuning '%.*s'; known, each also with no- before it: %s",
                            static_cast<int>(word.size()), word.data(), known.c_str());
  }
  return tuning;
}

}  // namespace invar::cuda
