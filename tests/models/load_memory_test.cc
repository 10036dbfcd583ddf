// Loading never holds source and packed copy together: anonymous memory stays within 15 % of the
// packed size (page cache is not counted, it is the kernel's to take back).
#include <atomic>
#include <fstream>
#include <thread>

#include "models/harness.h"

namespace invar::testing {
namespace {

size_t anonymous_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  size_t kib = 0;
  while (status >> word)
    if (word == "RssAnon:") status >> kib;
  return kib * 1024;
}

TEST(LoadMemory, PeakIsThePackedSizePlusLittle) {
  const std::string path = real_model_path("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf");
  auto checkpoint = Checkpoint::open(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  auto backend = make_backend("cpu", {});
  ASSERT_TRUE(backend.ok());
  const size_t before = anonymous_bytes();
  std::atomic<bool> done{false};
  std::atomic<size_t> peak{0};
  std::thread watcher([&] {
    while (!done) {
      peak = std::max(peak.load(), anonymous_bytes());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  std::vector<uint64_t> progress;
  auto model = load_model(**checkpoint, **backend, [&](const LoadProgress& p) {
    EXPECT_LE(p.bytes_done, p.bytes_total);
    progress.push_back(p.bytes_done);
  });
  done = true;
  watcher.join();
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto packed = static_cast<double>((*model)->info().packed_bytes);
  EXPECT_LT(static_cast<double>(peak - before), 1.15 * packed);
  EXPECT_GT(static_cast<double>(peak - before), 0.5 * packed) << "the watcher saw nothing";
  EXPECT_GT(progress.size(), 50u);
  EXPECT_TRUE(std::is_sorted(progress.begin(), progress.end()));
}

}  // namespace
}  // namespace invar::testing
