// Host side of the linear kernels: tensor maps, launch plans, the choice of a kernel by the number
// of tokens. Nothing here enters a value.
#include "backend/cuda/linear.h"

#include <algorithm>
#include <mutex>

#include "backend/cuda/cuda_check.h"
#include "backend/cuda/linear_kernels.h"
#include "base/check.h"

namespace invar::cuda {
namespace {

constexpr int kSharedLimit = 227 * 1024;
constexpr int kSharedDecode = 216 * 1024;  // a little left for the system and the barriers

constexpr int kFewStrips = 512;

int num_sms() {
  static const int count = [] {
    int device = 0, n = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device));
    return n;
  }();
  return count;
}

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                 const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                 const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

EncodeTiled encode_tiled() {
  static const EncodeTiled function = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult result;
    CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                                cudaEnableDefault, &result));
    INVAR_CHECK(entry != nullptr, "the driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<EncodeTiled>(entry);
  }();
  return function;
}

// x [num_tokens, num_cols] seen as [block of 64 columns, token, 64]: one copy brings the same
// columns of `tokens` tokens for `blocks` blocks.
CUtensorMap map_of_x(const LinearArgs& args, int tokens, int blocks) {
  CUtensorMap map;
  const cuuint64_t dims[3] = {kBlockCols, static_cast<cuuint64_t>(args.num_tokens),
                              static_cast<cuuint64_t>(args.w.num_blocks)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(args.x_stride) * 2, kBlockCols * 2};
  const cuuint32_t box[3] = {kBlockCols, static_cast<cuuint32_t>(tokens),
                             static_cast<cuuint32_t>(blocks)};
  const cuuint32_t steps[3] = {1, 1, 1};
  const CUresult result =
      encode_tiled()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(args.x), dims,
                     strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                     CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  INVAR_CHECK(result == CUDA_SUCCESS, "cuTensorMapEncodeTiled: error %d for x [%d, %d] stride %ld",
              static_cast<int>(result), args.num_tokens, args.w.num_cols, long{args.x_stride});
  return map;
}

// One way to cut the work; stage_blocks and the number of warps are given.
DecodePlan plan_with(const PackedMatrix& w, int slots, int stage_blocks, int warps, int ctas,
                     bool norm) {
  DecodePlan plan;
  plan.slots = slots;
  plan.stage_blocks = stage_blocks;
  const int tiles = (slots + 7) / 8;
  // A named barrier per group limits groups to 15 where there are slices to add.
  const int most_groups =
      std::max(1, std::min(warps / w.num_slices, w.num_slices > 1 ? 15 : warps));
  const int visits = (w.num_strips + ctas * most_groups - 1) / (ctas * most_groups);
  const int groups = (w.num_strips + ctas * visits - 1) / (ctas * visits);
  plan.num_warps = groups * w.num_slices;
  plan.grid = std::min(ctas, (w.num_strips + groups - 1) / groups);
  const size_t stage =
      static_cast<size_t>(stage_blocks) *
          (plan.num_warps * block_bytes(w.kind) + (norm ? 0 : w.num_slices * slots * 128)) +
      8u * (2 + plan.num_warps);
  const size_t fixed = 1024 + (norm ? norm_row_bytes(w.num_blocks) : 0) +
                       (w.num_slices > 1 ? 2u * plan.num_warps * tiles * 512 : 0);
  const int longest = (w.num_blocks + w.num_slices - 1) / w.num_slices;
  const int steps = (longest + stage_blocks - 1) / stage_blocks;
  plan.num_stages = std::min(
      {static_cast<int>((kSharedDecode - fixed) / stage), 24, std::max(2, steps * visits)});
  plan.shared_bytes = fixed + plan.num_stages * stage;
  plan.rounds = visits * groups;
  return plan;
}

DecodePlan plan_decode(const LinearArgs& args, const LinearSchedule& schedule) {
  const PackedMatrix& w = args.w;
  const int slots = args.num_tokens == 1    ? 1
                    : args.num_tokens <= 8  ? 8
                    : args.num_tokens <= 16 ? 16
                                            : 32;
  const int ctas = schedule.max_ctas > 0 ? std::min(num_sms(), schedule.max_ctas) : num_sms();
  const int few = few_stage_blocks(w.kind);
  auto plan_for = [&](int stage_blocks) {
    int warps = decode_warps(w.kind, slots, stage_blocks);
    if (schedule.max_warps > 0) warps = std::min(warps, schedule.max_warps);
    return plan_with(w, slots, stage_blocks, warps, ctas, args.norm_weight != nullptr);
  };
  const int larger = slots <= 8 ? 2 * few : few, smaller = slots <= 8 ? few : few / 2;
  DecodePlan plan = plan_for(slots == 32 ? smaller : larger);
  // One token: a slice a block short of a stage is still one stage, read ahead as it comes.
  const int short_of = slots == 1 && w.kind == PackedKind::kAffine4 ? 1 : 0;
  // Larger stages unless they cost a round of strips, or leave too few stages in flight.
  if (slots != 32) {
    const DecodePlan other = plan_for(smaller);
    const bool take_other = schedule.stage_blocks > 0
                                ? schedule.stage_blocks == 1
                                : other.rounds < plan.rounds ||
                                      plan.num_stages < (slots <= 8 ? 2 : 3) ||
                                      w.num_blocks / w.num_slices < plan.stage_blocks - short_of;
    if (take_other || plan.num_stages < 1) plan = other;
  }
  if (schedule.num_stages > 0 && schedule.num_stages < plan.num_stages)
    plan.num_stages = schedule.num_stages;  // the memory of the rest stays unused
  INVAR_CHECK(plan.num_stages >= 1, "no room for a stage");
  return plan;
}

PrefillPlan plan_prefill(const LinearArgs& args, const LinearSchedule& schedule) {
  const PackedMatrix& w = args.w;
  PrefillPlan plan;
  plan.tokens = schedule.prefill_tokens ? schedule.prefill_tokens
                : args.num_tokens <= 64 ? 64
                                        : 128;
  const int row_tiles = (w.num_strips + 7) / 8;
  const int tiles = row_tiles * ((args.num_tokens + plan.tokens - 1) / plan.tokens);
  plan.grid =
      std::min(tiles, schedule.max_ctas > 0 ? std::min(num_sms(), schedule.max_ctas) : num_sms());
  const size_t stage = plan.tokens * 128 + prefill_weight_bytes(w.kind) + 16;
  const size_t fixed = 1024 + parked_levels(w.num_slices) * plan.tokens * 512;
  int stages = std::min(static_cast<int>((kSharedLimit - fixed) / stage), 8);
  if (schedule.num_stages > 0) stages = std::min(stages, std::max(2, schedule.num_stages));
  plan.num_stages = stages;
  plan.shared_bytes = fixed + stages * stage;
  return plan;
}

// Calls f(LinearKernels<kind>) for a kind known at run time.
template <typename F>
void with_kernels(PackedKind kind, F&& f) {
  switch (kind) {
    case PackedKind::kBf16:
      return f(LinearKernels<PackedKind::kBf16>());
    case PackedKind::kAffine4:
      return f(LinearKernels<PackedKind::kAffine4>());
    case PackedKind::kHalf4:
      return f(LinearKernels<PackedKind::kHalf4>());
    case PackedKind::kQ4K:
      return f(LinearKernels<PackedKind::kQ4K>());
    case PackedKind::kQ8:
      return f(LinearKernels<PackedKind::kQ8>());
    case PackedKind::kQ6K:
      return f(LinearKernels<PackedKind::kQ6K>());
  }
}

void run_decode(cudaStream_t stream, const LinearArgs& args, const LinearSchedule& schedule) {
  const DecodePlan plan = plan_decode(args, schedule);
  const CUtensorMap map =
      plan.slots == 1 ? CUtensorMap{} : map_of_x(args, plan.slots, plan.stage_blocks);
  with_kernels(args.w.kind,
               [&](auto kernels) { decltype(kernels)::decode(stream, map, args, plan, schedule); });
}

void run_prefill(cudaStream_t stream, const LinearArgs& args, const LinearSchedule& schedule) {
  const PrefillPlan plan = plan_prefill(args, schedule);
  const CUtensorMap map = map_of_x(args, plan.tokens, 1);
  with_kernels(args.w.kind, [&](auto kernels) {
    decltype(kernels)::prefill(stream, map, args, plan, schedule.dependent);
  });
}

}  // namespace

void linear(cudaStream_t stream, const LinearArgs& args, const LinearSchedule& schedule) {
  if (args.num_tokens == 0) return;
  INVAR_CHECK(args.x_stride % 8 == 0 && reinterpret_cast<uintptr_t>(args.x) % 16 == 0,
              "rows of x are not aligned to 16 bytes");
  INVAR_CHECK(args.norm_weight == nullptr ||
                  (args.num_tokens == 1 && schedule.path != LinearSchedule::Path::kPrefill &&
                   args.w.num_cols <= 8192),
              "a norm of %d tokens of %d columns", args.num_tokens, args.w.num_cols);
  using Path = LinearSchedule::Path;
  // A prefill tile of 128 rows leaves most of the chip idle where strips are few: twice lin_decode
  // is faster up to 64 tokens there (measured).
  const int decode_limit =
      args.w.num_strips <= kFewStrips ? 2 * kMaxDecodeTokens : kMaxDecodeTokens;
  const bool decode = schedule.path == Path::kChoose ? args.num_tokens <= decode_limit
                                                     : schedule.path == Path::kDecode;
  if (!decode) return run_prefill(stream, args, schedule);
  LinearArgs part = args;
  for (int first = 0; first < args.num_tokens; first += kMaxDecodeTokens) {
    part.num_tokens = std::min(kMaxDecodeTokens, args.num_tokens - first);
    run_decode(stream, part, schedule);
    part.x = static_cast<const uint16_t*>(part.x) + kMaxDecodeTokens * args.x_stride;
    Epilogue& e = part.epilogue;
    const int64_t size = e.y_type == OutputType::kF32 ? 4 : 2;
    e.y = static_cast<uint8_t*>(e.y) + kMaxDecodeTokens * e.y_stride * size;
    if (e.residual != nullptr) e.residual += kMaxDecodeTokens * e.residual_stride;
  }
}

void unpack(cudaStream_t stream, const PackedMatrix& w, void* out_bf16) {
  with_kernels(w.kind, [&](auto kernels) { decltype(kernels)::unpack(stream, w, out_bf16); });
}

void embed(cudaStream_t stream, const PackedMatrix& table, const int32_t* ids, int num_tokens,
           float scale, float* y, int64_t y_stride) {
  if (num_tokens == 0) return;
  INVAR_CHECK(!table.gated, "a gated matrix is no table");
  with_kernels(table.kind, [&](auto kernels) {
    decltype(kernels)::embed(stream, table, ids, num_tokens, scale, y, y_stride);
  });
}

}  // namespace invar::cuda
