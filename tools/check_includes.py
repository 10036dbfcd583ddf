#!/usr/bin/env python3
"""Checks that a folder of src/ includes only what stands below it. Prints what disagrees; exit 1.

The order is the one of docs/architecture.md: apps -> server -> engine -> models, tokenizer, cache, sampling
-> ops, weights -> backend -> tensor -> base.
"""
import os
import re
import sys

# folder -> folders that it may include besides itself. include/invar is open to all.
ALLOWED = {
    "base": [],
    "tensor": ["base"],
    "backend": ["tensor", "base"],
    "ops": ["backend", "tensor", "base"],
    "weights": ["tensor", "base"],
    "tokenizer": ["weights", "base"],
    "constraint": ["tokenizer", "base"],
    "models": ["ops", "weights", "backend", "tensor", "base"],
    "cache": ["backend", "tensor", "base"],
    "sampling": ["base"],
    # The public API and what requests need besides it; not the engine's insides.
    "server": ["tokenizer", "sampling", "base"],
    # A test-only engine (docs/scripted-backend.md).
    "scripted": ["engine", "models", "tokenizer", "ops", "weights", "backend", "tensor", "base"],
    "engine": ["models", "tokenizer", "constraint", "cache", "sampling", "ops", "weights", "backend", "tensor", "base"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def problems(root):
    for folder, _, files in os.walk(os.path.join(root, "src")):
        parts = os.path.relpath(folder, os.path.join(root, "src")).split(os.sep)
        if parts[0] not in ALLOWED:
            continue
        for name in sorted(files):
            if not name.endswith((".cc", ".h", ".cu", ".cuh", ".inc")):
                continue
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") as file:
                text = file.read()
            for target in INCLUDE.findall(text):
                pieces = target.split("/")
                where = os.path.relpath(path, root)
                if pieces[0] == "invar":
                    continue
                if len(pieces) == 1:
                    yield f'{where}: "{target}" must be included by its path from src/'
                elif pieces[0] != parts[0] and pieces[0] not in ALLOWED[parts[0]]:
                    yield f'{where}: {parts[0]}/ may not include "{target}"'
                # Backends never see one another.
                elif parts[0] == "backend" == pieces[0] and len(parts) > 1 and len(pieces) > 2 and pieces[1] != parts[1]:
                    yield f'{where}: backend/{parts[1]}/ may not include "{target}"'


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found = list(problems(root))
    for line in found:
        print(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
