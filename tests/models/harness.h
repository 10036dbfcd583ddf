// A model on a backend, driven step by step without the engine: what the model tests share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/file.h"
#include "base/json.h"
#include "models/model.h"
#include "weights/checkpoint.h"

namespace invar::testing {

inline std::string golden_path(const std::string& name) {
  return std::string(INVAR_TEST_DATA) + "/golden/models/" + name;
}

// A real checkpoint from the cache folder; a machine without it fails the test with the remedy.
inline std::string real_model_path(const std::string& name) {
  std::string folder;
  if (const char* models = std::getenv("INVAR_MODELS"))
    folder = models;
  else if (const char* cache = std::getenv("XDG_CACHE_HOME"))
    folder = std::string(cache) + "/invar/models";
  else
    folder = std::string(std::getenv("HOME")) + "/.cache/invar/models";
  const std::string path = folder + "/" + name;
  EXPECT_TRUE(file_exists(path)) << path << " is missing: run tools/fetch_models.py";
  return path;
}

using Logits = std::vector<std::vector<float>>;

class ModelOnBackend {
 public:
  ModelOnBackend(const std::string& path, const std::string& backend_name,
                 BackendOptions options = {}, const LoadOptions& load = {}) {
    auto opened = Checkpoint::open(path);
    if (!opened) {
      ADD_FAILURE() << opened.error().message;
      return;
    }
    checkpoint = *std::move(opened);
    auto made = make_backend(backend_name, options);
    if (!made) {
      ADD_FAILURE() << made.error().message;
      return;
    }
    backend = *std::move(made);
    auto loaded = load_model(*checkpoint, *backend, {}, nullptr, load);
    if (!loaded) {
      ADD_FAILURE() << loaded.error().message;
      return;
    }
    model = *std::move(loaded);
  }

  bool ok() const { return model != nullptr; }

  // One sequence of a step: its next `count` tokens.
  struct Sequence {
    std::vector<int32_t> ids;
    std::vector<int32_t> pages;
    int64_t done = 0;
    Logits logits;  // after each id, in order
    int32_t state_slot = 0;
    Logits hidden;  // behind the final norm, of each id, where the model was asked for it
  };

  // State slots, for models that need them: 0 to num_slots - 1, one a sequence.
  void make_cache(int num_pages, int num_slots = 1) {
    auto made = backend->make_kv_cache(model->info().kv_layers, num_pages);
    ASSERT_TRUE(made.ok()) << made.error().message;
    cache = *std::move(made);
    const auto& recurrent = model->info().recurrent_layers;
    if (recurrent.empty()) return;
    auto slots = backend->recurrent_ops()->make_state_cache(recurrent, num_slots);
    ASSERT_TRUE(slots.ok()) << slots.error().message;
    states = *std::move(slots);
  }

  // Runs the next counts[i] tokens of sequences[i], all in one step, logits for every row.
  void step(std::vector<Sequence*> sequences, std::vector<int64_t> counts) {
    std::vector<int32_t> rows(
        static_cast<size_t>(std::accumulate(counts.begin(), counts.end(), int64_t{0})));
    std::iota(rows.begin(), rows.end(), 0);
    const Tensor logits = forward(sequences, counts, rows);
    int64_t row = 0;
    for (size_t i = 0; i < sequences.size(); ++i)
      for (int64_t t = 0; t < counts[i]; ++t, ++row)
        sequences[i]->logits.emplace_back(logits.row(row), logits.row(row) + logits.num_cols);
  }

  // The step without the reading of logits; they are those of the batch's `rows`.
  Tensor forward(const std::vector<Sequence*>& sequences, const std::vector<int64_t>& counts,
                 const std::vector<int32_t>& rows) {
    std::vector<int32_t> ids, positions;
    std::vector<Window> windows;
    for (size_t i = 0; i < sequences.size(); ++i) {
      Sequence& s = *sequences[i];
      windows.push_back(
          {static_cast<int64_t>(ids.size()), counts[i], s.done, s.pages, s.state_slot});
      for (int64_t t = 0; t < counts[i]; ++t) {
        ids.push_back(s.ids[static_cast<size_t>(s.done + t)]);
        positions.push_back(static_cast<int32_t>(s.done + t));
      }
    }
    arena.reset();
    ops::Context ctx{*backend, arena, *cache, nullptr, states.get()};
    Tensor hidden;
    Batch batch{ids, positions, windows, rows};
    if (keeps_hidden) batch.hidden = &hidden;
    const Tensor logits = model->forward(ctx, batch);
    EXPECT_EQ(logits.num_rows, static_cast<int64_t>(rows.size()));
    if (keeps_hidden) {
      EXPECT_EQ(hidden.num_rows, static_cast<int64_t>(ids.size()));
      for (size_t i = 0; i < sequences.size(); ++i)
        for (int64_t t = 0; t < counts[i]; ++t) {
          const float* row = hidden.row(windows[i].first_row + t);
          sequences[i]->hidden.emplace_back(row, row + hidden.num_cols);
        }
    }
    for (size_t i = 0; i < sequences.size(); ++i) sequences[i]->done += counts[i];
    return logits;
  }

  // Logits after each of `ids`, in chunks of at most `chunk`, pages in order.
  Logits run(const std::vector<int32_t>& ids, int64_t chunk) {
    Sequence s = start(ids);
    while (s.done < static_cast<int64_t>(ids.size()))
      step({&s}, {std::min(chunk, static_cast<int64_t>(ids.size()) - s.done)});
    return std::move(s.logits);
  }

  // The same of the given rows only, ascending.
  Logits run_rows(const std::vector<int32_t>& ids, const std::vector<int32_t>& rows,
                  int64_t chunk = 1 << 16) {
    Sequence s = start(ids);
    Logits result;
    while (s.done < static_cast<int64_t>(ids.size())) {
      const int64_t count = std::min(chunk, static_cast<int64_t>(ids.size()) - s.done);
      std::vector<int32_t> in_chunk;
      for (const int32_t row : rows)
        if (row >= s.done && row < s.done + count)
          in_chunk.push_back(row - static_cast<int32_t>(s.done));
      const Tensor logits = forward({&s}, {count}, in_chunk);
      for (int64_t i = 0; i < logits.num_rows; ++i)
        result.emplace_back(logits.row(i), logits.row(i) + logits.num_cols);
    }
    return result;
  }

  // A sequence with pages in order, in a cache of its own.
  Sequence start(const std::vector<int32_t>& ids) {
    const int num_pages = static_cast<int>((ids.size() + kPagePositions - 1) / kPagePositions);
    make_cache(num_pages);
    Sequence s;
    s.ids = ids;
    s.pages.resize(static_cast<size_t>(num_pages));
    std::iota(s.pages.begin(), s.pages.end(), 0);
    return s;
  }

  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<StateCache> states;
  bool keeps_hidden = false;  // step() fills Sequence::hidden
  Arena arena;
};

// A .npy file of little-endian float32 [rows, cols] in C order.
inline Logits read_npy(const std::string& path) {
  const auto text = read_file(path, 1 << 24);
  EXPECT_TRUE(text.ok()) << path;
  if (!text) return {};
  const std::string& bytes = *text;
  const auto header_size = static_cast<uint8_t>(bytes[8]) | static_cast<uint8_t>(bytes[9]) << 8;
  const std::string header = bytes.substr(10, static_cast<size_t>(header_size));
  size_t rows = 0, cols = 0;
  EXPECT_EQ(
      std::sscanf(header.c_str() + header.find("'shape'"), "'shape': (%zu, %zu)", &rows, &cols), 2);
  Logits logits(rows, std::vector<float>(cols));
  const char* data = bytes.data() + 10 + header_size;
  if (header.find("'<f8'") != std::string::npos) {
    std::vector<double> row(cols);
    for (size_t r = 0; r < rows; ++r) {
      std::memcpy(row.data(), data + r * cols * 8, cols * 8);
      for (size_t i = 0; i < cols; ++i) logits[r][i] = static_cast<float>(row[i]);
    }
    return logits;
  }
  EXPECT_NE(header.find("'<f4'"), std::string::npos) << header;
  for (size_t r = 0; r < rows; ++r) std::memcpy(logits[r].data(), data + r * cols * 4, cols * 4);
  return logits;
}

inline std::vector<int32_t> read_tokens(const std::string& path) {
  const auto text = read_file(path, 1 << 20);
  EXPECT_TRUE(text.ok()) << path;
  std::vector<int32_t> ids;
  if (!text) return ids;
  const auto json = Json::parse(*text);
  for (const Json& id : json->items()) ids.push_back(static_cast<int32_t>(id.as_int()));
  return ids;
}

inline float max_difference(const Logits& a, const Logits& b) {
  EXPECT_EQ(a.size(), b.size());
  float most = 0;
  for (size_t t = 0; t < std::min(a.size(), b.size()); ++t)
    for (size_t i = 0; i < a[t].size(); ++i) {
      const float difference = std::abs(a[t][i] - b[t][i]);
      if (!(difference <= most)) most = difference;  // also NaN
    }
  return most;
}

inline int32_t argmax(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace invar::testing
