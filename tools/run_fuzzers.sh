#!/bin/bash
# Builds every fuzz target (preset "fuzz") and runs each for SECONDS on a copy of its seed corpus,
# two at a time. Nothing is written to the source tree. Ends with one line per target; fails when one
# found something, and says how to run it again.
#
#   tools/run_fuzzers.sh SECONDS [--build DIR] [TARGET...]
set -euo pipefail

usage="usage: tools/run_fuzzers.sh SECONDS [--build DIR] [TARGET...]"
root=$(cd "$(dirname "$0")/.." && pwd)
seconds=${1:?$usage}
shift
[[ $seconds =~ ^[0-9]+$ ]] || { echo "$usage" >&2; exit 2; }
build=$root/build/fuzz
if [[ ${1:-} == --build ]]; then
  build=${2:?$usage}
  shift 2
fi
command -v clang++-19 >/dev/null || {
  echo "run_fuzzers.sh: clang++-19 is missing; run tools/setup.sh" >&2
  exit 1
}

targets=("$@")
if [[ ${#targets[@]} -eq 0 ]]; then
  for source in "$root"/tests/fuzz/fuzz_*.cc; do
    name=$(basename "$source" .cc)
    targets+=("${name#fuzz_}")
  done
fi
cmake -S "$root" --preset fuzz -B "$build" >/dev/null
cmake --build "$build" --target "${targets[@]/#/fuzz_}"

# Inputs and findings stand here; kept only when something was found.
work=$(mktemp -d "${TMPDIR:-/tmp}/invar-fuzz.XXXXXX")

run_one() {
  local name=$1
  mkdir -p "$work/$name/corpus" "$work/$name/found"
  if [[ -d $root/tests/fuzz/corpus/$name ]]; then
    cp "$root/tests/fuzz/corpus/$name/"* "$work/$name/corpus/"
  fi
  local dictionary=()
  if [[ -f $root/tests/fuzz/$name.dict ]]; then
    dictionary=("-dict=$root/tests/fuzz/$name.dict")
  fi
  local code=0
  ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
    "$build/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=25 -rss_limit_mb=2048 \
    -max_len=16384 -print_final_stats=1 -artifact_prefix="$work/$name/found/" "${dictionary[@]}" \
    "$work/$name/corpus" >"$work/$name/log" 2>&1 || code=$?
  echo "$code" >"$work/$name/code"
}

for name in "${targets[@]}"; do
  while [[ $(jobs -rp | wc -l) -ge 2 ]]; do
    sleep 0.2
  done
  run_one "$name" &
done
wait

failed=0
for name in "${targets[@]}"; do
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$name/log")
  if [[ $(cat "$work/$name/code") -eq 0 && ${runs:-0} -gt 0 ]]; then
    echo "fuzz_$name: ok, $runs runs in $seconds s"
  else
    failed=1
    echo "fuzz_$name: FAILED after ${runs:-?} runs: $(grep -m1 -E 'ERROR:|runtime error|deadly signal|SUMMARY' "$work/$name/log" || tail -1 "$work/$name/log")"
    echo "  log: $work/$name/log"
    for found in "$work/$name/found/"*; do
      [[ -f $found ]] && echo "  again: $build/tests/fuzz/fuzz_$name $found"
    done
  fi
done
if [[ $failed -eq 0 ]]; then
  rm -rf "$work"
fi
exit $failed
