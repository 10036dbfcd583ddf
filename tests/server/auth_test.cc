// Keys: both headers, rotation of the file, and that no key or digest appears in a message.
#include "server/http/auth.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/hash.h"

namespace invar::server {
namespace {

using Verdict = KeyStore::Verdict;

std::unique_ptr<KeyStore> store_of(const KeyStore::Options& options) {
  Result<std::unique_ptr<KeyStore>> store = KeyStore::open(options);
  EXPECT_TRUE(store.ok()) << store.error().message;
  return store.ok() ? *std::move(store) : nullptr;
}

Verdict check(KeyStore& store, const char* authorization, const char* x_api_key) {
  const std::string a = authorization == nullptr ? "" : authorization;
  const std::string x = x_api_key == nullptr ? "" : x_api_key;
  return store.check(authorization == nullptr ? nullptr : &a, x_api_key == nullptr ? nullptr : &x)
      .verdict;
}

TEST(Auth, WithoutKeysEverybodyMay) {
  const auto store = store_of({});
  EXPECT_FALSE(store->has_keys());
  EXPECT_EQ(check(*store, nullptr, nullptr), Verdict::kOk);
  EXPECT_EQ(check(*store, "Bearer x", nullptr), Verdict::kOk);
}

TEST(Auth, EitherHeader) {
  const auto store = store_of({.keys = {"first", "second"}});
  EXPECT_EQ(store->num_keys(), 2u);
  EXPECT_EQ(check(*store, nullptr, nullptr), Verdict::kMissing);
  EXPECT_EQ(check(*store, "Bearer second", nullptr), Verdict::kOk);
  EXPECT_EQ(check(*store, "bearer  second ", nullptr), Verdict::kOk);
  EXPECT_EQ(check(*store, nullptr, "first"), Verdict::kOk);
  EXPECT_EQ(check(*store, "Bearer first", "first"), Verdict::kOk);
  EXPECT_EQ(check(*store, "Bearer first", "second"), Verdict::kConflict);
  for (const char* wrong : {"Bearer firs", "Bearer firstt", "Bearer First", "Bearer ", "Bearer",
                            "Basic first", "first", ""})
    EXPECT_EQ(check(*store, wrong, nullptr), Verdict::kWrong) << wrong;
  EXPECT_EQ(check(*store, nullptr, ""), Verdict::kWrong);
  const std::string key = "first";
  EXPECT_EQ(store->check(nullptr, &key).digest,
            sha256_hex({reinterpret_cast<const uint8_t*>("first"), 5}));
}

TEST(Auth, BadKeysAreRefusedWithoutSayingThem) {
  for (const char* key : {"", "two words", "caf\xC3\xA9", "tab\t"}) {
    const Result<std::unique_ptr<KeyStore>> store = KeyStore::open({.keys = {key}});
    ASSERT_FALSE(store.ok());
    if (*key == '\0') continue;
    EXPECT_EQ(store.error().message.find(key), std::string::npos);
  }
}

class KeyFileTest : public testing::Test {
 protected:
  KeyFileTest() : path_(testing::TempDir() + "keys-" + std::to_string(::getpid())) {}
  ~KeyFileTest() override { std::filesystem::remove(path_); }
  // By rename, as an operator should: another inode, so that equal times do not matter.
  void write(const std::string& text, mode_t mode = 0600) {
    std::ofstream(path_ + ".new") << text;
    ::chmod((path_ + ".new").c_str(), mode);
    std::filesystem::rename(path_ + ".new", path_);
  }
  const std::string path_;
};

TEST_F(KeyFileTest, Lines) {
  write("# people\r\n alpha \r\n\nbeta#1\n");
  const auto store = store_of({.file = path_});
  EXPECT_EQ(store->num_keys(), 2u);
  EXPECT_EQ(check(*store, nullptr, "alpha"), Verdict::kOk);
  EXPECT_EQ(check(*store, nullptr, "beta#1"), Verdict::kOk);
  EXPECT_EQ(check(*store, nullptr, "# people"), Verdict::kWrong);
}

TEST_F(KeyFileTest, OnlyItsOwnerMayReadIt) {
  for (const mode_t mode : {0640, 0604, 0660, 0644}) {
    write("alpha\n", mode);
    const Result<std::unique_ptr<KeyStore>> store = KeyStore::open({.file = path_});
    ASSERT_FALSE(store.ok()) << mode;
    EXPECT_NE(store.error().message.find("chmod 600"), std::string::npos);
  }
  write("# none\n");
  EXPECT_FALSE(KeyStore::open({.file = path_}).ok());
  EXPECT_FALSE(KeyStore::open({.file = path_ + ".missing"}).ok());
}

// As Kubernetes mounts a secret: root's, our group may read. (Here we are root, and it is
// another's.)
TEST_F(KeyFileTest, OfAnotherUserItsGroupMayReadIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  const auto open_with = [this](mode_t mode) {
    write("alpha\n", mode);
    EXPECT_EQ(::chown(path_.c_str(), 1, 1), 0);
    return KeyStore::open({.file = path_});
  };
  for (const mode_t mode : {0400, 0440, 0640}) EXPECT_TRUE(open_with(mode).ok()) << mode;
  for (const mode_t mode : {0444, 0460, 0441, 0644}) {
    const Result<std::unique_ptr<KeyStore>> store = open_with(mode);
    ASSERT_FALSE(store.ok()) << mode;
    EXPECT_NE(store.error().message.find("chmod 440"), std::string::npos);
  }
}

TEST_F(KeyFileTest, RotatesAndClosesWhenTheFileIsBad) {
  write("alpha\n");
  const auto store = store_of({.keys = {"fixed"}, .file = path_});
  EXPECT_EQ(check(*store, nullptr, "alpha"), Verdict::kOk);
  write("beta\n");
  EXPECT_EQ(check(*store, nullptr, "alpha"), Verdict::kWrong);
  EXPECT_EQ(check(*store, nullptr, "beta"), Verdict::kOk);
  write("two words\n");
  EXPECT_EQ(check(*store, nullptr, "beta"), Verdict::kUnavailable);
  EXPECT_EQ(check(*store, nullptr, "fixed"), Verdict::kUnavailable);
  std::filesystem::remove(path_);
  EXPECT_EQ(check(*store, nullptr, "beta"), Verdict::kUnavailable);
  write("gamma\n");
  EXPECT_EQ(check(*store, nullptr, "beta"), Verdict::kWrong);
  EXPECT_EQ(check(*store, nullptr, "gamma"), Verdict::kOk);
  EXPECT_EQ(check(*store, nullptr, "fixed"), Verdict::kOk);
}

}  // namespace
}  // namespace invar::server
