#!/usr/bin/env python3
"""Makes the checkpoints of the sparse and hybrid families in tests/golden/models, with reference results.

    tools/make_hybrid_goldens.py [--out FOLDER] [NAME ...]

Shapes are in hybrid_shapes.py; files and what to expect of them in tests/golden/README.md. Weights are
seeded and all random, rounded to BF16; logits are those of transformers 5.24 on the CPU (eager attention,
fp32), drafts those of mtp_reference.py. Needs torch, transformers, numpy and gguf.
"""

import argparse
import json
import os
import warnings

import gguf
import numpy as np
import torch
import transformers
from gguf_layout import gguf_tensors, write_gguf
from hf_layout import ARCHITECTURES, file_tensors, keeps_float32, rounded_to_bf16, write_config, write_safetensors
from hybrid_shapes import GOLDENS, VOCAB_SIZE
from model_parameters import mtp_parameters, parameters
from mtp_reference import head_of, run

NUM_TOKENS, PREFILL, CONTINUATION, NUM_DRAFTS = 75, 40, 200, 4
DISTINCT, MARGIN = 12, 1e-3
CONFIGS = {"qwen3_moe": "Qwen3MoeConfig", "qwen3_5": "Qwen3_5TextConfig", "qwen3_5_moe": "Qwen3_5MoeTextConfig",
           "qwen3_next": "Qwen3NextConfig", "nemotron_h": "NemotronHConfig"}


def make_model(family, config):
    config = getattr(transformers, CONFIGS[family])(**config)
    model = getattr(transformers, ARCHITECTURES[family])._from_config(config, dtype=torch.float32, attn_implementation="eager")
    return model.eval()


def config_dict(model, golden):
    """Under the names that publishers use, where transformers has others."""
    return model.config.to_dict() | golden.config | {"num_hidden_layers": len(model.model.layers)}


def random_values(rng, name, shape, mean=0.0, spread=0.2):
    """Nothing is 0 or 1, as in a fresh model: that would hide mistakes. `mean`: that of a fresh gain."""
    values = rng.standard_normal(shape).astype(np.float32)
    if name.endswith("A_log"):
        return np.log(4 * rng.random(shape) + 0.05).astype(np.float32)
    if name.endswith("dt_bias"):
        values[0] = -9  # a step below the published time_step_min
        return values
    if name.endswith(".D"):
        return values
    if "conv1d.weight" in name:
        return 0.5 * values
    if "q_norm" in name or "k_norm" in name:
        return 0.7 * values + mean  # scores that differ: a flat attention lets greedy replies run in a circle
    if "norm" in name:
        return 0.3 * values + mean
    if "e_score" in name:
        return 0.3 * values
    if "embed" in name:
        return 0.5 * values
    return spread * values


def randomize(model, seed, ssm_float32, spread=0.2):
    rng = np.random.default_rng(seed)
    buffers = [b for b in model.named_buffers() if "e_score" in b[0]]
    with torch.no_grad():
        for name, parameter in [*model.named_parameters(), *buffers]:
            values = random_values(rng, name, tuple(parameter.shape), float(parameter.mean().round()), spread)
            if not keeps_float32(name, ssm_float32):
                values = rounded_to_bf16(values)
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(values)))
    return rng


def mtp_layers_of_transformers(golden, mtp):
    """The head's own layers as a model of transformers, to be fed what comes out of fc."""
    config = dict(golden.config)
    if golden.family == "nemotron_h":
        config["hybrid_override_pattern"] = "*E"
    else:
        config |= {"num_hidden_layers": 1, "layer_types": ["full_attention"]}
        if "mlp_only_layers" in config:
            config["mlp_only_layers"] = []
    model = make_model(golden.family, config)
    state = {n: torch.zeros(p.shape) for n, p in model.state_dict().items() if not n.startswith("model.layers.")}
    inside = {"norm.weight": "norm.weight", "layers.1.final_layernorm.weight": "norm_f.weight"}
    for name, values in mtp.items():
        name = inside.get(name, name)
        if "model." + name in model.state_dict():
            state["model." + name] = torch.from_numpy(values)
    model.load_state_dict(state, strict=True)
    return model.model


def check_mtp(golden, mtp, embedding, lm_head, hidden, fed, logits):
    """The first rows once more, by the layers of transformers. -> max difference"""
    eps = golden.config.get("rms_norm_eps") or golden.config["layer_norm_epsilon"]
    qwen = golden.family != "nemotron_h"

    def norm(x, name):
        return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * (mtp[name + ".weight"] + (1 if qwen else 0))

    count = len(hidden)
    e = norm(embedding[fed[:count]], "pre_fc_norm_embedding" if qwen else "layers.0.enorm")
    h = norm(hidden, "pre_fc_norm_hidden" if qwen else "layers.0.hnorm")
    y = np.concatenate([e, h], -1) @ mtp["fc.weight" if qwen else "layers.0.eh_proj.weight"].T
    with torch.no_grad():
        m = mtp_layers_of_transformers(golden, mtp)(inputs_embeds=torch.from_numpy(y)[None], use_cache=False)
    return float(np.abs(m.last_hidden_state[0].numpy() @ lm_head.T - logits[:count]).max())


def references(model, tokens):
    """Logits and normed hidden states of the prompt, the same step by step, and a greedy continuation."""
    with torch.no_grad():
        hidden = model.model(torch.tensor([tokens]), use_cache=False).last_hidden_state[0]
        logits = model.lm_head(hidden)
        out = model(torch.tensor([tokens[:PREFILL]]), use_cache=True)
        steps, cache = [out.logits[0]], out.past_key_values
        for token in tokens[PREFILL:]:
            steps.append(model(torch.tensor([[token]]), past_key_values=cache, use_cache=True).logits[0])
        greedy, margin = [], np.inf
        for _ in range(CONTINUATION):
            best = torch.topk(steps[-1][-1], 2)
            margin = min(margin, float(best.values[0] - best.values[1]))
            greedy.append(int(best.indices[0]))
            steps.append(model(torch.tensor([[greedy[-1]]]), past_key_values=cache, use_cache=True).logits[0])
        stepwise = torch.cat(steps)
        whole = model(torch.tensor([tokens + greedy]), use_cache=False).logits[0]
    return logits.numpy(), hidden.numpy(), dict(
        greedy=greedy, greedy_min_margin=margin,
        stepwise_max_difference=float((stepwise[: len(tokens)] - logits).abs().max()),
        continuation_max_difference=float((stepwise - whole).abs().max()))


def good_enough(results):
    """A continuation that says something: not a circle of few ids, and no near tie."""
    return len(set(results["greedy"])) >= DISTINCT and results["greedy_min_margin"] > MARGIN


def make(name, folder, seed):
    golden = GOLDENS[name]
    os.makedirs(folder, exist_ok=True)
    model = make_model(golden.family, golden.config)
    rng = randomize(model, seed, golden.ssm_float32)
    weights = {n: p.detach().numpy() for n, p in model.state_dict().items()}
    config = config_dict(model, golden)
    listed = dict(parameters(golden.family, config))
    if listed != {n: w.shape for n, w in weights.items() if n in listed or not config["tie_word_embeddings"]}:
        raise SystemExit(f"{name}: model_parameters.py lists other parameters than transformers")
    tokens = [int(t) for t in np.random.default_rng(100 + golden.seed).integers(0, VOCAB_SIZE, NUM_TOKENS)]
    logits, hidden, results = references(model, tokens)
    figures = {k: v for k, v in results.items() if isinstance(v, float)}
    print(name, "seed", seed, figures, len(set(results["greedy"])), "ids", flush=True)
    if not good_enough(results):
        return False
    results = {"seed": seed, "logits_max": float(np.abs(logits).max()), **results}
    np.save(os.path.join(folder, "ref_logits.npy"), logits)
    np.save(os.path.join(folder, "ref_hidden.npy"), hidden)
    if golden.mtp:
        mtp = {n.removeprefix("mtp."): rounded_to_bf16(random_values(rng, n, s, 1.0 if golden.family == "nemotron_h" else 0.0))
               for n, s in mtp_parameters(golden.family, golden.config)}
        embedding = weights["model.embeddings.weight" if golden.family == "nemotron_h" else "model.embed_tokens.weight"]
        drafts, fed = run(head_of(golden.family, config, mtp, embedding, weights["lm_head.weight"]), hidden, tokens,
                          results["greedy"][0], NUM_DRAFTS)
        results["mtp_tokens"] = fed
        results["mtp_max_difference"] = check_mtp(golden, mtp, embedding, weights["lm_head.weight"], hidden, fed, drafts)
        np.save(os.path.join(folder, "ref_mtp_logits.npy"), drafts.astype(np.float32))
        weights |= {"mtp." + n: w for n, w in mtp.items()}

    tensors = file_tensors(weights, golden.family, golden.nested, golden.fused_experts, config["tie_word_embeddings"])
    if golden.nested:
        tensors["model.visual.blocks.0.attn.proj.weight"] = rounded_to_bf16(rng.standard_normal((24, 24)))
    write_safetensors(os.path.join(folder, "model.safetensors"), tensors, golden.ssm_float32)
    write_config(folder, golden.family, config, golden.published, golden.nested)
    if golden.gguf:
        write_gguf(os.path.join(folder, "model.gguf"), golden.family, config, gguf_tensors(weights, golden.family, config),
                   lambda name, values: gguf.GGMLQuantizationType.BF16, gguf.quants.quantize)
    with open(os.path.join(folder, "tokens.json"), "w", encoding="utf-8") as out:
        json.dump(tokens, out)
    with open(os.path.join(folder, "reference.json"), "w", encoding="utf-8") as out:
        json.dump(results, out)
    print(name, results.get("mtp_max_difference"), flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--out", default=os.path.join(here, "tests", "golden", "models"))
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: {', '.join(GOLDENS)}")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    for name in args.names or GOLDENS:
        seeds = range(GOLDENS[name].seed, 1000, 100)
        if not any(make(name, os.path.join(args.out, name), seed) for seed in seeds):
            raise SystemExit(f"{name}: no seed gives a continuation worth a test")


if __name__ == "__main__":
    main()
