#!/usr/bin/env bash
# Installs what this machine lacks for a task, and says what it does. May run any number of times.
#
# usage: tools/setup.sh demo|serve|test|clients|arm|lint|page|all
#
# Debian packages come through apt (as root, or with sudo); Python packages go into .venv/ in the
# source tree, pinned in tools/requirements-*.txt, and npm's into web/node_modules, pinned in
# web/package-lock.json. Nothing else on the machine is changed.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "setup: $*" >&2; }
die() { say "$*"; exit 1; }

# For every task: it may be the first one on this machine.
common_packages=(make git ca-certificates python3 python3-venv)
demo_packages=("${common_packages[@]}" g++ cmake ninja-build pkg-config nlohmann-json3-dev libssl-dev
  libcurl4-openssl-dev libpcre2-dev libedit-dev libcli11-dev)
# The command whole, which has the server.
command_packages=("${demo_packages[@]}" libboost1.81-dev)
lint_packages=("${common_packages[@]}" clang-format-19 shellcheck)
test_packages=("${command_packages[@]}" curl ccache libgtest-dev libgmock-dev clang-19
  libclang-rt-19-dev systemd)
arm_packages=("${common_packages[@]}" g++-aarch64-linux-gnu qemu-user googletest nlohmann-json3-dev
  cmake ninja-build ccache)

# Node.js and npm may have come from elsewhere, and then do not go together with Debian's.
node_packages=()
command -v npm > /dev/null || node_packages=(nodejs npm)
# What the web page is built with: `make serve` and an installed command have it.
serve_packages=("${command_packages[@]}" "${node_packages[@]}")
# What it is linted and tested with; the rest does without.
page_packages=("${common_packages[@]}" "${node_packages[@]}" chromium chromium-sandbox fonts-dejavu-core)

case "${1:-}" in
  demo) packages=("${demo_packages[@]}") requirements=() ;;
  serve) packages=("${serve_packages[@]}") requirements=() ;;
  test) packages=("${test_packages[@]}") requirements=(tools/requirements-test.txt) ;;
  clients) packages=("${test_packages[@]}" "${node_packages[@]}") requirements=() ;;
  arm) packages=("${arm_packages[@]}") requirements=() ;;
  lint) packages=("${lint_packages[@]}") requirements=(tools/requirements-lint.txt) ;;
  page) packages=("${page_packages[@]}") requirements=() ;;
  all)
    packages=("${test_packages[@]}" "${arm_packages[@]}" "${lint_packages[@]}" "${page_packages[@]}")
    requirements=(tools/requirements-test.txt tools/requirements-lint.txt)
    ;;
  *) die "usage: tools/setup.sh demo|serve|test|clients|arm|lint|page|all" ;;
esac

# ---- Debian packages -------------------------------------------------------------------------------

installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }

missing=()
for package in "${packages[@]}"; do
  installed "$package" || missing+=("$package")
done

if ((${#missing[@]} > 0)); then
  command -v apt-get > /dev/null ||
    die "needs these Debian packages, and apt-get is not here: ${missing[*]}"
  as_root=()
  if ((EUID != 0)); then
    command -v sudo > /dev/null || die "run as root or install sudo; missing: ${missing[*]}"
    as_root=(sudo)
  fi
  export DEBIAN_FRONTEND=noninteractive
  say "updating the package lists"
  "${as_root[@]}" apt-get update -qq > /dev/null
  # clang 19 is in Debian 12 itself; a machine whose lists lack it says so here.
  say "installing ${missing[*]}"
  "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
fi

# ---- Python packages -------------------------------------------------------------------------------

# Without pip it is one that was not finished.
if [[ ! -x .venv/bin/pip ]]; then
  say "making .venv"
  # Debian's own python3 first: a python3 of pyenv or conda may lack ensurepip.
  /usr/bin/python3 -m venv .venv > /dev/null 2>&1 || python3 -m venv .venv >&2 || {
    rm -rf .venv
    die "no .venv could be made with $(command -v python3)"
  }
fi
for file in "${requirements[@]}"; do
  stamp=".venv/.installed-$(basename "$file")-$(sha256sum "$file" | cut -c1-16)"
  if [[ ! -e "$stamp" ]]; then
    say "installing $file into .venv"
    .venv/bin/python -m pip install -q --disable-pip-version-check -r "$file"
    touch "$stamp"
  fi
done

# Schemas to test constraints with: data in packages, kept as they come.
if [[ "$1" == test || "$1" == all ]]; then
  file=tools/requirements-schemas.txt
  stamp=".cache/json-schemas/.fetched-$(sha256sum "$file" | cut -c1-16)"
  if [[ ! -e "$stamp" ]]; then
    say "fetching the packages of $file into .cache/json-schemas"
    .venv/bin/python -m pip download -q --disable-pip-version-check --no-deps -d .cache/json-schemas -r "$file"
    touch "$stamp"
  fi
fi

# ---- npm packages -----------------------------------------------------------------------------------

has_page_tools() { command -v node > /dev/null && command -v npm > /dev/null; }

if [[ "$1" =~ ^(test|lint|page|all)$ ]] && has_page_tools; then
  if ! node web/packages.mjs --dev; then
    lacking="npm packages are missing: the web page can be neither linted nor tested"
    if [[ "$1" == page ]]; then die "$lacking"; else say "$lacking"; fi
  fi
fi
say "$1: everything is here"
