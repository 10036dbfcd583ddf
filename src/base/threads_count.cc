// default_num_threads(): what the scheduler will really give us.
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
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
int physical_cores(const std::vector<int>& cpus) {
  std::set<std::string> cores;
  for (int cpu : cpus) {
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    const std::string siblings = read_sys(folder + "thread_siblings_list");
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
double cgroup_quota() {
  double quota = std::min({quota_at("/sys/fs/cgroup"), quota_at("/sys/fs/cgroup/cpu"),
                           quota_at("/sys/fs/cgroup/cpu,cpuacct")});
  const std::string groups = read_sys("/proc/self/cgroup");
  for (size_t at = 0; at < groups.size();) {
    const size_t end = std::min(groups.find('\n', at), groups.size());
    const std::string line = groups.substr(at, end - at);
    at = end + 1;
    // "hierarchy:controllers:path"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    std::string mount = "/sys/fs/cgroup";
    if (!controllers.empty()) {
      if (("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
      mount += "/" + controllers;
    }
    while (path.size() > 1) {
      quota = std::min(quota, quota_at(mount + path));
      const size_t slash = path.rfind('/');
      path.resize(slash == std::string::npos ? 0 : slash);
    }
  }
  return quota;
}

}  // namespace

int default_num_threads() {
  const std::vector<int> cpus = allowed_cpus();
  int count =
      cpus.empty() ? static_cast<int>(std::thread::hardware_concurrency()) : physical_cores(cpus);
  const double quota = cgroup_quota();
  if (quota < count) count = static_cast<int>(quota);  // rounded down: 1.5 CPUs run one thread well
  return std::max(count, 1);
}

}  // namespace invar
