# A thin front for CMake presets and tools/. Every target installs what it lacks (tools/setup.sh).
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.PHONY: help demo serve test fast-test client-test arm-test compilers sanitize cuda gpu-test bench format lint install clean

BUILD  := build/release
PYTHON := .venv/bin/python
MODEL  := smollm2-135m-instruct-q4_1.gguf
PREFIX ?= /usr/local
# The demo leaves out the kernels of instruction sets that the CPU could not run.
HAS_AVX512 := $(shell grep -qw avx512_vnni /proc/cpuinfo && echo ON || echo OFF)
HAS_AVXVNNI := $(shell grep -qw avx_vnni /proc/cpuinfo && echo ON || echo OFF)

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' Makefile

demo:  ## build the invar command, fetch SmolLM2-135M-Instruct, answer a prompt
	tools/setup.sh demo
	cmake --preset demo -DINVAR_AVX512=$(HAS_AVX512) -DINVAR_AVXVNNI=$(HAS_AVXVNNI)
	cmake --build --preset demo --target invar_app
	model=$$($(PYTHON) tools/fetch_models.py $(MODEL)) && \
	build/demo/invar run "$$model" --prompt "Why is the sky blue?" --max-tokens 96 \
	  --temperature 0 --stats < /dev/null

serve:  ## build the invar command whole, and serve SmolLM2-135M-Instruct on 127.0.0.1:8080
	tools/setup.sh serve
	cmake --preset install
	cmake --build --preset install --target invar_app
	model=$$($(PYTHON) tools/fetch_models.py $(MODEL)) && build/install/invar serve "$$model"

test:  ## everything that passes without a GPU
	tools/setup.sh test
	$(PYTHON) tools/fetch_models.py > /dev/null
	cmake --preset release
	cmake --build --preset release
	cmake --preset fuzz
	cmake --build --preset fuzz --target fuzzers
	ctest --test-dir $(BUILD) --output-on-failure -j 2

fast-test:  ## a minute of tests: no fuzzing, whole models, tokenizer oracles or driving the command
	tools/setup.sh test
	cmake --preset release
	cmake --build --preset release
	ctest --test-dir $(BUILD) --output-on-failure -j 2 -LE 'slow|fuzz|models|tokenizer|apps|cases'

client-test:  ## the official SDKs, LangChain, Codex and Claude Code against a server of ours
	tools/setup.sh clients
	cmake --preset release
	cmake --build --preset release --target invar_app
	tools/check_clients.sh $(BUILD)/invar

compilers:  ## the frozen bits from GCC -O1 and Clang -O3 too
	tools/setup.sh test
	tools/check_compilers.sh

sanitize:  ## the tests under the address, undefined-behaviour and thread sanitizers
	tools/setup.sh test
	tools/check_sanitizers.sh

arm-test:  ## the AArch64 kernels and the frozen hashes: cross-built, run under qemu
	tools/setup.sh arm
	cmake --preset arm64
	cmake --build --preset arm64
	tools/arm_test.sh build/arm64

cuda:  ## compile the CUDA backend and its tests (needs no GPU)
	tools/setup.sh test
	tools/cuda_toolchain.sh
	cmake --preset cuda
	cmake --build --preset cuda --target cuda_tests cuda_bench

gpu-test: cuda  ## the CUDA tests, on a machine with a GPU
	ctest --test-dir build/cuda --output-on-failure -L gpu

bench:  ## prefill and decode speed of the default model
	tools/setup.sh serve
	cmake --preset install
	cmake --build --preset install --target invar_app
	model=$$($(PYTHON) tools/fetch_models.py $(MODEL)) && build/install/invar bench "$$model"

format:  ## apply clang-format to every source file
	tools/setup.sh lint
	git ls-files '*.cc' '*.h' '*.cu' '*.cuh' | xargs clang-format-19 -i

lint:  ## formatting, include layers, shell and Python scripts, the page's types
	tools/setup.sh lint
	git ls-files '*.cc' '*.h' '*.cu' '*.cuh' | xargs clang-format-19 --dry-run --Werror
	python3 tools/check_includes.py
	git ls-files '*.sh' .ci/run | xargs shellcheck
	git ls-files '*.py' | xargs $(PYTHON) -m ruff check
	if [ -x web/node_modules/.bin/tsc ]; then web/node_modules/.bin/tsc -p web; fi

install:  ## install the command, the library and the CMake package to PREFIX
	tools/setup.sh serve
	cmake --preset install
	cmake --build --preset install
	cmake --install build/install --prefix $(PREFIX)

clean:  ## remove build/
	rm -rf build
