#!/usr/bin/env bash
# Runs the cross-built tests of the AArch64 kernels under qemu's user emulation. Bits are what counts:
# the frozen hashes are those of every other instruction set. Speed under qemu says nothing.
#
# usage: tools/arm_test.sh BUILD_FOLDER
set -euo pipefail
tests=${1:?usage: tools/arm_test.sh BUILD_FOLDER}/tests

# run CPU PROGRAM FILTER: `max` has dotprod and i8mm, `neoverse-n1` dotprod only, `cortex-a57` neither.
run() {
  echo "arm_test: $2 on $1: $3" >&2
  QEMU_CPU=$1 qemu-aarch64 -L /usr/aarch64-linux-gnu "$tests/$2" --gtest_brief=1 --gtest_filter="$3"
}

# Every kernel against the arithmetic from the file's blocks, and all sets against each other.
run max backend_tests \
  'CpuIsa.*:CpuBackend.*:CpuLinear.*:*LinearFormat.Equals*:CpuRowOps.*:CpuRmsNorm.*:CpuHeadRmsNorm.*:CpuRope.Bits*:CpuAttention.*InstructionSet*:CpuRecurrent*:CpuShortConv.*:CpuGatedNorm.*:CpuGates.*:GatedDelta.*:Ssd.*'
run max backend_tests 'CpuExperts.*:Backends/Moe.*:*CpuMoe.Pairs*/Q4_0:*CpuMoe.Pairs*/Q8_0:*CpuMoe.Router*/BF16'
run max base_tests 'Math.*:Hash.*'
run max models_tests 'Quick/*HashTest.*:-*smol*'
run neoverse-n1 models_tests 'Quick/GoldenHashTest.*:-*smol*'
run neoverse-n1 backend_tests 'CpuIsa.*:CpuBackend.*'
run cortex-a57 backend_tests 'CpuIsa.*:CpuBackend.*:CpuLinear.*'
