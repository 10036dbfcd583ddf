#!/bin/sh
# Installs libinvar into a temporary folder, builds docs/example against it and lets it answer.
#   tools/check_install.sh [BUILD_FOLDER]     default: build/release
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build/release}
models=${INVAR_MODELS:-${XDG_CACHE_HOME:-$HOME/.cache}/invar/models}
model=$models/smollm2-135m-instruct-q4_1.gguf
if [ ! -f "$model" ]; then
  echo "check_install: $model is missing; run tools/fetch_models.py" >&2
  exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --build "$build" --target invar_shared
cmake --install "$build" --prefix "$work/prefix" --component library
lines=$(wc -l < "$root/docs/example/answer.cc")
if [ "$lines" -ge 40 ]; then
  echo "check_install: docs/example/answer.cc has $lines lines, the limit is 39" >&2
  exit 1
fi
# Warnings are errors: the public headers have to be clean in other people's builds.
cmake -S "$root/docs/example" -B "$work/example" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DCMAKE_CXX_FLAGS="-Wall -Wextra -Wshadow -Wconversion -Werror" > "$work/configure.log" || {
  cat "$work/configure.log"
  exit 1
}
cmake --build "$work/example"
"$work/example/answer" "$model" "Write one sentence about the sea." > "$work/answer"
cat "$work/answer"
"$work/example/answer" "$model" "Write one sentence about the sea." | cmp - "$work/answer"
grep -q "^-- .* tokens, .*token_sha" "$work/answer"
# An error is one line that names the file.
if "$work/example/answer" "$work/no-such-model.gguf" hello 2> "$work/error"; then exit 1; fi
grep -q "no-such-model.gguf" "$work/error"
echo "check_install: ok"
