// Progress of something long on standard error: a bar that redraws itself on a terminal, a line now
// and then otherwise. Nothing appears for work that ends at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace invar::cli {

class Progress {
 public:
  enum class Unit { kBytes, kTokens, kReplies, kSteps };
  // `label` says what is going on: "loading smollm2.gguf".
  Progress(std::string label, Unit unit);
  ~Progress();  // removes the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // From any thread. total 0: unknown.
  void update(uint64_t done, uint64_t total);
  // Work that was done before this run counts for the percentage, not for the speed.
  void start_at(uint64_t done);
  // Removes the bar until the next update, so that a line can be printed.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  const char* unit_name() const;
  std::string amounts(uint64_t done, uint64_t total) const;
  std::string speed(double rate) const;
  void draw_bar(uint64_t done, uint64_t total, double seconds);
  void print_line(uint64_t done, uint64_t total, double seconds);

  const std::string label_;
  const Unit unit_;
  const bool terminal_;
  std::mutex mutex_;
  Clock::time_point begin_ = Clock::now(), last_{};
  uint64_t start_ = 0;
  int last_percent_ = 0;
  bool drawn_ = false;
};

}  // namespace invar::cli
