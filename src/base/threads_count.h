// How many threads default_num_threads() takes, as a function of what the kernel's files say: tests
// hand in folders that look like /proc and /sys of other machines.
#pragma once

#include <span>
#include <string>

namespace invar {

// Threads for the CPUs `cpus` (those the affinity mask allows): one a physical core, at most the
// cgroup's quota rounded down, at least 1. `root` stands before /proc and /sys.
int count_threads(std::span<const int> cpus, const std::string& root);

}  // namespace invar
