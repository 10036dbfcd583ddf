// The stop filter: every way to cut a text gives the same result as one piece, and as a search.
#include "engine/stop_filter.h"

#include <gtest/gtest.h>

#include <random>

namespace invar {
namespace {

struct Outcome {
  std::string text, stop;
  bool operator==(const Outcome&) const = default;
};

Outcome run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces,
            std::vector<std::string>* delivered = nullptr) {
  StopFilter filter(stops);
  Outcome outcome;
  for (const std::string& piece : pieces) {
    const std::string text = filter.push(piece);
    if (delivered) delivered->push_back(text);
    outcome.text += text;
  }
  if (filter.stopped()) outcome.stop = filter.stop_text();
  if (!filter.stopped()) outcome.text += filter.finish();
  return outcome;
}

// The first stop to be complete, the longer of two that end together.
Outcome search(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::string best;
    for (const std::string& stop : stops)
      if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0 &&
          stop.size() > best.size())
        best = stop;
    if (!best.empty()) return {text.substr(0, end - best.size()), best};
  }
  return {text, ""};
}

TEST(StopFilter, D2) {
  std::vector<std::string> delivered;
  const Outcome outcome =
      run({"END_OF", "END!"}, {"a E", "ND", "_", "X E", "ND", "! tail"}, &delivered);
  EXPECT_EQ(outcome, (Outcome{"a END_X ", "END!"}));
  EXPECT_EQ(delivered, (std::vector<std::string>{"a ", "", "", "END_X ", "", ""}));
}

TEST(StopFilter, EveryCutOfD2) {
  const std::string text = "a END_X END! tail";
  for (size_t a = 0; a <= text.size(); ++a)
    for (size_t b = a; b <= text.size(); ++b)
      EXPECT_EQ(run({"END_OF", "END!"}, {text.substr(0, a), text.substr(a, b - a), text.substr(b)}),
                (Outcome{"a END_X ", "END!"}));
}

TEST(StopFilter, NothingAfterAStop) {
  StopFilter filter({"x"});
  EXPECT_EQ(filter.push("axb"), "a");
  EXPECT_EQ(filter.push("cxd"), "");
  EXPECT_EQ(filter.finish(), "");
}

TEST(StopFilter, HoldsNoMoreThanNeeded) {
  StopFilter filter({"aab"});
  EXPECT_EQ(filter.push("aaa"), "a");  // "aa" may begin a stop
  EXPECT_EQ(filter.push("b"), "");
  EXPECT_TRUE(filter.stopped());
  StopFilter none({});
  EXPECT_EQ(none.push("text"), "text");
}

TEST(StopFilter, RandomTextsAndCuts) {
  std::mt19937 rng(4);
  const auto word = [&](size_t max) {
    std::string text;
    for (size_t n = 1 + rng() % max; n > 0; --n) text += static_cast<char>('a' + rng() % 2);
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops;
    for (size_t n = 1 + rng() % 4; n > 0; --n) stops.push_back(word(6));
    const std::string text = word(40);
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      pieces.push_back(text.substr(at, 1 + rng() % 5));
      at += pieces.back().size();
    }
    std::vector<std::string> delivered;
    EXPECT_EQ(run(stops, pieces, &delivered), search(stops, text));
    // What is held is at most the longest proper beginning of a stop.
    std::string so_far, seen;
    for (size_t i = 0; i < pieces.size(); ++i) {
      seen += pieces[i];
      so_far += delivered[i];
      if (search(stops, seen).stop.empty()) {
        EXPECT_GE(so_far.size() + 5, seen.size());
      }
    }
  }
}

}  // namespace
}  // namespace invar
