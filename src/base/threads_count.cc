// default_num_threads(): what the scheduler will really give us.
#include "base/threads_count.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/threads.h"

namespace invar {
namespace {

constexpr size_t kMaxBytes = 64 << 10;

// CPUs that the affinity mask allows; empty when the kernel does not say.
std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  // The mask of a large machine needs more than the 1,024 bits of cpu_set_t.
  for (int max_cpus = 1024; max_cpus <= 65536 && cpus.empty(); max_cpus *= 4) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(max_cpus));
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(max_cpus));
    if (sched_getaffinity(0, bytes, set) == 0) {
      for (int cpu = 0; cpu < max_cpus; ++cpu)
        if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set)) cpus.push_back(cpu);
    }
    CPU_FREE(set);
  }
  return cpus;
}

std::string read_sys(const std::string& path) {
  // Not read_file(): files of /sys and /proc have no size.
  std::string text;
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return text;
  char buffer[4096];
  for (size_t n; text.size() < kMaxBytes && (n = std::fread(buffer, 1, sizeof buffer, file)) > 0;)
    text.append(buffer, n);
  std::fclose(file);
  return text;
}

// Siblings of one core share its arithmetic units: one thread a core is all they can use.
int physical_cores(std::span<const int> cpus, const std::string& root) {
  std::set<std::string> cores;
  for (int cpu : cpus) {
    const std::string folder = root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu);
    const std::string siblings = read_sys(folder + "/topology/thread_siblings_list");
    cores.insert(siblings.empty() ? "cpu " + std::to_string(cpu) : siblings);
  }
  return static_cast<int>(cores.size());
}

// CPUs of quota at this cgroup folder, or a huge number without a limit.
double quota_at(const std::string& folder) {
  constexpr double kNoLimit = 1e9;
  double quota = 0, period = 0;
  // cgroup v2: "max 100000" or "150000 100000".
  const std::string max = read_sys(folder + "/cpu.max");
  if (std::sscanf(max.c_str(), "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0)
    return quota / period;
  // cgroup v1: -1 without a limit.
  const std::string v1_quota = read_sys(folder + "/cpu.cfs_quota_us");
  const std::string v1_period = read_sys(folder + "/cpu.cfs_period_us");
  if (std::sscanf(v1_quota.c_str(), "%lf", &quota) == 1 &&
      std::sscanf(v1_period.c_str(), "%lf", &period) == 1 && quota > 0 && period > 0)
    return quota / period;
  return kNoLimit;
}

// The tightest quota on the way from our cgroup to the root. In a container the path of
// /proc/self/cgroup may not exist below our mount; then the mount's root is our own group.
double cgroup_quota(const std::string& root) {
  const std::string mounts = root + "/sys/fs/cgroup";
  double quota = std::min({quota_at(mounts), quota_at(mounts + "/unified"),
                           quota_at(mounts + "/cpu"), quota_at(mounts + "/cpu,cpuacct")});
  const std::string groups = read_sys(root + "/proc/self/cgroup");
  for (size_t at = 0; at < groups.size();) {
    const size_t end = std::min(groups.find('\n', at), groups.size());
    const std::string line = groups.substr(at, end - at);
    at = end + 1;
    // "hierarchy:controllers:path"; version 2 has no controllers.
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && ("," + controllers + ",").find(",cpu,") == std::string::npos)
      continue;
    for (std::string path = line.substr(second + 1); path.size() > 1;) {
      if (controllers.empty()) {
        quota = std::min({quota, quota_at(mounts + path), quota_at(mounts + "/unified" + path)});
      } else {
        quota = std::min(
            {quota, quota_at(mounts + "/" + controllers + path), quota_at(mounts + "/cpu" + path)});
      }
      const size_t slash = path.rfind('/');
      path.resize(slash == std::string::npos ? 0 : slash);
    }
  }
  return quota;
}

}  // namespace

int count_threads(std::span<const int> cpus, const std::string& root) {
  const int cores = physical_cores(cpus, root);
  const double quota = cgroup_quota(root);
  // Rounded down: 1.5 CPUs run one thread well, and stop two of them for half of the time.
  return std::max(quota < cores ? static_cast<int>(quota) : cores, 1);
}

int default_num_threads() {
  std::vector<int> cpus = allowed_cpus();
  if (cpus.empty()) {  // the kernel does not say
    cpus.resize(std::thread::hardware_concurrency());
    std::iota(cpus.begin(), cpus.end(), 0);
  }
  return count_threads(cpus, "");
}

}  // namespace invar
