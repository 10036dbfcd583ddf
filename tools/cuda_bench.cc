// Times the CUDA kernels at the shapes of real models, with percent of ceilings measured in the
// same run. Each figure: a CUDA graph of many launches with programmatic dependent launch, weights
// rotating through more than the cache, median of 9 replays, time per launch with its edge.
//
//   cuda_bench [csv file] [quick|steps] [name]
//
// quick: a search, fewer sizes; steps: no linear kernels; with a part of a name: only decode steps
// of ways so named, and linear kernels at one and eight tokens.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/attention.h"
#include "backend/cuda/ceilings.h"
#include "backend/cuda/cuda_check.h"
#include "backend/cuda/linear.h"
#include "backend/cuda/pack.h"
#include "backend/cuda/row_ops.h"

namespace invar::cuda {
namespace {

constexpr size_t kPoolBytes = size_t{6} << 30;

cudaStream_t stream;
std::FILE* csv;
double read_gbps, wgmma_tflops;

double time_us(const std::function<void(int)>& launch, int launches) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < launches; ++i) launch(i);
  CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t begin, end;
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = 0; i < 11; ++i) {
    CUDA_CHECK(cudaEventRecord(begin, stream));
    CUDA_CHECK(cudaGraphLaunch(exec, stream));
    CUDA_CHECK(cudaEventRecord(end, stream));
    CUDA_CHECK(cudaEventSynchronize(end));
    float ms;
    CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
    if (i >= 2) times.push_back(ms);
  }
  CUDA_CHECK(cudaGraphExecDestroy(exec));
  CUDA_CHECK(cudaGraphDestroy(graph));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2] * 1e3 / launches;
}

void report(const char* kernel, const char* what, const char* kind, int m, double us, double bytes,
            double flops) {
  const double gbps = bytes / us / 1e3, tflops = flops / us / 1e6;
  std::printf("%-14s %-24s %-8s M %5d %9.2f us %6.0f GB/s %5.1f %%  %6.1f TFLOP/s %5.1f %%\n",
              kernel, what, kind, m, us, gbps, 100 * gbps / read_gbps, tflops,
              100 * tflops / wgmma_tflops);
  std::fprintf(csv, "%s,%s,%s,%d,%.3f,%.0f,%.1f,%.1f,%.1f\n", kernel, what, kind, m, us, gbps,
               100 * gbps / read_gbps, tflops, 100 * tflops / wgmma_tflops);
  std::fflush(stdout);
}

const char* kind_name(PackedKind kind) {
  const char* names[kNumPackedKinds] = {"bf16", "affine4", "half4", "q4_k", "q8_0", "q6_k"};
  return names[static_cast<int>(kind)];
}

// Random codes with scales of realistic size, repeated through the pool.
void fill_pool(uint8_t* pool, PackedKind kind) {
  const int bytes = block_bytes(kind), count = 4096;
  std::mt19937 random(7);
  std::vector<uint8_t> blocks(static_cast<size_t>(bytes) * count);
  for (uint8_t& b : blocks) b = static_cast<uint8_t>(random() >> 11);
  auto put = [](uint8_t* p, uint16_t v) { std::memcpy(p, &v, 2); };
  for (int i = 0; i < count; ++i) {
    uint8_t* b = blocks.data() + static_cast<size_t>(i) * bytes;
    switch (kind) {
      case PackedKind::kBf16:
        for (int j = 0; j < 1024; ++j)
          put(b + 2 * j, bf16_rn((static_cast<float>(random() >> 8) * 0x1p-23f - 1.f) * 0x1p-12f));
        break;
      case PackedKind::kAffine4:
        for (int j = 0; j < 16; ++j) {
          put(b + 512 + 4 * j, bf16_rn(std::ldexp(0.004f, (j & 1 ? 129 : 133) - kWeightExponent)));
          put(b + 512 + 4 * j + 2, bf16_rn(-0.03f / kWeightUndo));
        }
        break;
      case PackedKind::kHalf4:
        for (int j = 0; j < 32; ++j) {
          put(b + 512 + 4 * j, f32_to_f16(0.004f));
          put(b + 512 + 4 * j + 2, f32_to_f16(-0.03f));
        }
        break;
      case PackedKind::kQ4K:
        for (int j = 0; j < 8; ++j)
          for (int h = 0; h < 2; ++h) {
            put(b + 512 + 16 * j + 4 * h, f32_to_f16(1.3e-4f));
            put(b + 512 + 16 * j + 4 * h + 2, f32_to_f16(9e-4f));
            for (int k = 0; k < 4; ++k) b[512 + 16 * j + 8 + 4 * h + k] &= 63;
          }
        break;
      case PackedKind::kQ8:
        for (int j = 0; j < 32; ++j) put(b + 1024 + 2 * j, f32_to_f16(2.7e-4f));
        break;
      case PackedKind::kQ6K:
        for (int j = 0; j < 16; ++j) put(b + 832 + 2 * j, f32_to_f16(1.5e-5f));
        break;
    }
  }
  size_t done = blocks.size();
  CUDA_CHECK(cudaMemcpy(pool, blocks.data(), done, cudaMemcpyHostToDevice));
  while (done < kPoolBytes) {
    const size_t n = std::min(done, kPoolBytes - done);
    CUDA_CHECK(cudaMemcpy(pool + done, pool, n, cudaMemcpyDeviceToDevice));
    done += n;
  }
}

struct Shape {
  const char* name;
  int rows, cols;
  bool gated, head;
};

PackedMatrix matrix(PackedKind kind, const Shape& s, const uint8_t* data) {
  PackedMatrix w;
  w.kind = kind;
  w.gated = s.gated;
  w.num_rows = s.gated ? s.rows / 2 : s.rows;
  w.num_cols = s.cols;
  w.num_strips = s.rows / 16;
  w.num_blocks = s.cols / 64;
  w.num_slices = slice_count(w.num_strips, w.num_blocks, s.head);
  w.data = data;
  return w;
}

// One decode step of a dense decoder, all kernels in one CUDA graph, M sequences of the same
// length: what a step costs without host work, sampling or embedding. Random 4-bit weights, every
// layer its own.
struct Decoder {
  const char* name;
  int hidden, heads, kv_heads, head_dim, mlp, vocab, layers;
};

// Ways to run one decode step; all give the same bits.
struct StepVariant {
  const char* name;
  bool attention = true, rope_inside = true;
  int kv_prefetch = 0;
  bool norm_qkv = false, norm_gate_up = false, norm_head = false;  // one sequence only
  bool trigger_late = false;
  int token = 1;  // AttentionSchedule::token
};

std::vector<StepVariant> step_variants(int m) {
  std::vector<StepVariant> list = {
      {.name = "kernel by kernel", .rope_inside = false, .kv_prefetch = 1},
      {.name = "V into L2 after K", .rope_inside = false},
      {.name = "rope inside"},
      {.name = "rope inside late", .trigger_late = true},
      {.name = "no rope or attention", .attention = false, .rope_inside = false}};
  list.push_back({.name = "rope inside + token", .token = 2});
  list.push_back({.name = "rope inside late + token", .trigger_late = true, .token = 2});
  if (m > 1) return list;
  list.push_back({.name = "rope + norm qkv", .norm_qkv = true});
  list.push_back({.name = "rope + norm qkv late", .norm_qkv = true, .trigger_late = true});
  list.push_back({.name = "rope + norm gate+up", .norm_gate_up = true});
  list.push_back(
      {.name = "rope + norms", .norm_qkv = true, .norm_gate_up = true, .norm_head = true});
  list.push_back({.name = "rope + norms late",
                  .norm_qkv = true,
                  .norm_gate_up = true,
                  .norm_head = true,
                  .trigger_late = true});
  list.push_back({.name = "norms late - attention",
                  .attention = false,
                  .rope_inside = false,
                  .norm_qkv = true,
                  .norm_gate_up = true,
                  .norm_head = true,
                  .trigger_late = true});
  for (const bool late : {false, true}) {
    list.push_back({.name = late ? "norm gate+up late + token" : "norm gate+up + token",
                    .norm_gate_up = true,
                    .trigger_late = late,
                    .token = 2});
    list.push_back({.name = late ? "norms late + token" : "norms + token",
                    .norm_qkv = true,
                    .norm_gate_up = true,
                    .norm_head = true,
                    .trigger_late = late,
                    .token = 2});
  }
  return list;
}

void bench_decode_step(uint8_t* pool, const char* only) {
  const Decoder d = {"7B step", 3584, 28, 4, 128, 18944, 152064, 28};
  fill_pool(pool, PackedKind::kAffine4);
  const int q = d.heads * d.head_dim, kv = d.kv_heads * d.head_dim;
  size_t used = 0;
  auto take = [&](int rows, int cols, bool gated, bool head) {
    const PackedMatrix w = matrix(PackedKind::kAffine4, {"", rows, cols, gated, head}, pool + used);
    used += w.num_bytes();
    return w;
  };
  struct Layer {
    PackedMatrix qkv, o, gate_up, down;
  };
  std::vector<Layer> layers;
  for (int i = 0; i < d.layers; ++i)
    layers.push_back({take(q + 2 * kv, d.hidden, false, false), take(d.hidden, q, false, false),
                      take(2 * d.mlp, d.hidden, true, false), take(d.hidden, d.mlp, false, false)});
  const PackedMatrix head = take(d.vocab, d.hidden, false, true);
  const double weight_bytes = static_cast<double>(used);
  for (const auto& [m, length] :
       {std::pair<int, int>{1, 16}, {1, 4096}, {1, 32768}, {8, 16}, {8, 4096}}) {
    const int pages = (length + kGroupKeys - 1) / kGroupKeys;
    const size_t layer_elements =
        static_cast<size_t>(page_elements(d.kv_heads, d.head_dim)) * pages * m;
    uint8_t *cache, *small;
    float *h, *qkv, *logits, *workspace;
    float2* rotation;
    uint16_t *x, *attended, *gated;
    auto make = [](auto** p, size_t bytes) {
      CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(p), bytes));
      CUDA_CHECK(cudaMemset(*p, 0, bytes));
    };
    make(&cache, layer_elements * 2 * d.layers);
    make(&small, 1 << 20);
    make(&rotation, sizeof(float2) * m * d.head_dim / 2);
    make(&h, size_t{4} * m * d.hidden);
    make(&qkv, size_t{4} * m * (q + 2 * kv));
    make(&logits, size_t{4} * m * d.vocab);
    make(&x, size_t{2} * m * d.hidden);
    make(&attended, size_t{2} * m * q);
    make(&gated, size_t{2} * m * d.mlp);
    AttentionCall call;
    call.shape = {d.heads, d.kv_heads, d.head_dim, 0.0884f, 0, 0};
    call.workspace_bytes = attention_workspace_bytes(call.shape, m, pages);
    make(&workspace, call.workspace_bytes);
    std::vector<DeviceWindow> windows;
    std::vector<int32_t> page_list, rows, positions;
    for (int i = 0; i < m; ++i) {
      windows.push_back({i, 1, length - 1, i * pages});
      rows.push_back(i);
      positions.push_back(length - 1);
      for (int p = 0; p < pages; ++p) page_list.push_back(i * pages + p);
    }
    const std::vector<double> freqs(static_cast<size_t>(d.head_dim / 2), 0.5);
    const std::vector<float> ones(static_cast<size_t>(d.hidden), 1.f);
    auto put = [&](size_t at, const void* from, size_t bytes) {
      CUDA_CHECK(cudaMemcpy(small + at, from, bytes, cudaMemcpyHostToDevice));
    };
    put(0, windows.data(), windows.size() * sizeof windows[0]);
    put(4096, rows.data(), rows.size() * 4);
    put(8192, positions.data(), positions.size() * 4);
    put(16384, freqs.data(), freqs.size() * 8);
    put(65536, ones.data(), ones.size() * 4);
    put(131072, page_list.data(), page_list.size() * 4);
    call.input_type = OutputType::kF32;
    call.q = qkv;
    call.k = qkv + q;
    call.v = qkv + q + kv;
    call.q_stride = call.k_stride = call.v_stride = q + 2 * kv;
    call.y = attended;
    call.y_stride = q;
    call.windows = reinterpret_cast<DeviceWindow*>(small);
    call.row_window = reinterpret_cast<int32_t*>(small + 4096);
    call.pages = reinterpret_cast<int32_t*>(small + 131072);
    call.num_windows = call.num_rows = m;
    call.max_window_rows = 1;
    call.max_groups = pages;
    call.workspace = workspace;
    const auto* one = reinterpret_cast<float*>(small + 65536);
    for (const StepVariant& v : step_variants(m)) {
      if (only != nullptr && std::strstr(v.name, only) == nullptr) continue;
      auto apply = [&](const PackedMatrix& w, const void* in, bool norm, void* out, OutputType type,
                       const float* residual) {
        LinearArgs args;
        args.norm_weight = norm ? one : nullptr;
        args.norm_eps = 1e-6f;
        args.w = w;
        args.x = in;
        args.x_stride = w.num_cols;
        args.num_tokens = m;
        args.epilogue.y = out;
        args.epilogue.y_stride = w.num_rows;
        args.epilogue.y_type = type;
        args.epilogue.residual = residual;
        args.epilogue.residual_stride = w.num_rows;
        linear(stream, args, {.dependent = true, .trigger_late = v.trigger_late});
      };
      const double us = time_us(
          [&](int) {
            auto normalize = [&](bool inside) -> const void* {
              if (inside) return h;
              rms_norm(stream, h, d.hidden, one, 1e-6f, m, d.hidden, x, d.hidden, true);
              return x;
            };
            const auto* device_positions = reinterpret_cast<int32_t*>(small + 8192);
            const auto* device_freqs = reinterpret_cast<double*>(small + 16384);
            call.rotation = v.rope_inside ? rotation : nullptr;
            call.num_freqs = d.head_dim / 2;
            if (v.rope_inside)
              rope_table(stream, device_positions, device_freqs, d.head_dim / 2, 1, m, rotation,
                         true);
            for (int i = 0; i < d.layers; ++i) {
              const Layer& w = layers[static_cast<size_t>(i)];
              const void* norm_qkv_in = normalize(v.norm_qkv);
              apply(w.qkv, norm_qkv_in, v.norm_qkv, qkv, OutputType::kF32, nullptr);
              if (v.attention) {
                if (!v.rope_inside)
                  rope(stream, OutputType::kF32, qkv, q + 2 * kv, device_positions, device_freqs,
                       d.head_dim / 2, 1, m, d.heads + d.kv_heads, d.head_dim, true);
                call.cache = cache + layer_elements * 2 * i;
                attention(stream, call,
                          {.prefetch = v.kv_prefetch, .token = v.token, .dependent = true});
              }
              apply(w.o, attended, false, h, OutputType::kF32, h);
              const void* norm_gate_up_in = normalize(v.norm_gate_up);
              apply(w.gate_up, norm_gate_up_in, v.norm_gate_up, gated, OutputType::kBF16, nullptr);
              apply(w.down, gated, false, h, OutputType::kF32, h);
            }
            const void* norm_head_in = normalize(v.norm_head);
            apply(head, norm_head_in, v.norm_head, logits, OutputType::kF32, nullptr);
          },
          1);
      char what[64];
      std::snprintf(what, sizeof what, "%s at %d %s", d.name, length, v.name);
      report("decode_step", what, "affine4", m, us,
             weight_bytes + (v.attention ? 2.0 * length * m * 2 * kv * d.layers : 0), 0);
      std::printf("%-14s %-24s M %d: %.0f tokens/s\n", "", what, m, m * 1e6 / us);
    }
    for (void* p : {static_cast<void*>(cache), static_cast<void*>(small), static_cast<void*>(h),
                    static_cast<void*>(qkv), static_cast<void*>(logits), static_cast<void*>(x),
                    static_cast<void*>(attended), static_cast<void*>(gated),
                    static_cast<void*>(workspace), static_cast<void*>(rotation)})
      CUDA_CHECK(cudaFree(p));
  }
}

void run(int argc, char** argv) {
  csv = argc > 1 ? std::fopen(argv[1], "w") : stderr;
  const char* only = argc > 3 ? argv[3] : nullptr;
  const bool quick = argc > 2, steps_only = quick && std::strcmp(argv[2], "steps") == 0;
  CUDA_CHECK(cudaStreamCreate(&stream));
  uint8_t* pool;
  CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&pool), kPoolBytes));
  void* sink;
  CUDA_CHECK(cudaMalloc(&sink, 256));
  std::fprintf(csv, "kernel,shape,kind,m,us,gbps,percent_read,tflops,percent_wgmma\n");

  fill_pool(pool, PackedKind::kAffine4);
  for (int i = 0; i < 2; ++i) {
    const double us = time_us([&](int) { launch_read(stream, pool, kPoolBytes, sink); }, 2);
    read_gbps = std::max(read_gbps, kPoolBytes / us / 1e3);
    wgmma_tflops =
        launch_wgmma_flops() / time_us([&](int) { launch_wgmma(stream, sink); }, 8) / 1e6;
  }
  std::printf("ceilings: read %.0f GB/s, wgmma alone %.0f TFLOP/s\n", read_gbps, wgmma_tflops);
  std::fprintf(csv, "ceiling read,,,,,%.0f,100,,\nceiling wgmma alone,,,,,,,%.1f,100\n", read_gbps,
               wgmma_tflops);

  const Shape shapes[] = {{"27B gate+up 34816x5120", 34816, 5120, true, false},
                          {"27B down 5120x17408", 5120, 17408, false, false},
                          {"27B head 248320x5120", 248320, 5120, false, true},
                          {"7B gate+up 37888x3584", 37888, 3584, true, false},
                          {"7B down 3584x18944", 3584, 18944, false, false},
                          {"7B qkv 4608x3584", 4608, 3584, false, false},
                          {"7B o 3584x3584", 3584, 3584, false, false},
                          {"35B in-proj 12352x2048", 12352, 2048, false, false},
                          {"35B out-proj 2048x4096", 2048, 4096, false, false}};
  const int max_tokens = 8192, max_cols = 18944;
  uint16_t* x;
  void* y;
  CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&x), size_t{2} * max_tokens * max_cols));
  CUDA_CHECK(cudaMalloc(&y, size_t{4} * max_tokens * 34816));
  {
    std::mt19937 random(3);
    std::vector<uint16_t> row(size_t{64} * max_cols);
    for (uint16_t& v : row) v = bf16_rn(static_cast<float>(random() >> 8) * 0x1p-23f - 1.f);
    for (int i = 0; i < max_tokens / 64; ++i)
      CUDA_CHECK(
          cudaMemcpy(x + i * row.size(), row.data(), row.size() * 2, cudaMemcpyHostToDevice));
  }
  const PackedKind kinds[] = {PackedKind::kAffine4, PackedKind::kQ4K, PackedKind::kHalf4,
                              PackedKind::kQ8,      PackedKind::kQ6K, PackedKind::kBf16};
  // Few tokens first: a GEMM heats the chip, and what follows it runs at a lower clock (7B gate+up
  // at one token: 22 us before, 26 us after).
  auto bench_linear = [&](bool few_tokens) {
    for (PackedKind kind : kinds) {
      const bool first = kind == PackedKind::kAffine4;
      if (only != nullptr && !first) continue;
      fill_pool(pool, kind);
      for (const Shape& s : shapes) {
        const PackedMatrix w = matrix(kind, s, pool);
        if (w.num_bytes() > kPoolBytes / 2) continue;
        const int copies = static_cast<int>(
            std::min<size_t>(kPoolBytes / w.num_bytes(),
                             std::max<size_t>(2, (size_t{400} << 20) / w.num_bytes() + 1)));
        auto time = [&](int m, const LinearSchedule& schedule, bool bf16_output) {
          return time_us(
              [&](int i) {
                LinearArgs args;
                args.w = w;
                args.w.data = pool + static_cast<size_t>(i % copies) * w.num_bytes();
                args.x = x;
                args.x_stride = s.cols;
                args.num_tokens = m;
                args.epilogue.y = y;
                args.epilogue.y_stride = w.num_rows;
                args.epilogue.y_type = bf16_output ? OutputType::kBF16 : OutputType::kF32;
                linear(stream, args, schedule);
              },
              m > 64 ? 4 : std::max(12, copies));
        };
        const double flops = 2.0 * s.rows * s.cols;
        if (quick && only == nullptr && first && few_tokens)
          for (int m : {1, 8, 16})
            for (int warps : {8, 12, 16, 18, 20, 24})
              for (int blocks : {1, 2}) {
                const double us = time(
                    m, {.max_warps = warps, .stage_blocks = blocks, .dependent = true}, s.gated);
                std::printf("search %-24s M %2d warps %2d stage %d: %7.2f us\n", s.name, m, warps,
                            blocks, us);
              }
        const bool all = first && !quick;
        for (int m : {1, 2, 4, 8, 16, 32, 64, 512, 2048, 8192}) {
          if (only != nullptr && (!first || (m != 1 && m != 8))) continue;
          if (few_tokens != (m <= 64)) continue;
          if (s.head && m > 16) continue;
          if (!all && m != 1 && m != 8 && m != 32 && m != 2048) continue;
          const bool decode =
              m <= kMaxDecodeTokens || (m <= 2 * kMaxDecodeTokens && w.num_strips <= 512);
          report(decode ? "lin_decode" : "lin_prefill", s.name, kind_name(kind), m,
                 time(m, {.dependent = true}, s.gated), static_cast<double>(w.num_bytes()),
                 flops * m);
        }
      }
    }
  };
  bench_decode_step(pool, only);
  if (!steps_only || only != nullptr) bench_linear(true);
  if (only != nullptr) return;

  // Attention: one sequence, cache full of small numbers.
  struct Attention {
    const char* name;
    AttentionShape shape;
    int start, rows;
  };
  const Attention cases[] = {{"7B decode 1k", {28, 4, 128, 0.0884f, 0, 0}, 1023, 1},
                             {"7B decode 4k", {28, 4, 128, 0.0884f, 0, 0}, 4095, 1},
                             {"7B decode 32k", {28, 4, 128, 0.0884f, 0, 0}, 32767, 1},
                             {"27B decode 32k", {24, 4, 256, 0.0625f, 0, 0}, 32767, 1},
                             {"35B decode 128k", {16, 2, 256, 0.0625f, 0, 0}, 131071, 1},
                             {"7B prefill 4k", {28, 4, 128, 0.0884f, 0, 0}, 0, 4096},
                             {"27B prefill 4k", {24, 4, 256, 0.0625f, 0, 0}, 0, 4096}};
  CUDA_CHECK(cudaMemset(pool, 0, kPoolBytes));
  for (const Attention& a : cases) {
    const int length = a.start + a.rows, pages = (length + kGroupKeys - 1) / kGroupKeys;
    std::vector<int32_t> page_list(static_cast<size_t>(pages)),
        row_window(static_cast<size_t>(a.rows), 0);
    for (int i = 0; i < pages; ++i) page_list[static_cast<size_t>(i)] = i;
    const DeviceWindow window = {0, a.rows, a.start, 0};
    uint8_t* device;
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&device), size_t{1} << 20));
    CUDA_CHECK(cudaMemcpy(device, &window, sizeof window, cudaMemcpyHostToDevice));
    CUDA_CHECK(
        cudaMemcpy(device + 4096, page_list.data(), page_list.size() * 4, cudaMemcpyHostToDevice));
    CUDA_CHECK(cudaMemcpy(device + 65536, row_window.data(), row_window.size() * 4,
                          cudaMemcpyHostToDevice));
    AttentionCall call;
    call.shape = a.shape;
    call.q = call.k = call.v = x;
    call.q_stride = a.shape.num_heads * a.shape.head_dim;
    call.k_stride = call.v_stride = a.shape.num_kv_heads * a.shape.head_dim;
    call.y = y;
    call.y_stride = call.q_stride;
    call.windows = reinterpret_cast<DeviceWindow*>(device);
    call.num_windows = 1;
    call.pages = reinterpret_cast<int32_t*>(device + 4096);
    call.row_window = reinterpret_cast<int32_t*>(device + 65536);
    call.num_rows = call.max_window_rows = a.rows;
    call.max_groups = pages;
    call.workspace_bytes = attention_workspace_bytes(a.shape, a.rows, a.rows > 1 ? 1 : pages);
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&call.workspace), call.workspace_bytes));
    const size_t layer =
        static_cast<size_t>(page_elements(a.shape.num_kv_heads, a.shape.head_dim)) * pages * 2;
    const int layers =
        static_cast<int>(std::max<size_t>(1, std::min<size_t>(24, kPoolBytes / layer)));
    const double us = time_us(
        [&](int i) {
          AttentionCall c = call;
          c.cache = pool + static_cast<size_t>(i % layers) * layer;
          attention(stream, c, {.dependent = true});
        },
        a.rows > 1 ? 4 : 24);
    const double pairs = a.rows == 1 ? length : 0.5 * a.rows * a.rows;
    report("attention", a.name, "bf16", a.rows, us, a.rows == 1 ? static_cast<double>(layer) : 0,
           4.0 * pairs * a.shape.num_heads * a.shape.head_dim);
    CUDA_CHECK(cudaFree(device));
    CUDA_CHECK(cudaFree(call.workspace));
  }
  for (int m : {1, 8, 2048}) {
    const double us = time_us(
        [&](int) {
          rms_norm(stream, static_cast<float*>(y), 5120, reinterpret_cast<float*>(pool), 1e-6f, m,
                   5120, x, 5120, true);
        },
        24);
    report("rms_norm", "5120", "f32", m, us, 5120.0 * m * 6, 0);
  }
  if (!steps_only) bench_linear(false);
  std::fclose(csv);
}

}  // namespace
}  // namespace invar::cuda

int main(int argc, char** argv) {
  invar::cuda::run(argc, argv);
  return 0;
}
