// The packed cache when its writer is killed, when two write at once, and when the disk is full,
// read-only or small. Each case runs in a child process of its own.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>

#include "cache/packed_test_util.h"

namespace invar {
namespace {

using namespace testing;
using State = DiskPackedCache::State;
using Clock = std::chrono::steady_clock;

class PackedCrashTest : public ::testing::Test {
 protected:
  PackedCrashTest() {
    model_.weights = temporary_.path("weights");
    write_file(model_.weights, random_bytes(100'000, 1));
    model_.section_bytes = {100'000, 3 * kPackedBlock + 9, 700'000, 64};
  }

  // A child that ends with what `body` returns; its messages stay out of the test's output.
  template <typename Body>
  pid_t spawn(const Body& body) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    const int null = ::open("/dev/null", O_WRONLY);
    ::dup2(null, 2);
    ::_exit(body());
  }
  int ended(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  int load_in_child() { return static_cast<int>(load(model_, folder_).state); }

  TemporaryFolder temporary_;
  FakeModel model_;
  std::string folder_ = temporary_.path("packed");
};

TEST_F(PackedCrashTest, KilledAtAnyMomentTheNextStartIsRight) {
  const auto begin = Clock::now();
  ASSERT_EQ(ended(spawn([&] { return load_in_child(); })), static_cast<int>(State::kWritten));
  const auto whole = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
  std::mt19937 random(11);
  int num_killed = 0, num_abandoned = 0, num_whole = 0;
  for (int i = 0; i < 200; ++i) {
    // Half of them begin with a damaged file in place, which is to be replaced.
    for (const std::string& name : names_in(folder_)) {
      const std::string path = folder_ + "/" + name;
      if (i % 2 == 0 || name.starts_with('.')) {
        fs::remove(path);
      } else {
        std::string bytes = file_bytes(path);
        bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
        write_file(path, bytes);
      }
    }
    const pid_t child = spawn([&] { return load_in_child(); });
    ::usleep(static_cast<useconds_t>(random() % static_cast<unsigned>(whole.count() * 6 / 5)));
    ::kill(child, SIGKILL);
    num_killed += ended(child) == -SIGKILL;
    for (const std::string& name : names_in(folder_)) num_abandoned += name.starts_with('.');
    // load() compares every byte with what packing gives. Nothing is written, so that what the
    // child left is there for the next turn.
    PackedCacheOptions options = model_.options(folder_);
    options.max_bytes = 0;
    num_whole += load(model_, options).num_packed == 0;
  }
  EXPECT_GT(num_killed, 50);
  EXPECT_GT(num_abandoned, 10) << "no writer was killed while it wrote";
  EXPECT_GT(num_whole, 0) << "no writer came to its end";
  // The next one cleans up after all of them.
  for (const std::string& name : names_in(folder_))
    if (!name.starts_with('.')) fs::remove(folder_ + "/" + name);
  EXPECT_EQ(load(model_, folder_).state, State::kWritten);
  EXPECT_EQ(names_in(folder_).size(), 1u);
  EXPECT_EQ(load(model_, folder_).num_packed, 0u);
}

TEST_F(PackedCrashTest, ManyWritersAtOnceLeaveOneGoodFile) {
  for (int round = 0; round < 10; ++round) {
    fs::remove_all(folder_);
    std::vector<pid_t> children;
    for (int i = 0; i < 4; ++i) children.push_back(spawn([&] { return load_in_child(); }));
    int num_written = 0;
    for (const pid_t child : children) {
      const auto state = static_cast<State>(ended(child));
      // Late ones read, others leave it to the one that writes.
      EXPECT_TRUE(state == State::kWritten || state == State::kComplete ||
                  state == State::kNotWritten);
      num_written += state == State::kWritten;
    }
    EXPECT_GE(num_written, 1);
    EXPECT_EQ(names_in(folder_).size(), 1u);
    EXPECT_EQ(load(model_, folder_).num_packed, 0u);
  }
}

TEST_F(PackedCrashTest, AFileSizeLimitEndsTheWritingOnly) {
  // Below the first section, between two, within the index.
  for (const rlim_t limit : {rlim_t{5000}, rlim_t{300'000}, rlim_t{1'600'000}}) {
    fs::remove_all(folder_);
    EXPECT_EQ(ended(spawn([&] {
                const rlimit size{limit, limit};
                ::setrlimit(RLIMIT_FSIZE, &size);
                return load_in_child();
              })),
              static_cast<int>(State::kNotWritten));
    EXPECT_TRUE(names_in(folder_).empty()) << limit;
  }
}

// A file system of its own, where this may be mounted.
TEST_F(PackedCrashTest, ASmallDiskIsNotFilled) {
  fs::create_directory(folder_);
  constexpr int kCannotMount = 100;
  const auto on_disk_of = [&](const char* size) {
    return ended(spawn([&] {
      if (::unshare(CLONE_NEWNS) != 0 ||
          ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          ::mount("tmpfs", folder_.c_str(), "tmpfs", 0,
                  (std::string("mode=0700,size=") + size).c_str()) != 0)
        return kCannotMount;
      const int state = load_in_child();
      if (state == static_cast<int>(State::kWritten)) return state;
      return names_in(folder_).empty() ? state : kCannotMount + 1;
    }));
  };
  const int small = on_disk_of("2m");
  if (small == kCannotMount) GTEST_SKIP() << "needs the right to mount a tmpfs";
  EXPECT_EQ(small, static_cast<int>(State::kNotWritten));
  EXPECT_EQ(on_disk_of("1m"), static_cast<int>(State::kNotWritten));
  EXPECT_EQ(on_disk_of("8m"), static_cast<int>(State::kWritten));
}

TEST_F(PackedCrashTest, AReadOnlyFolderIsReadButNotWritten) {
  constexpr uid_t kNobody = 65534;
  const auto as_nobody = [&] {
    if (::geteuid() == 0 && (::setegid(kNobody) != 0 || ::seteuid(kNobody) != 0)) return 100;
    return load_in_child();
  };
  const auto own = [&](const std::string& path) {
    if (::geteuid() == 0) {
      EXPECT_EQ(::chown(path.c_str(), kNobody, kNobody), 0);
    }
  };
  own(temporary_.path());
  fs::create_directory(folder_);
  own(folder_);
  fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_EQ(ended(spawn(as_nobody)), static_cast<int>(State::kNotWritten));
  fs::permissions(folder_, fs::perms::owner_all);
  EXPECT_EQ(ended(spawn(as_nobody)), static_cast<int>(State::kWritten));
  fs::permissions(folder_ + "/" + names_in(folder_).at(0), fs::perms::owner_read);
  fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_EQ(ended(spawn(as_nobody)), static_cast<int>(State::kComplete));
  fs::permissions(folder_, fs::perms::owner_all);
}

}  // namespace
}  // namespace invar
