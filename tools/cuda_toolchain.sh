#!/usr/bin/env bash
# Installs nvcc 13.0 from the PyPI packages into .cache/cuda (no root, no toolkit) and prints its path.
# For machines that compile the CUDA backend without having a CUDA toolkit, such as CI: compiling
# needs no GPU and no driver. A second run only prints. cmake/InvarCuda.cmake looks there by itself.
#
#   tools/cuda_toolchain.sh [folder]        (default: <repo>/.cache/cuda)
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
folder="${1:-$root/.cache/cuda}"

find_nvcc() { find "$folder" -path '*/nvidia/cu13/bin/nvcc' 2>/dev/null | head -1; }

if [ -z "$(find_nvcc)" ]; then
  python3 -m venv "$folder/venv" >&2
  "$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    'nvidia-cuda-nvcc==13.0.*' 'nvidia-cuda-crt==13.0.*' 'nvidia-cuda-cccl==13.0.*' \
    'nvidia-cuda-runtime==13.0.*' 'nvidia-nvvm==13.0.*' >&2
fi

nvcc="$(find_nvcc)"
if [ -z "$nvcc" ]; then
  echo "cuda_toolchain: the packages are installed in $folder, but no nvidia/cu13/bin/nvcc is there" >&2
  exit 1
fi
# The packages keep libraries in lib/, and nvcc links from lib64/; wheels may lose the execute bit.
home="$(dirname "$(dirname "$nvcc")")"
[ -e "$home/lib64" ] || ln -s lib "$home/lib64"
cudart="$(find "$home/lib" -name 'libcudart.so.*' -printf '%f\n' | sort | head -1)"
[ -e "$home/lib/libcudart.so" ] || [ -z "$cudart" ] || ln -s "$cudart" "$home/lib/libcudart.so"
find "$home/bin" "$home/nvvm/bin" -type f -exec chmod +x {} + 2>/dev/null || true
echo "$nvcc"
