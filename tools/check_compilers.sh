#!/usr/bin/env bash
# The same bits from both compilers and at both ends of optimisation: builds the cpu backend, models
# and their tests with GCC at -O1 and with Clang at -O3 (`make test` has GCC -O3, the sanitizers
# Clang -O1) and runs what compares bits: linear and attention against the oracle and against rows
# alone, and logits against the frozen hashes. The kernels' own files take that level too.
#
#   tools/check_compilers.sh [--build DIR]
set -euo pipefail
cd "$(dirname "$0")/.."

build=build
if [[ ${1:-} == --build ]]; then
  build=${2:?"usage: tools/check_compilers.sh [--build DIR]"}
fi

# Of the real models the smallest: the tiny ones have float weights.
tests='*EqualsTheArithmetic*:CpuLinear.*:*Sweep*:CpuAttention.*:CpuR*:CpuHead*:*HashTest*'
tests+='-Large/*:*EverySetHashTest*smollm*:Files/*'

# check NAME COMPILER LEVEL CMAKE-OPTIONS...
check() {
  local name=$1 compiler=$2 level=$3 folder=$build/compilers-$1
  shift 3
  command -v "$compiler" > /dev/null || {
    echo "check_compilers: $compiler is missing; run tools/setup.sh test" >&2
    exit 1
  }
  cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$compiler" \
    -DCMAKE_CXX_FLAGS_RELEASE="$level -DNDEBUG" -DINVAR_KERNEL_LEVEL="$level" \
    -DINVAR_BUILD_APPS=OFF "$@" > /dev/null
  cmake --build "$folder" --target backend_tests models_tests
  for program in backend_tests models_tests; do
    "$folder/tests/$program" --gtest_brief=1 --gtest_filter="$tests"
  done
  echo "check_compilers: $name gives the frozen bits"
}

# Clang compiles every kernel there is; GCC has done so in `make test`.
sets=()
grep -qw avx512_vnni /proc/cpuinfo || sets+=(-DINVAR_AVX512=OFF)
grep -qw avx_vnni /proc/cpuinfo || sets+=(-DINVAR_AVXVNNI=OFF)

check gcc-O1 g++ -O1 "${sets[@]}"
check clang-O3 clang++-19 -O3
