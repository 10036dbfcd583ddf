#!/usr/bin/env bash
# Builds the CUDA backend, its tests and its benchmark without CMake, translation units in parallel:
# for a bare machine that has nvcc and g++ but none of the project's other packages. Elsewhere use
# CMake with -DINVAR_CUDA=ON.
#
#   tools/cuda_build.sh <build folder> [objects|all]
#   INVAR_NVCC   nvcc (default: on the PATH)
#   INVAR_GTEST  GoogleTest sources (default: /usr/src/googletest/googletest)
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
build="$1"
what="${2:-all}"
gtest="${INVAR_GTEST:-/usr/src/googletest/googletest}"
export INVAR_NVCC="${INVAR_NVCC:-$(command -v nvcc)}"
cuda_include="$(dirname "$(dirname "$(readlink -f "$INVAR_NVCC")")")/include"
cuda_lib="$(dirname "$cuda_include")/lib64"
mkdir -p "$build"
cd "$root"

common="-std=c++20 -Isrc -Iinclude -Itests -I$cuda_include -DINVAR_VERSION=\"0\""
device="-O3 -fmad=false -gencode=arch=compute_90a,code=sm_90a -lineinfo -Xptxas=-warn-spills"
device="$device -Xcompiler=-ffp-contract=off"
host="-O2 -ffp-contract=off -Wall -Wextra -Wshadow -Werror"
{
  for f in src/backend/cuda/*.cu; do
    echo "tools/cuda_nvcc.sh $common $device -c $f -o $build/$(basename "$f").o"
  done
  for f in src/backend/cuda/*.cc; do
    echo "g++ $common $host -c $f -o $build/cuda_$(basename "$f").o"
  done
  if [ "$what" = all ]; then
    for f in src/base/check.cc src/base/log.cc src/base/result.cc src/tensor/quant*.cc \
             src/tensor/tensor.cc src/base/threads*.cc src/backend/reference/*.cc; do
      echo "g++ $common $host -c $f -o $build/base_$(basename "$f").o"
    done
    for f in tests/cuda/*.cc; do
      echo "g++ $common $host -isystem $gtest/include -c $f -o $build/test_$(basename "$f").o"
    done
    echo "g++ -std=c++20 -O1 -I$gtest -I$gtest/include -c $gtest/src/gtest-all.cc -o $build/gtest_all.o"
    echo "g++ -std=c++20 -O1 -I$gtest/include -c $gtest/src/gtest_main.cc -o $build/gtest_main.o"
    echo "g++ $common $host -c tools/cuda_bench.cc -o $build/bench.o"
  fi
} | xargs -P "$(nproc)" -I{} sh -c '{}'
[ "$what" = all ] || exit 0
g++ "$build"/*.cu.o "$build"/cuda_*.o "$build"/base_*.o "$build"/test_*.o "$build"/gtest_*.o \
  -o "$build/cuda_tests" -L"$cuda_lib" -lcudart_static -ldl -lrt -lpthread
g++ "$build"/*.cu.o "$build"/cuda_*.o "$build"/base_*.o "$build/bench.o" \
  -o "$build/cuda_bench" -L"$cuda_lib" -lcudart_static -ldl -lrt -lpthread
