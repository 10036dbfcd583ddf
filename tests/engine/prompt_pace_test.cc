// PromptPace against machines whose costs are known: it has to find the rows that keep a step
// within the slowdown.
#include "engine/prompt_pace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace invar {
namespace {

// Weights are read once a step; each row adds arithmetic.
struct Machine {
  double read = 0.02, row = 0.002;
  double step(int64_t num_rows) const {
    return std::max(read, static_cast<double>(num_rows) * row);
  }
};

TEST(PromptPace, NoRepliesNoBound) {
  PromptPace pace(512, 2);
  EXPECT_EQ(pace.rows(0).steady, 512);
  EXPECT_EQ(PromptPace(512, 0).rows(4).steady, 512);
}

TEST(PromptPace, BeforeAnythingIsKnownFewRows) {
  PromptPace pace(512, 2);
  EXPECT_LE(pace.rows(4).steady, 32);
  EXPECT_EQ(PromptPace(4, 2).rows(4).steady, 4);
  EXPECT_EQ(PromptPace(4, 2).rows(4).burst, 4);
}

TEST(PromptPace, FindsTheRowsOfAMachine) {
  std::mt19937 rng(5);
  for (const Machine machine : {Machine{}, Machine{0.001, 0.001}, Machine{0.1, 0.0005}}) {
    for (const int64_t num_replies : {1, 4, 16}) {
      PromptPace pace(512, 2);
      const double alone = machine.step(num_replies);
      std::vector<double> slowdowns;
      int64_t prompt_rows = 0;
      for (int i = 0; i < 300; ++i) {
        // Now and then another program takes the processor for a while.
        const double noise = rng() % 10 == 0 ? 1.5 : 1;
        const bool prompt = i >= 20;
        const int64_t rows = prompt ? pace.rows(num_replies).steady : 0;
        const double seconds = machine.step(num_replies + rows);
        if (i >= 60) prompt_rows += rows;
        if (prompt) slowdowns.push_back(seconds / alone);
        pace.note(num_replies, rows, seconds * noise);
      }
      std::sort(slowdowns.begin(), slowdowns.end());
      EXPECT_LE(slowdowns[slowdowns.size() * 99 / 100], 2.0) << num_replies << " replies";
      // And it uses the time that it has: at least half of the rows of the best constant choice.
      int64_t best = 1;
      while (machine.step(num_replies + best + 1) <= 2 * alone && best < 512) ++best;
      EXPECT_GE(static_cast<double>(prompt_rows), 0.5 * static_cast<double>(best) * 240)
          << num_replies;
    }
  }
}

TEST(PromptPace, NeverNoRows) {
  PromptPace pace(512, 2);
  pace.note(4, 0, 1e-6);
  pace.note(4, 16, 10);
  EXPECT_GE(pace.rows(4).steady, 1);
  EXPECT_GE(pace.rows(64).steady, 1);
  EXPECT_GE(pace.rows(1000).steady, 1);
}

}  // namespace
}  // namespace invar
