// Checkpoint::open on what is no model: the message names the file and a remedy, in one line, at
// once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>

#include "gguf_writer.h"
#include "safetensors_writer.h"
#include "weights/checkpoint.h"

namespace invar {
namespace {

using ::testing::HasSubstr;
using testing::ModelFolder;
using ::testing::Not;

std::string error_of(const std::string& path) {
  const auto start = std::chrono::steady_clock::now();
  auto opened = Checkpoint::open(path);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), 2.0);
  if (opened) return "";
  EXPECT_THAT(opened.error().message, Not(HasSubstr("\n")));
  EXPECT_THAT(opened.error().message, HasSubstr(path));
  return opened.error().message;
}

TEST(OpenTest, PathsThatHoldNoModel) {
  ModelFolder folder;
  EXPECT_THAT(error_of(""), HasSubstr("empty"));
  EXPECT_THAT(error_of(folder.file("none.gguf")), HasSubstr("no such file"));
  EXPECT_THAT(error_of(folder.path()), HasSubstr("no model in this folder"));
  ASSERT_EQ(::mkfifo(folder.file("pipe.gguf").c_str(), 0600), 0);
  EXPECT_THAT(error_of(folder.file("pipe.gguf")), HasSubstr("no regular file"));
  EXPECT_THAT(Checkpoint::open(folder.path()).error().message, HasSubstr("no regular file"));
  ASSERT_EQ(::mkfifo(folder.file("config.json").c_str(), 0600), 0);
  folder.write("x.safetensors", std::string("x"));
  EXPECT_THAT(Checkpoint::open(folder.path()).error().message, HasSubstr("no regular file"));
  for (const char* name : {"config.json", "x.safetensors"})
    std::filesystem::remove(folder.file(name));
  std::filesystem::remove(folder.file("pipe.gguf"));
  folder.write("pytorch_model.bin", std::string("\x80\x02}q", 4));
  EXPECT_THAT(error_of(folder.path()), HasSubstr("pickle"));
  EXPECT_THAT(error_of(folder.file("pytorch_model.bin")), HasSubstr("pickle"));
  folder.write("model.safetensors", std::string("x"));
  EXPECT_THAT(error_of(folder.path()), HasSubstr("config.json"));
  EXPECT_THAT(Checkpoint::open(folder.file("model.safetensors")).error().message,
              HasSubstr(folder.file("config.json")));
}

TEST(OpenTest, FilesOfOtherKinds) {
  ModelFolder folder;
  const std::string path = folder.file("model.gguf");
  const auto error = [&](const std::string& content) {
    folder.write("model.gguf", content);
    return error_of(path);
  };
  EXPECT_THAT(error(""), HasSubstr("empty"));
  EXPECT_THAT(error("<!DOCTYPE html><html>"), HasSubstr("web page"));
  EXPECT_THAT(error("\n <html lang=\"en\">"), HasSubstr("web page"));
  EXPECT_THAT(error("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
              HasSubstr("git lfs pull"));
  EXPECT_THAT(error("PK\x03\x04zip"), HasSubstr("pickle"));
  EXPECT_THAT(error("tjgg\x03"), HasSubstr("older than GGUF"));
  EXPECT_THAT(error(std::string(100, '\0')), HasSubstr("00 00 00 00"));
  EXPECT_THAT(error("GGU"), HasSubstr("47 47 55"));
  EXPECT_THAT(error("GGUF"), HasSubstr("truncated"));
  folder.write("config.json", "{}");
  EXPECT_THAT(error_of(folder.file("config.json")), HasSubstr("give the model's folder"));
  folder.write("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
  EXPECT_THAT(error_of(folder.path()), HasSubstr("git lfs pull"));
}

TEST(OpenTest, FolderWithSeveralGgufModels) {
  ModelFolder folder;
  testing::GgufWriter gguf;
  gguf.add_f32("w", {1}, {1});
  gguf.write(folder.file("a.gguf"));
  gguf.write(folder.file("mmproj-a.gguf"));
  EXPECT_EQ(error_of(folder.path()), "");
  folder.write("other.safetensors", std::string("no config.json beside it: not the model"));
  EXPECT_EQ(error_of(folder.path()), "");
  gguf.write(folder.file("b.gguf"));
  EXPECT_THAT(error_of(folder.path()), HasSubstr("2 GGUF models (a.gguf, b.gguf)"));
}

}  // namespace
}  // namespace invar
