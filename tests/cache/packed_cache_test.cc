// The packed cache on disk: whatever a file holds, a load gets the bytes that packing would have
// given, and a file that is of no use is replaced. Crashes and full disks: packed_crash_test.cc.
#include "base/block_hash.h"
#include "cache/packed_test_util.h"

namespace invar {
namespace {

using namespace testing;
using State = DiskPackedCache::State;

class PackedCacheTest : public ::testing::Test {
 protected:
  PackedCacheTest() {
    model_.weights = temporary_.path("weights");
    write_file(model_.weights, random_bytes(100'000, 1));
    // Less than a block, exactly one, several and a bit.
    model_.section_bytes = {1000, kPackedBlock, 2 * kPackedBlock + 5, 64};
  }

  std::string file() const {
    const std::vector<std::string> names = names_in(folder_);
    EXPECT_EQ(names.size(), 1u);
    return names.empty() ? "" : folder_ + "/" + names[0];
  }
  void expect_packed_and_written() {
    const Loaded loaded = load(model_, folder_);
    EXPECT_EQ(loaded.num_read, 0u);
    EXPECT_EQ(loaded.state, State::kWritten);
  }
  void expect_read() {
    const Loaded loaded = load(model_, folder_);
    EXPECT_TRUE(loaded.was_filled);
    EXPECT_EQ(loaded.num_packed, 0u);
    EXPECT_EQ(loaded.state, State::kComplete);
  }

  TemporaryFolder temporary_;
  FakeModel model_;
  std::string folder_ = temporary_.path("cache/invar/packed");
};

TEST_F(PackedCacheTest, WrittenOnceThenRead) {
  expect_packed_and_written();
  struct stat info;
  ASSERT_EQ(::stat(folder_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_EQ(::stat(file().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const ino_t inode = info.st_ino;
  expect_read();
  expect_read();
  ASSERT_EQ(::stat(file().c_str(), &info), 0);
  EXPECT_EQ(info.st_ino, inode) << "a good file was written again";
}

TEST_F(PackedCacheTest, EveryFlippedBitOfHeadAndIndexIsHarmless) {
  model_.section_bytes = {700, 64};
  expect_packed_and_written();
  const std::string good = file_bytes(file());
  const std::string path = file();
  size_t num_refused = 0;
  const auto flip = [&](size_t at, int bit) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
    write_file(path, bad);
    PackedCacheOptions options = model_.options(folder_);
    options.max_bytes = 0;  // nothing is written again
    const Loaded loaded = load(model_, options);
    num_refused += loaded.num_packed > 0;
  };
  // Header and stamp with their surroundings, a section and the end of the index.
  for (size_t at = 0; at < 64; ++at) flip(at, static_cast<int>(at % 8));
  for (size_t at = 4090; at < 4120; ++at) flip(at, static_cast<int>(at % 8));
  const size_t before_data = num_refused;
  EXPECT_GE(before_data, 56u) << "all of the header is checked";
  for (size_t at = 8192; at < 8192 + 700; at += 7) flip(at, static_cast<int>(at % 8));
  EXPECT_EQ(num_refused - before_data, 100u);
  const size_t before_index = num_refused;
  const size_t index_bytes = good.size() - 8192 - 2 * 4096;
  for (size_t at = good.size() - index_bytes; at < good.size(); ++at)
    flip(at, static_cast<int>(at % 8));
  EXPECT_EQ(num_refused - before_index, index_bytes);
}

TEST_F(PackedCacheTest, DamagedDataIsPackedAgainAndReplaced) {
  expect_packed_and_written();
  const std::string good = file_bytes(file());
  const std::string path = file();
  std::mt19937 random(5);
  // Every block of every section in turn: 1000 bytes at 8192, a block at 12288, ...
  const size_t second = 12288 + kPackedBlock;
  for (const size_t at : {size_t{8192 + 999}, size_t{12288}, size_t{12288 + kPackedBlock - 1},
                          second, second + kPackedBlock, second + 2 * kPackedBlock + 4}) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    write_file(path, bad);
    const Loaded loaded = load(model_, folder_);
    EXPECT_EQ(loaded.num_packed, 1u) << at;
    EXPECT_EQ(loaded.num_read, 3u) << at;
    EXPECT_EQ(loaded.state, State::kWritten);
    EXPECT_EQ(file_bytes(path).substr(8192), good.substr(8192)) << "not what it was";
  }
  // Pages of zeros where data should be, as a crash of a file system leaves them.
  std::string holes = good;
  std::fill_n(holes.begin() + static_cast<long>(second), 4096, '\0');
  write_file(path, holes);
  EXPECT_EQ(load(model_, folder_).num_packed, 1u);
  expect_read();
}

TEST_F(PackedCacheTest, AnyLengthButTheRightOneIsRefused) {
  expect_packed_and_written();
  const std::string good = file_bytes(file());
  const std::string path = file();
  for (const size_t size : {size_t{0}, size_t{1}, size_t{55}, size_t{4096}, size_t{8191},
                            size_t{8192}, size_t{12288 + 100}, good.size() / 2, good.size() - 1}) {
    write_file(path, good.substr(0, size));
    EXPECT_FALSE(load(model_, folder_).was_filled) << size;
    expect_read();  // replaced
  }
  write_file(path, good + "x");
  EXPECT_FALSE(load(model_, folder_).was_filled);
  write_file(path, random_bytes(50'000, 9));
  EXPECT_FALSE(load(model_, folder_).was_filled);
  expect_read();
}

TEST_F(PackedCacheTest, ForeignFilesAreRefused) {
  expect_packed_and_written();
  const std::string path = file();
  const std::string other_model = file_bytes(path);
  FakeModel other = model_;
  other.fingerprint[40] = 'b';  // the file's name has 32 digits only
  EXPECT_FALSE(load(other, folder_).was_filled);
  EXPECT_TRUE(load(other, folder_).was_filled);
  other.layout = "test-2";
  EXPECT_FALSE(load(other, folder_).was_filled);
  EXPECT_TRUE(load(other, folder_).was_filled);
  // A later build has another layout and backends do not share a file.
  PackedCacheOptions options = other.options(folder_);
  options.backend = "other";
  EXPECT_FALSE(load(other, options).was_filled);
  EXPECT_EQ(names_in(folder_).size(), 2u);
}

TEST_F(PackedCacheTest, OtherMatricesAreNotTaken) {
  expect_packed_and_written();
  FakeModel other = model_;
  other.section_bytes[2] += 64;
  EXPECT_EQ(load(other, folder_).num_read, 2u + 1u);
  other.section_bytes.push_back(64);  // one more than the file has
  EXPECT_EQ(load(other, folder_).num_packed, 1u);
  other.section_bytes = {64};
  EXPECT_EQ(load(other, folder_).num_packed, 1u);
}

// The fingerprint samples a model; what it misses the content hash must see.
TEST_F(PackedCacheTest, WeightsThatChangedUnderTheSameFingerprintArePackedAgain) {
  expect_packed_and_written();
  std::string changed = file_bytes(model_.weights);
  changed[50'001] = static_cast<char>(changed[50'001] ^ 4);
  write_file(model_.weights, changed);
  EXPECT_FALSE(load(model_, folder_).was_filled);
  expect_read();
  // Also when a program sets the time of change back.
  const fs::file_time_type time = fs::last_write_time(model_.weights);
  changed[50'001] = static_cast<char>(changed[50'001] ^ 4);
  write_file(model_.weights, changed);
  fs::last_write_time(model_.weights, time);
  EXPECT_FALSE(load(model_, folder_).was_filled);
}

TEST_F(PackedCacheTest, SameWeightsElsewhereAreRecognized) {
  expect_packed_and_written();
  FakeModel copy = model_;
  copy.weights = temporary_.path("copy");
  write_file(copy.weights, file_bytes(model_.weights));
  EXPECT_TRUE(load(copy, folder_).was_filled);
}

// Two seconds after the last change the state of the files stands for their content.
TEST_F(PackedCacheTest, UnchangedFilesAreNotReadAgain) {
  ::usleep(3'100'000);
  expect_packed_and_written();
  PackedCacheOptions options = model_.options(folder_);
  // A hash of this file would find other content.
  options.source.paths = {temporary_.path("missing")};
  EXPECT_TRUE(load(model_, options).was_filled);
  options.source.states[0].ctime_ns += 1;
  EXPECT_FALSE(load(model_, options).was_filled);
  // Content was compared once, and the new state is remembered.
  fs::permissions(model_.weights, fs::perms::owner_read | fs::perms::owner_write);
  ::usleep(3'100'000);
  expect_read();
  options = model_.options(folder_);
  options.source.paths = {temporary_.path("missing")};
  EXPECT_TRUE(load(model_, options).was_filled);
}

TEST_F(PackedCacheTest, WeightsThatChangeWhileTheyArePackedAreNotWritten) {
  const PackedCacheOptions options = model_.options(folder_);
  ::usleep(20'000);  // longer than a tick of the file system's clock
  write_file(model_.weights, random_bytes(100'000, 2));
  const Loaded loaded = load(model_, options);
  EXPECT_EQ(loaded.state, State::kNotWritten);
  EXPECT_TRUE(names_in(folder_).empty());
}

TEST_F(PackedCacheTest, LinksAndOthersFoldersAreRefused) {
  expect_packed_and_written();
  const std::string path = file();
  // A link in place of the file is not followed, but replaced.
  fs::rename(path, temporary_.path("elsewhere"));
  fs::create_symlink(temporary_.path("elsewhere"), path);
  EXPECT_FALSE(load(model_, folder_).was_filled);
  EXPECT_FALSE(fs::is_symlink(path));
  expect_read();
  // A pipe does not make us wait.
  fs::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(load(model_, folder_).was_filled);
  fs::remove(path);

  const std::string link = temporary_.path("link");
  fs::create_symlink(folder_, link);
  EXPECT_EQ(DiskPackedCache::open(model_.options(link)), nullptr);
  fs::permissions(folder_, fs::perms::owner_all | fs::perms::group_write);
  EXPECT_EQ(DiskPackedCache::open(model_.options(folder_)), nullptr);
  fs::permissions(folder_, fs::perms::owner_all);
  EXPECT_NE(DiskPackedCache::open(model_.options(folder_)), nullptr);
  EXPECT_EQ(DiskPackedCache::open(model_.options(model_.weights)), nullptr) << "a file";
  EXPECT_EQ(DiskPackedCache::open(model_.options("/proc/invar")), nullptr);
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(folder_.c_str(), 12345, 12345), 0);
    EXPECT_EQ(DiskPackedCache::open(model_.options(folder_)), nullptr) << "another user's";
  }
}

TEST_F(PackedCacheTest, UnusedForLongestGoesFirst) {
  std::vector<FakeModel> models;
  for (char c = 'a'; c <= 'd'; ++c) {
    models.push_back(model_);
    models.back().fingerprint = std::string(64, c);
  }
  expect_packed_and_written();  // 'a'
  const uint64_t size = fs::file_size(file());
  const auto use = [&](const FakeModel& model) {
    PackedCacheOptions options = model.options(folder_);
    options.max_bytes = size * 5 / 2;
    ::usleep(20'000);
    return load(model, options);
  };
  EXPECT_EQ(use(models[1]).state, State::kWritten);
  EXPECT_TRUE(use(models[0]).was_filled);  // 'b' is now the oldest
  EXPECT_EQ(use(models[2]).state, State::kWritten);
  EXPECT_EQ(names_in(folder_).size(), 2u);
  EXPECT_TRUE(use(models[0]).was_filled);
  EXPECT_TRUE(use(models[2]).was_filled);
  EXPECT_FALSE(use(models[1]).was_filled);
  EXPECT_EQ(names_in(folder_).size(), 2u);
  // One that cannot fit removes nothing.
  PackedCacheOptions options = models[3].options(folder_);
  options.max_bytes = size / 2;
  EXPECT_EQ(load(models[3], options).state, State::kNotWritten);
  EXPECT_EQ(names_in(folder_).size(), 2u);
}

TEST(BlockHash, SeesEveryBitLengthAndPlace) {
  std::string bytes = random_bytes(300, 3);
  const auto hash = [](const std::string& text) {
    return block_hash({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  };
  std::vector<uint64_t> hashes;
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    hashes.push_back(hash(changed));
  }
  for (size_t size = 0; size <= bytes.size(); ++size) hashes.push_back(hash(bytes.substr(0, size)));
  for (size_t size = 0; size < 300; ++size) hashes.push_back(hash(std::string(size + 1, '\0')));
  for (size_t i = 0; i + 8 < bytes.size(); i += 8) {
    std::string swapped = bytes;
    std::swap_ranges(swapped.begin(), swapped.begin() + 8, swapped.begin() + static_cast<long>(i));
    if (i > 0) hashes.push_back(hash(swapped));
  }
  std::sort(hashes.begin(), hashes.end());
  EXPECT_EQ(std::adjacent_find(hashes.begin(), hashes.end()), hashes.end());
  // It stands in files: worked out by hand in Python from the description in block_hash.cc.
  EXPECT_EQ(hash(""), 0xfcfb67b1e862b802u);
  EXPECT_EQ(
      hash("Invar keeps packed weights between two starts of the same model. Sixty-four and more."),
      0xbbbd0f083d89b2d9u);
}

}  // namespace
}  // namespace invar
