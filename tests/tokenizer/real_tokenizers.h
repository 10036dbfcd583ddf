// The tokenizers of the three real checkpoints, loaded once for all tests of this folder. A missing
// file fails the test that asks for it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "base/file.h"
#include "tokenizer/tokenizer.h"
#include "weights/checkpoint.h"

namespace invar {

struct RealTokenizer {
  std::string key;  // as in gguf_tokenizer_vectors.json
  std::string file;
};
inline const RealTokenizer kRealTokenizers[] = {
    {"smollm2", "smollm2-135m-instruct-q4_1.gguf"},
    {"qwen2.5-coder", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"},
    {"gemma3-270m", "gemma-3-270m-q4_k_m.gguf"},
};

inline std::string real_model_path(const std::string& file) {
  if (const char* folder = std::getenv("INVAR_MODELS")) return std::string(folder) + "/" + file;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string base = cache && *cache ? cache : std::string(home ? home : "") + "/.cache";
  return base + "/invar/models/" + file;
}

// Never null: ends the test program when the file is missing, naming the remedy.
inline const Checkpoint& real_checkpoint(const std::string& key) {
  static std::map<std::string, std::unique_ptr<Checkpoint>> loaded;
  std::unique_ptr<Checkpoint>& checkpoint = loaded[key];
  if (checkpoint) return *checkpoint;
  for (const RealTokenizer& real : kRealTokenizers) {
    if (real.key != key) continue;
    auto opened = Checkpoint::open(real_model_path(real.file));
    if (!opened.ok()) {
      ADD_FAILURE() << opened.error().message << "\nrun tools/fetch_models.py";
      std::abort();
    }
    checkpoint = std::move(*opened);
  }
  return *checkpoint;
}

inline const Tokenizer& real_tokenizer(const std::string& key) {
  static std::map<std::string, std::unique_ptr<Tokenizer>> loaded;
  std::unique_ptr<Tokenizer>& tokenizer = loaded[key];
  if (!tokenizer) {
    auto made = Tokenizer::from_checkpoint(real_checkpoint(key));
    if (!made.ok()) {
      ADD_FAILURE() << made.error().message;
      std::abort();
    }
    tokenizer = std::move(*made);
  }
  return *tokenizer;
}

}  // namespace invar
