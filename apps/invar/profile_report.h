// What `invar profile` shows of its measurements: a table, JSON, a picture.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "profile_measure.h"

namespace invar::cli {

struct ProfileReport {
  ModelDescription model;
  std::string cpu;
  ProfilePass kernels;  // settings: never unpacked, always unpacked
  ProfilePass totals;   // settings: built-in crossovers, measured ones
  std::vector<KernelCrossover> crossovers;
  int never = 0;                      // min_rows of shapes that are never unpacked
  std::string tuning_path, svg_path;  // "": not written
  std::string why_no_tuning;          // where it was wanted
};

// Geometric mean over the row counts of measured against built-in, more than 1 is a gain.
double tuning_gain(const ProfileReport& report);

// How far steps of a few rows, where both settings run the same kernels, are apart all the same:
// the largest such distance, 0.05 for 5 %. It is what other work on the machine does to the
// figures. Nothing: a crossover is so low that no steps ran the same kernels.
std::optional<double> noise(const ProfileReport& report);
inline constexpr double kMostNoise = 0.05;  // above, the figures say nothing

std::string profile_table(const ProfileReport& report);
Json profile_json(const ProfileReport& report);
std::string profile_svg(const ProfileReport& report);

}  // namespace invar::cli
