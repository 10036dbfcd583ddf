// What compute-sanitizer's racecheck makes of the ring that lin_decode and lin_prefill use: shared
// memory that is refilled after an mbarrier says that a warp has read it. docs/cuda-kernels.md has
// what came out. Not part of the build.
//
//   nvcc -arch=sm_90a -o probe tools/cuda_racecheck_probe.cu
//   compute-sanitizer --tool racecheck ./probe 0   # one lane arrives after __syncwarp(), as we do
//   compute-sanitizer --tool racecheck ./probe 1   # every lane arrives for itself
//   compute-sanitizer --tool racecheck ./probe 2   # as 1, refilled by plain stores
//   compute-sanitizer --tool racecheck ./probe 3   # as 0, refilled by plain stores
//
// PTX orders all four: bar.warp.sync orders the lanes' reads before lane 0's arrival (release), the
// wait (acquire) orders that before the refill.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

constexpr int kRounds = 8, kBytes = 512;

__device__ uint32_t address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ void wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred p;\nl: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra l;\n}" ::
          "r"(barrier),
      "r"(parity)
      : "memory");
}
__device__ void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__global__ void ring(const uint4* from, uint32_t* sum, int form) {
  __shared__ __align__(128) uint4 data[kBytes / 16];
  __shared__ uint64_t barriers[2];
  const uint32_t full = address(&barriers[0]), empty = address(&barriers[1]);
  const int lane = threadIdx.x & 31;
  const bool all_arrive = form == 1 || form == 2, stores = form >= 2;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(full), "r"(stores ? 32 : 1));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(empty), "r"(all_arrive ? 32 : 1));
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x >= 32) {  // the warp that fills
    for (int i = 0; i < kRounds; ++i) {
      wait(empty, (i & 1) ^ 1);
      if (stores) {
        data[lane] = from[i * 32 + lane];
        arrive(full);
      } else if (lane == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full),
                     "r"(kBytes)
                     : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
            "[%3];" ::"r"(address(data)),
            "l"(from + i * 32), "r"(kBytes), "r"(full)
            : "memory");
      }
      __syncwarp();
    }
    return;
  }
  uint32_t total = 0;
  for (int i = 0; i < kRounds; ++i) {
    wait(full, i & 1);
    total += data[lane].x;
    __syncwarp();
    if (all_arrive || lane == 0) arrive(empty);
  }
  sum[lane] = total;
}

int main(int argc, char** argv) {
  uint4* from;
  uint32_t* sum;
  cudaMalloc(&from, kRounds * kBytes);
  cudaMalloc(&sum, 128);
  cudaMemset(from, 1, kRounds * kBytes);
  ring<<<1, 64>>>(from, sum, argc > 1 ? std::atoi(argv[1]) : 0);
  const cudaError_t error = cudaDeviceSynchronize();
  std::printf("%s\n", cudaGetErrorString(error));
  return error != cudaSuccess;
}
