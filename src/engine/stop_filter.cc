// Byte by byte, so that pieces cannot matter. At most 16 stops of 256 bytes against a few bytes a
// token: comparing tails is cheaper than building an automaton for each request.
#include "engine/stop_filter.h"

#include <algorithm>
#include <utility>

namespace invar {

StopFilter::StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {}

std::string StopFilter::push(std::string_view text) {
  if (stopped()) return {};
  if (stops_.empty()) return std::string(text);
  for (const char byte : text) {
    tail_ += byte;
    for (size_t i = 0; i < stops_.size(); ++i) {
      if (!tail_.ends_with(stops_[i])) continue;
      if (stop_ < 0 || stops_[i].size() > stop_text().size()) stop_ = static_cast<int>(i);
    }
    if (!stopped()) continue;
    tail_.resize(tail_.size() - stop_text().size());
    return std::exchange(tail_, {});
  }
  const size_t num_certain = tail_.size() - held_length();
  std::string certain = tail_.substr(0, num_certain);
  tail_.erase(0, num_certain);
  return certain;
}

std::string StopFilter::finish() { return std::exchange(tail_, {}); }

// Length of the longest end of tail_ that begins a stop.
size_t StopFilter::held_length() const {
  size_t held = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, tail_.size()); n > held; --n) {
      if (!std::string_view(tail_).ends_with(std::string_view(stop).substr(0, n))) continue;
      held = n;
      break;
    }
  }
  return held;
}

}  // namespace invar
