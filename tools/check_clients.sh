#!/usr/bin/env bash
# Real clients as black boxes against a server that says what its script says (tests/clients): the
# official SDKs in Python and Node, LangChain, Codex and Claude Code.
#   tools/check_clients.sh [INVAR] [TESTS...]    default: build/release/invar, all tests
# Needs python3 with venv, node and npm; the clients are fetched into .cache/clients, pinned.
set -euo pipefail
cd "$(dirname "$0")/.."

invar=$(realpath "${1:-build/release/invar}")
shift || true
cache=$PWD/.cache/clients
mkdir -p "$cache/node" "$cache/scratch"

if ! cmp -s tests/clients/requirements.txt "$cache/requirements.txt"; then
  rm -rf "$cache/venv"
  python3 -m venv "$cache/venv"
  "$cache/venv/bin/pip" install --quiet --disable-pip-version-check -r tests/clients/requirements.txt
  cp tests/clients/requirements.txt "$cache/requirements.txt"
fi
if ! cmp -s tests/clients/package-lock.json "$cache/package-lock.json"; then
  cp tests/clients/package.json tests/clients/package-lock.json tests/clients/.npmrc "$cache/node/"
  # One install script is needed: it puts Claude Code's program in its place.
  (cd "$cache/node" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error > /dev/null &&
    node node_modules/@anthropic-ai/claude-code/install.cjs)
  cp tests/clients/package-lock.json "$cache/package-lock.json"
fi

cd tests/clients
export INVAR_BIN=$invar CLIENTS_NODE_MODULES=$cache/node/node_modules CLIENTS_SCRATCH=$cache/scratch
if (($#)); then
  "$cache/venv/bin/python" -m unittest "$@"
else
  "$cache/venv/bin/python" -m unittest discover -s .
fi
