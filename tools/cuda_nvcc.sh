#!/usr/bin/env bash
# nvcc as the build calls it: fails where ptxas only remarks that it serialized wgmma (C7513, C7514,
# C7518), which costs half the speed of a prefill kernel and no test would notice, or that it
# spilled registers (a few bytes outside the loops are let through).
#
#   INVAR_NVCC=/path/to/nvcc tools/cuda_nvcc.sh <nvcc arguments>
set -uo pipefail
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
"${INVAR_NVCC:-nvcc}" "$@" 2>"$log"
status=$?
cat "$log" >&2
spilled="$(grep -oE '[0-9]+ bytes spill stores' "$log" | awk '$1 > 16' | head -1)"
if [ "$status" -eq 0 ] && { [ -n "$spilled" ] || grep -Eq 'C7513|C7514|C7518' "$log"; }; then
  echo "cuda_nvcc: see above: ptxas serialized wgmma or spilled registers" >&2
  # The output must not look up to date to a second build.
  while [ $# -gt 0 ]; do
    if [ "$1" = -o ]; then rm -f "$2"; fi
    shift
  done
  exit 1
fi
exit "$status"
