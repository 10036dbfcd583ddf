// Runs a checkpoint on the CUDA backend and on the cpu backend: how far the logits lie apart,
// whether token by token gives the bits of one pass, and how fast a step is with the backend's own
// launches.
//
//   cuda_model_check <model.gguf or folder> [tokens]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "backend/cuda/cuda_backend.h"
#include "models/model.h"
#include "weights/checkpoint.h"

namespace invar {
namespace {

template <typename T>
T value_or_exit(Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    std::exit(1);
  }
  return *std::move(result);
}

struct Runner {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  std::unique_ptr<KvCache> cache;
  std::vector<int32_t> pages;
  Arena arena;

  Runner(std::unique_ptr<Backend> made, const Checkpoint& checkpoint, int num_tokens)
      : backend(std::move(made)), model(value_or_exit(load_model(checkpoint, *backend))) {
    const int num_pages = (num_tokens + kPagePositions - 1) / kPagePositions;
    cache = value_or_exit(backend->make_kv_cache(model->info().kv_layers, num_pages));
    for (int i = 0; i < num_pages; ++i) pages.push_back(i);
  }

  // Logits of all rows.
  std::vector<float> step(std::span<const int32_t> ids, int start) {
    arena.reset();
    backend->begin_step();
    std::vector<int32_t> positions, rows;
    for (size_t i = 0; i < ids.size(); ++i) {
      positions.push_back(start + static_cast<int>(i));
      rows.push_back(static_cast<int32_t>(i));
    }
    const std::vector<Window> windows = {
        {0, static_cast<int64_t>(ids.size()), start, std::span<const int32_t>(pages)}};
    ops::Context context{*backend, arena, *cache};
    const Tensor logits = model->forward(context, {ids, positions, windows, rows});
    backend->synchronize();
    return {logits.row(0), logits.row(0) + logits.num_rows * logits.num_cols};
  }
};

int run(const char* path, int num_tokens) {
  const auto checkpoint = value_or_exit(Checkpoint::open(path));
  Runner cuda(value_or_exit(make_cuda_backend({})), *checkpoint, num_tokens);
  Runner cpu(value_or_exit(make_backend("cpu", {})), *checkpoint, num_tokens);
  const int vocab = static_cast<int>(cuda.model->info().vocab_size);
  std::mt19937 random(5);
  std::vector<int32_t> ids(static_cast<size_t>(num_tokens));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<unsigned>(vocab));

  const std::vector<float> one_pass = cuda.step(ids, 0), want = cpu.step(ids, 0);
  double error = 0, total = 0;
  int agree = 0;
  for (int t = 0; t < num_tokens; ++t) {
    const float *a = one_pass.data() + int64_t{t} * vocab, *b = want.data() + int64_t{t} * vocab;
    for (int i = 0; i < vocab; ++i) {
      error += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
      total += double{b[i]} * b[i];
    }
    agree += std::max_element(a, a + vocab) - a == std::max_element(b, b + vocab) - b;
  }
  std::printf("cuda against cpu: relative rms %.2e, same best token in %d of %d rows\n",
              std::sqrt(error / total), agree, num_tokens);

  int64_t different = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int t = 0; t < num_tokens; ++t) {
    const std::vector<float> row = cuda.step(std::span(ids).subspan(static_cast<size_t>(t), 1), t);
    for (int i = 0; i < vocab; ++i)
      different += std::memcmp(&row[static_cast<size_t>(i)],
                               &one_pass[static_cast<size_t>(int64_t{t} * vocab + i)], 4) != 0;
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("token by token: %ld of %ld logits differ from one pass; %.0f steps/s\n",
              long{different}, long{num_tokens} * vocab, num_tokens / seconds);
  return different == 0 ? 0 : 1;
}

}  // namespace
}  // namespace invar

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: cuda_model_check <model> [tokens]\n");
    return 2;
  }
  return invar::run(argv[1], argc > 2 ? std::atoi(argv[2]) : 300);
}
