#!/usr/bin/env bash
# The tests under the address and undefined-behaviour sanitizers, then those with threads under the
# thread sanitizer. Real models and what needs Python are left out: the same code runs on tiny ones.
# Built by Clang at -O1; the kernels keep -O3, or the tests would take an hour.
#
#   tools/check_sanitizers.sh [asan|tsan]
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ -t 1 ]]; then export GTEST_COLOR=yes; fi
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
everywhere='*Real*:*Oracle*:JinjaDifferential.*:LoadMemory.*:*smollm*:*Large*:Large/*:*Sweep*'

# Kernels that this CPU cannot run would only be compiled.
sets=()
grep -qw avx512_vnni /proc/cpuinfo || sets+=(-DINVAR_AVX512=OFF)
grep -qw avx_vnni /proc/cpuinfo || sets+=(-DINVAR_AVXVNNI=OFF)

# One program a folder of tests; CUDA's need a GPU.
programs=()
for first in tests/*/*_test.cc; do
  program=$(basename "$(dirname "$first")")_tests
  [[ $program == cuda_tests || " ${programs[*]} " == *" $program "* ]] || programs+=("$program")
done

# check PRESET SKIPPED-TESTS PROGRAM...
check() {
  local preset=$1 skipped=$2
  shift 2
  cmake --preset "$preset" "${sets[@]}" > /dev/null
  cmake --build --preset "$preset" --target "$@"
  for program in "$@"; do
    echo "check_sanitizers: $preset $program"
    "build/$preset/tests/$program" --gtest_brief=1 --gtest_filter="-$skipped"
  done
}

case "${1:-all}" in
  all | asan | tsan) ;;
  *) echo "usage: tools/check_sanitizers.sh [asan|tsan]" >&2 && exit 2 ;;
esac
if [[ ${1:-all} != tsan ]]; then
  # Overcommitted allocations, time limits and plain loops over hundreds of positions say nothing
  # new here, and the sanitizer has an allocator of its own.
  check asan "$everywhere:*IsCloseToTheExactProduct*:CpuKvCache.SizesAndRefusals:JinjaLimits.Hostile*:Allocation.*" \
    "${programs[@]}"
fi
if [[ ${1:-all} != asan ]]; then
  # How long something takes is not asked here.
  check tsan "$everywhere:*OnOneCore*:Math*:Json*:Utf8*:Allocation.*" \
    base_tests cache_tests engine_tests server_tests
fi
