#!/usr/bin/env python3
"""Compares the model.gguf files of tests/golden/models with what llama.cpp's converter makes of the same folders.

    tools/check_gguf_layout.py LLAMA_CPP_SOURCE [FOLDER ...]

Every tensor must have the same shape and values, and every key of the converter the same value, but for
general.* and the tokenizer. Needs torch, transformers and numpy; takes gguf from the source tree.
"""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np


def convert(folder, out):
    import gguf
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class

    hparams = ModelBase.load_hparams(folder, False)
    kind = get_model_class(get_model_architecture(hparams, ModelType.TEXT))
    kind.no_mtp = not (folder / "ref_mtp_logits.npy").exists()
    kind.set_vocab = lambda self: self.gguf_writer.add_string("tokenizer.ggml.model", "none")
    kind(folder, gguf.LlamaFileType.ALL_F32, out).write()


def read(path):
    import gguf

    reader = gguf.GGUFReader(path)
    keys = {k: f.contents() for k, f in reader.fields.items() if not k.startswith(("general.", "tokenizer.", "GGUF."))}
    keys = {k: v for k, v in keys.items() if not k.endswith(".vocab_size")}  # theirs come with a tokenizer
    tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).reshape(t.shape[::-1]) for t in reader.tensors}
    return keys, tensors


def compare(folder):
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "converted.gguf"
        convert(folder, out)
        their_keys, their_tensors = read(out)
    our_keys, our_tensors = read(folder / "model.gguf")
    wrong = [f"key {k}: ours {our_keys.get(k)}, theirs {v}" for k, v in their_keys.items() if our_keys.get(k) != v]
    wrong += [f"key {k}: only ours ({v})" for k, v in our_keys.items() if k not in their_keys]
    for name in sorted(their_tensors.keys() | our_tensors.keys()):
        ours, theirs = our_tensors.get(name), their_tensors.get(name)
        if ours is None or theirs is None:
            wrong.append(f"{name}: only {'theirs' if ours is None else 'ours'}")
        elif ours.shape != theirs.shape:
            wrong.append(f"{name}: ours {ours.shape}, theirs {theirs.shape}")
        elif np.abs(ours - theirs).max() > 1e-6:
            wrong.append(f"{name}: differs by {np.abs(ours - theirs).max()}")
    print(f"{folder.name}: {len(their_tensors)} tensors, {len(their_keys)} keys, {len(wrong)} differences")
    for line in wrong:
        print("  " + line)
    return not wrong


def main():
    source, *folders = sys.argv[1:]
    sys.path[:0] = [source, os.path.join(source, "gguf-py")]
    models = Path(__file__).resolve().parent.parent / "tests" / "golden" / "models"
    folders = [Path(f) for f in folders] or [f for f in sorted(models.iterdir()) if (f / "reference.json").exists()]
    return 0 if all([compare(f) for f in folders if (f / "model.gguf").exists()]) else 1


if __name__ == "__main__":
    sys.exit(main())
