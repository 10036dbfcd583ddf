// StopFilter: finds stop strings in a text that comes in pieces, and lets no part of one through.
// A pure byte machine: what comes out does not depend on how the text was cut.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace invar {

class StopFilter {
 public:
  explicit StopFilter(std::vector<std::string> stops);

  // Text that can no longer be part of a stop. Once a stop is complete (the first to be so; of two
  // that end together the longer), text before it is returned and everything later is swallowed.
  std::string push(std::string_view text);
  // The end of the text: what was held back.
  std::string finish();

  size_t num_held() const { return tail_.size(); }
  bool stopped() const { return stop_ >= 0; }
  const std::string& stop_text() const { return stops_[static_cast<size_t>(stop_)]; }

 private:
  size_t held_length() const;

  std::vector<std::string> stops_;
  std::string tail_;  // not yet returned
  int stop_ = -1;
};

}  // namespace invar
