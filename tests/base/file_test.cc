// Files that are not what a path promises, and text that must not reach a log or a document raw.
#include "base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"

namespace invar {
namespace {

using testing::HasSubstr;

// A folder that goes away with the test.
class FileTest : public testing::Test {
 protected:
  FileTest() {
    char name[] = "/tmp/invar-file-test-XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~FileTest() override {
    for (const std::string& name : names_) ::unlink((folder_ + "/" + name).c_str());
    ::rmdir(folder_.c_str());
  }
  std::string path(const std::string& name) {
    names_.push_back(name);
    return folder_ + "/" + name;
  }
  std::string folder_;

 private:
  std::vector<std::string> names_;
};

TEST_F(FileTest, ReadsAndMaps) {
  const std::string file = path("some");
  std::ofstream(file) << "abc";
  EXPECT_EQ(*read_file(file, 3), "abc");
  const auto mapped = MappedFile::open(file);
  ASSERT_TRUE(mapped.ok());
  EXPECT_EQ(mapped->bytes().size(), 3u);
  EXPECT_EQ(mapped->bytes()[2], 'c');
  EXPECT_THAT(read_file(file, 2).error().message, HasSubstr("3 bytes, expected at most 2"));
}

TEST_F(FileTest, EmptyFilesAreReadButNotMapped) {
  const std::string file = path("empty");
  std::ofstream(file).close();
  EXPECT_EQ(*read_file(file, 3), "");
  const auto mapped = MappedFile::open(file);
  ASSERT_FALSE(mapped.ok());
  EXPECT_EQ(mapped.error().code, ErrorCode::kCorrupt);
}

TEST_F(FileTest, WhatIsNoFileIsRefusedWithItsName) {
  const std::string missing = path("missing");
  EXPECT_EQ(MappedFile::open(missing).error().code, ErrorCode::kNotFound);
  EXPECT_THAT(MappedFile::open(missing).error().message, HasSubstr(missing));
  EXPECT_THAT(read_file(folder_, 10).error().message, HasSubstr("is a folder"));
  EXPECT_THAT(read_file("/dev/zero", 10).error().message, HasSubstr("not a regular file"));
}

// Nobody ever writes to this pipe; a plain open() would wait for it for ever.
TEST_F(FileTest, PipesDoNotHang) {
  const std::string pipe = path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ::alarm(20);
  EXPECT_THAT(MappedFile::open(pipe).error().message, HasSubstr("not a regular file"));
  EXPECT_THAT(read_file(pipe, 10).error().message, HasSubstr("not a regular file"));
  ::alarm(0);
}

TEST(Hash, KnownValues) {
  // FIPS 180-4's example, and the ids 1, 258 as they lie in memory.
  const std::string abc = "abc";
  EXPECT_EQ(sha256_hex({reinterpret_cast<const uint8_t*>(abc.data()), abc.size()}),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const uint8_t bytes[] = {1, 0, 0, 0, 2, 1, 0, 0};
  const int32_t ids[] = {1, 258};
  EXPECT_EQ(token_sha(ids), sha256_hex(bytes));
}

TEST(Log, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(escape_control("a\x1b[2Jb\x7f\xc2\x9b"
                           "c\r"),
            "a\\x1b[2Jb\\x7f\\x9bc\\x0d");
  EXPECT_EQ(escape_control("é\t\n"), "é\t\n");
}

TEST(Log, OneCallIsOneLine) {
  testing::internal::CaptureStderr();
  log(LogLevel::kError, "file=%s", "a\ninvar: error: forged");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "invar: error: file=a invar: error: forged\n");
}

// A message may quote half a character or bytes that never were text.
TEST(Json, DocumentsAreValidUtf8WhateverTheyQuote) {
  EXPECT_EQ(json_quote("a\xffz"), "\"a\uFFFDz\"");
  EXPECT_EQ(json_quote("\xe2\x82"), "\"\uFFFD\"") << "one for a character that is cut";
  EXPECT_EQ(json_quote("\xed\xa0\x80"), "\"\uFFFD\uFFFD\uFFFD\"") << "no surrogates";
  EXPECT_EQ(json_quote("€😀"), "\"€😀\"");
  const auto bad = Json::parse("[\"\xff\"]");
  ASSERT_FALSE(bad.ok());
  EXPECT_TRUE(Json::parse(Json(bad.error().message).dump()).ok());
}

}  // namespace
}  // namespace invar
