// Pages on disk: found again by what they were computed from, and never when a bit of them changed.
#include "cache/page_store.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/log.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

class PageStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() /
              ("invar-pages-" + std::to_string(::getpid()) + "-" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    set_log_level(LogLevel::kError);  // hundreds of files are damaged on purpose
  }
  void TearDown() override {
    set_log_level(LogLevel::kWarning);
    fs::remove_all(folder_);
  }

  std::unique_ptr<PageStore> open(std::string identity = "model", uint64_t max_bytes = 1 << 20) {
    return PageStore::open({folder_.string(), max_bytes, std::move(identity), kPageBytes});
  }
  static std::vector<int32_t> tokens(int32_t first) {
    std::vector<int32_t> ids(256);
    std::iota(ids.begin(), ids.end(), first);
    return ids;
  }
  static std::vector<uint8_t> page(uint8_t value) {
    return std::vector<uint8_t>(kPageBytes, value);
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> all;
    for (const auto& entry : fs::directory_iterator(folder_)) all.push_back(entry.path());
    return all;
  }

  static constexpr size_t kPageBytes = 4096;
  fs::path folder_;
};

TEST_F(PageStoreTest, OutlivesTheStore) {
  const auto ids = tokens(0);
  {
    const auto store = open();
    const auto key = PageStore::next_key(store->root_key("salt"), ids);
    EXPECT_FALSE(store->has(key));
    store->save(key, ids, page(7));
    EXPECT_TRUE(store->has(key));
    EXPECT_EQ(store->load(key, ids), page(7));  // maybe before it was written
  }
  const auto store = open();
  const auto key = PageStore::next_key(store->root_key("salt"), ids);
  EXPECT_TRUE(store->has(key));
  EXPECT_EQ(store->load(key, ids), page(7));
  EXPECT_EQ(store->counts().num_loaded, 1);
  EXPECT_EQ(fs::status(folder_).permissions(), fs::perms::owner_all);
}

TEST_F(PageStoreTest, KeysTellApartWhatDiffers) {
  const auto store = open("model"), other = open("model2");
  const auto ids = tokens(0), next = tokens(256);
  const auto key = PageStore::next_key(store->root_key(""), ids);
  EXPECT_NE(key, PageStore::next_key(store->root_key("a"), ids));
  EXPECT_NE(key, PageStore::next_key(other->root_key(""), ids));
  EXPECT_NE(key, PageStore::next_key(store->root_key(""), next));
  EXPECT_NE(PageStore::next_key(key, next), PageStore::next_key(store->root_key(""), next));
  EXPECT_NE(open("a")->root_key("bc"), open("ab")->root_key("c"));
}

TEST_F(PageStoreTest, EveryChangedByteIsFound) {
  const auto ids = tokens(3);
  std::string key;
  {
    const auto store = open();
    key = PageStore::next_key(store->root_key(""), ids);
    store->save(key, ids, page(9));
  }
  ASSERT_EQ(files().size(), 1u);
  std::ifstream in(files()[0], std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  const auto damaged_by = [&](const std::string& bytes) {
    for (const fs::path& path : files()) fs::remove(path);
    const fs::path path = folder_ / (key + ".kvpage");
    std::ofstream(path, std::ios::binary) << bytes;
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
    const auto store = open();
    EXPECT_TRUE(store->has(key));
    const bool is_refused = !store->load(key, ids).has_value();
    EXPECT_EQ(is_refused, !store->has(key));
    EXPECT_EQ(is_refused, !fs::exists(path)) << "it is set aside";
    return is_refused;
  };
  EXPECT_FALSE(damaged_by(good));
  for (size_t at = 0; at < good.size(); at += at < 1200 ? 1 : 97) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    EXPECT_TRUE(damaged_by(bad)) << "byte " << at;
  }
  EXPECT_TRUE(damaged_by(good.substr(0, good.size() - 1)));
  EXPECT_TRUE(damaged_by(good + "x"));
  EXPECT_TRUE(damaged_by(""));
}

TEST_F(PageStoreTest, TheLongestUnusedGivesWay) {
  const auto store = open("model", 3 * (kPageBytes + 96 + 1024));
  std::vector<std::string> keys;
  for (int i = 0; i < 5; ++i) {
    keys.push_back(PageStore::next_key(store->root_key(""), tokens(i)));
    store->save(keys.back(), tokens(i), page(static_cast<uint8_t>(i)));
    store->wait();
    ASSERT_TRUE(store->load(keys[0], tokens(0))) << i;  // used again and again
  }
  EXPECT_EQ(files().size(), 3u);
  EXPECT_FALSE(store->load(keys[1], tokens(1)));
  EXPECT_TRUE(store->load(keys[4], tokens(4)));
}

TEST_F(PageStoreTest, APageThatGaveWayIsSavedAgain) {
  const auto store = open("model", 2 * (kPageBytes + 96 + 1024));
  std::vector<std::string> keys;
  for (int i = 0; i < 3; ++i) {
    keys.push_back(PageStore::next_key(store->root_key(""), tokens(i)));
    store->save(keys.back(), tokens(i), page(static_cast<uint8_t>(i)));
    store->wait();
    store->touch({keys.back()});
    store->wait();
  }
  EXPECT_FALSE(store->has(keys[0]));
  EXPECT_TRUE(store->has(keys[1]));
  store->save(keys[0], tokens(0), page(0));
  store->wait();
  EXPECT_TRUE(store->load(keys[0], tokens(0)));
  EXPECT_FALSE(store->has(keys[1]));
}

TEST_F(PageStoreTest, TheEndOfATextGivesWayFirst) {
  const auto store = open("model", 4 * (kPageBytes + 96 + 1024));
  std::vector<std::string> keys = {store->root_key("")};
  for (int i = 0; i < 4; ++i) {
    keys.push_back(PageStore::next_key(keys.back(), tokens(i)));
    store->save(keys.back(), tokens(i), page(static_cast<uint8_t>(i)));
  }
  keys.erase(keys.begin());
  store->touch(keys);
  store->wait();
  for (size_t left = 4; left-- > 1;) {
    const auto key = PageStore::next_key(store->root_key("other"), tokens(static_cast<int>(left)));
    store->save(key, tokens(static_cast<int>(left)), page(9));
    store->wait();
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(store->has(keys[i]), i < left) << i << " of " << left;
  }
}

TEST_F(PageStoreTest, AFileBeyondTheLimitOfTheProcessIsNotTheEnd) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto save_beyond_the_limit = [&] {
    const rlimit limit = {kPageBytes / 2, kPageBytes / 2};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto store = open();
    const auto key = PageStore::next_key(store->root_key(""), tokens(0));
    store->save(key, tokens(0), page(1));
    store->wait();
    std::_Exit(store->has(key) ? 1 : 0);
  };
  EXPECT_EXIT(save_beyond_the_limit(), ::testing::ExitedWithCode(0), "");
}

TEST_F(PageStoreTest, AFolderThatOthersMayWriteToIsNotUsed) {
  fs::create_directories(folder_);
  fs::permissions(folder_, fs::perms::all);
  EXPECT_EQ(open(), nullptr);
}

}  // namespace
}  // namespace invar
