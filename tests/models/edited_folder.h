// A copy of a golden Hugging Face folder whose config.json a test edits.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <utility>

#include "base/json.h"
#include "models/harness.h"

namespace invar::testing {

class EditedFolder {
 public:
  explicit EditedFolder(const char* family) {
    folder_ = ::testing::TempDir() + "invar_edited_" + family + "_XXXXXX";
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
    const std::string from = golden_path(family);
    config = *Json::parse(*read_file(from + "/config.json", 1 << 20));
    EXPECT_EQ(::symlink((from + "/model.safetensors").c_str(), weights().c_str()), 0);
  }
  ~EditedFolder() {
    std::remove((folder_ + "/config.json").c_str());
    std::remove(weights().c_str());
    std::remove(folder_.c_str());
  }
  void set(const char* key, Json value) { config.set(key, std::move(value)); }

  // The message load_model gives, "" when it loads.
  std::string load_error() {
    auto checkpoint = open();
    if (!checkpoint) return "open: " + checkpoint.error().message;
    auto backend = make_backend("reference", {});
    auto model = load_model(**checkpoint, **backend);
    return model ? "" : model.error().message;
  }

  Result<ModelInfo> describe() {
    auto checkpoint = open();
    if (!checkpoint) return checkpoint.error();
    return describe_model(**checkpoint);
  }

  // Logits of `ids` on the reference backend; the edited config must load.
  Logits run(const std::vector<int32_t>& ids) {
    write();
    ModelOnBackend m(weights(), "reference");
    return m.ok() ? m.run(ids, 64) : Logits();
  }

  Json config;

 private:
  void write() { std::ofstream(folder_ + "/config.json") << config.dump(2); }
  Result<std::unique_ptr<Checkpoint>> open() {
    write();
    return Checkpoint::open(weights());
  }
  std::string weights() const { return folder_ + "/model.safetensors"; }
  std::string folder_;
};

// `json` without one member.
inline Json without(const Json& json, std::string_view key) {
  Json kept = Json::object();
  for (const auto& [name, value] : json.members())
    if (name != key) kept.set(name, value);
  return kept;
}

}  // namespace invar::testing
