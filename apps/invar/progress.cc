#include "progress.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "terminal.h"

namespace invar::cli {
namespace {
constexpr double kFirstBarSeconds = 0.3;
constexpr double kBarSeconds = 0.1;
constexpr double kFirstLineSeconds = 2;
constexpr double kLineSeconds = 5;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}
}  // namespace

Progress::Progress(std::string label, Unit unit)
    : label_(escape_control(label)), unit_(unit), terminal_(stderr_is_terminal()) {}

Progress::~Progress() { clear(); }

void Progress::start_at(uint64_t done) {
  const std::lock_guard lock(mutex_);
  start_ = done;
  begin_ = Clock::now();
}

void Progress::clear() {
  const std::lock_guard lock(mutex_);
  if (drawn_) print_error("\r\x1b[K");
  drawn_ = false;
}

void Progress::update(uint64_t done, uint64_t total) {
  const std::lock_guard lock(mutex_);
  const double seconds = seconds_since(begin_), pause = seconds_since(last_);
  if (terminal_) {
    if (seconds >= kFirstBarSeconds && pause >= kBarSeconds) draw_bar(done, total, seconds);
  } else if (seconds >= kFirstLineSeconds && pause >= kLineSeconds) {
    print_line(done, total, seconds);
  }
}

const char* Progress::unit_name() const {
  switch (unit_) {
    case Unit::kBytes:
      return "bytes";
    case Unit::kTokens:
      return "tokens";
    case Unit::kReplies:
      return "replies";
    case Unit::kSteps:
      return "row counts";
  }
  return "";
}

// "12 MB of 91 MB", "3 of 39 tokens"
std::string Progress::amounts(uint64_t done, uint64_t total) const {
  if (unit_ == Unit::kBytes)
    return human_bytes(done) + (total > 0 ? " of " + human_bytes(total) : "");
  std::string text = std::to_string(done);
  if (total > 0) text += " of " + std::to_string(total);
  return text + " " + unit_name();
}

std::string Progress::speed(double rate) const {
  return unit_ == Unit::kBytes ? human_bytes(static_cast<uint64_t>(rate)) + "/s"
                               : format("%.1f %s/s", rate, unit_name());
}

void Progress::draw_bar(uint64_t done, uint64_t total, double seconds) {
  last_ = Clock::now();
  drawn_ = true;
  const double rate = static_cast<double>(done - std::min(start_, done)) / seconds;
  std::string tail = "  " + amounts(done, 0) + "  " + speed(rate);
  std::string bar;
  if (total > 0) {
    const double part = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
    const auto left = static_cast<int>(
        rate > 0 ? std::min(359'999.0, static_cast<double>(total - std::min(done, total)) / rate)
                 : 0);
    tail = format(" %3d %%  ", static_cast<int>(part * 100)) + amounts(done, total) + "  " +
           speed(rate) + format("  %d:%02d left", left / 60, left % 60);
    const int room =
        std::min(40, terminal_width() - 4 - static_cast<int>(label_.size() + tail.size()));
    if (room >= 8) {
      const int filled = static_cast<int>(part * room);
      bar = " [" + std::string(static_cast<size_t>(filled), '#') +
            std::string(static_cast<size_t>(room - filled), '.') + "]";
    }
  }
  std::string line = label_ + bar + tail;
  const auto width = static_cast<size_t>(terminal_width() - 1);
  if (line.size() > width) line.resize(width);
  print_error("\r" + line + "\x1b[K");
}

void Progress::print_line(uint64_t done, uint64_t total, double seconds) {
  const int percent =
      total > 0 ? static_cast<int>(100 * (static_cast<double>(done) / static_cast<double>(total)))
                : -1;
  if (percent >= 0 && percent == last_percent_) return;
  last_ = Clock::now();
  last_percent_ = percent;
  const double rate = static_cast<double>(done - std::min(start_, done)) / seconds;
  std::string line = label_ + ": " + amounts(done, total);
  if (total > 0) line += format(", %d %%", percent);
  print_error(line + ", " + speed(rate) + "\n");
}

}  // namespace invar::cli
