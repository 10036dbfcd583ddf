// How many threads are worth using: folders that look like /proc and /sys of other machines.
#include "base/threads_count.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>
#include <vector>

#include "base/threads.h"

namespace invar {
namespace {

class CountThreads : public testing::Test {
 protected:
  CountThreads() {
    std::string name = testing::TempDir() + "/invar-threads.XXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~CountThreads() override { std::filesystem::remove_all(root_); }

  void file(const std::string& path, const std::string& text) {
    const std::filesystem::path full = root_ + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text << "\n";
  }
  // CPUs [0, count), `siblings` of them a core, next to each other.
  void cpus(int count, int siblings = 1) {
    for (int cpu = 0; cpu < count; ++cpu) {
      const int first = cpu / siblings * siblings;
      file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
           siblings == 1 ? std::to_string(first)
                         : std::to_string(first) + "-" + std::to_string(first + siblings - 1));
    }
  }
  int count(std::vector<int> allowed) const { return count_threads(allowed, root_); }
  int count_first(int n) const {
    std::vector<int> allowed(static_cast<size_t>(n));
    std::iota(allowed.begin(), allowed.end(), 0);
    return count(allowed);
  }

 private:
  std::string root_;
};

TEST_F(CountThreads, OneACoreThatTheMaskAllows) {
  cpus(16, 2);
  EXPECT_EQ(count_first(16), 8);
  EXPECT_EQ(count({0, 1}), 1);        // both siblings of one core
  EXPECT_EQ(count({1, 2, 7}), 3);     // one of each of three
  EXPECT_EQ(count({2, 3, 4, 5}), 2);  // a mask of two whole cores
  EXPECT_EQ(count({}), 1);
}

TEST_F(CountThreads, WithoutATopologyEveryCpuIsACore) { EXPECT_EQ(count({0, 1, 2}), 3); }

TEST_F(CountThreads, QuotaOfVersion2) {
  cpus(8);
  file("/proc/self/cgroup", "0::/system.slice/invar.service");
  const std::string own = "/sys/fs/cgroup/system.slice/invar.service/cpu.max";
  file(own, "max 100000");
  EXPECT_EQ(count_first(8), 8);
  file(own, "300000 100000");
  EXPECT_EQ(count_first(8), 3);
  file(own, "150000 100000");  // 1.5 CPUs
  EXPECT_EQ(count_first(8), 1);
  file(own, "20000 100000");  // a fifth of one
  EXPECT_EQ(count_first(8), 1);
  file(own, "9900000 100000");  // more than there are
  EXPECT_EQ(count_first(8), 8);
  // The tightest on the way up counts.
  file("/sys/fs/cgroup/system.slice/cpu.max", "200000 100000");
  EXPECT_EQ(count_first(8), 2);
}

TEST_F(CountThreads, QuotaOfVersion2InAContainer) {
  cpus(8);
  // The container sees its own group as the root of the mount.
  file("/proc/self/cgroup", "0::/");
  file("/sys/fs/cgroup/cpu.max", "250000 100000");
  EXPECT_EQ(count_first(8), 2);
  // Without a cgroup namespace the path is the host's, and leads nowhere here.
  file("/proc/self/cgroup", "0::/docker/0123abcd");
  EXPECT_EQ(count_first(8), 2);
}

TEST_F(CountThreads, QuotaOfVersion1) {
  cpus(8);
  file("/proc/self/cgroup", "5:memory:/work\n4:cpu,cpuacct:/work/job\n1:name=systemd:/");
  const std::string own = "/sys/fs/cgroup/cpu,cpuacct/work/job/";
  file(own + "cpu.cfs_quota_us", "-1");
  file(own + "cpu.cfs_period_us", "100000");
  EXPECT_EQ(count_first(8), 8);
  file(own + "cpu.cfs_quota_us", "350000");
  EXPECT_EQ(count_first(8), 3);
  file(own + "cpu.cfs_quota_us", "150000");
  EXPECT_EQ(count_first(8), 1);
  file("/proc/self/cgroup", "5:memory:/work");  // no cpu controller: no limit
  EXPECT_EQ(count_first(8), 8);
}

TEST_F(CountThreads, QuotaOfVersion1InAContainer) {
  cpus(4);
  file("/proc/self/cgroup", "4:cpuacct,cpu:/docker/0123abcd");
  file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000");
  file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(count_first(4), 2);
}

TEST_F(CountThreads, QuotaWhereBothVersionsAreMounted) {
  cpus(4);
  file("/proc/self/cgroup", "1:cpu:/\n0::/user.slice");
  file("/sys/fs/cgroup/unified/user.slice/cpu.max", "200000 100000");
  EXPECT_EQ(count_first(4), 2);
}

TEST_F(CountThreads, NonsenseIsNoLimit) {
  cpus(4);
  file("/proc/self/cgroup", "::::\n0\n:\n0::");
  for (const char* text : {"", "max", "max max", "-5 100000", "100000 0", "nan nan", "1e5"}) {
    file("/sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(count_first(4), 4) << text;
  }
}

TEST(DefaultNumThreads, IsBetweenOneAndTheCpusThere) {
  EXPECT_GE(default_num_threads(), 1);
  EXPECT_LE(default_num_threads(), static_cast<int>(std::thread::hardware_concurrency()));
}

TEST(DefaultNumThreads, FollowsTheMaskOfThisThread) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const int count = default_num_threads();
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace invar
