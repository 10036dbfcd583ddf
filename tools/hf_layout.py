"""How a model of transformers is laid out in published checkpoints: tensor names, config.json, dtypes.

transformers 5 keeps experts stacked in memory whatever the files look like, and calls nemotron_h's trunk
"model" where the files say "backbone".
"""

import json
import os
import struct

import numpy as np

ARCHITECTURES = {"qwen3_moe": "Qwen3MoeForCausalLM", "qwen3_5": "Qwen3_5ForCausalLM", "qwen3_5_moe": "Qwen3_5MoeForCausalLM",
                 "qwen3_next": "Qwen3NextForCausalLM", "nemotron_h": "NemotronHForCausalLM", "llama": "LlamaForCausalLM",
                 "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "gemma3": "Gemma3ForCausalLM"}


def bf16_bits(values):
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def rounded_to_bf16(values):
    return (bf16_bits(values).astype(np.uint32) << 16).view(np.float32)


def split_experts(name, values):
    """A stacked tensor of experts -> a (name, matrix) per expert; any other as it is."""
    at, _, kind = name.rpartition(".")
    if not at.endswith(".experts"):
        yield name, values
        return
    for expert, matrix in enumerate(values):
        if kind == "gate_up_proj":
            for part, half in zip(("gate_proj", "up_proj"), np.split(matrix, 2)):
                yield f"{at}.{expert}.{part}.weight", half
        else:
            yield f"{at}.{expert}.{kind}.weight", matrix


def file_tensors(weights, family, nested=False, fused_experts=False, tied=False):
    """`weights`: transformers' names (and "mtp."). -> {name in the file: values}."""
    result = {}
    for name, values in weights.items():
        if name == "lm_head.weight" and tied:
            continue
        if name.startswith("model."):
            rest = name.removeprefix("model.")
            name = "backbone." + rest if family == "nemotron_h" else ("model.language_model." if nested else "model.") + rest
        result |= {name: values} if fused_experts else dict(split_experts(name, values))
    return result


def keeps_float32(name, ssm_float32):
    if name.endswith("e_score_correction_bias"):
        return True
    return ssm_float32 and (name.endswith("A_log") or name.endswith("linear_attn.norm.weight") or name.endswith("mixer.D"))


def write_safetensors(path, tensors, ssm_float32=False):
    """BF16, but for the few that publishers keep in F32. Values must be representable."""
    header, data, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name in sorted(tensors):
        values = np.ascontiguousarray(tensors[name], np.float32)
        wide = keeps_float32(name, ssm_float32)
        if not wide and not np.array_equal(rounded_to_bf16(values), values):
            raise ValueError(f"{name} does not fit BF16")
        raw = values.astype("<f4").tobytes() if wide else bf16_bits(values).tobytes()
        header[name] = {"dtype": "F32" if wide else "BF16", "shape": list(values.shape), "data_offsets": [at, at + len(raw)]}
        data.append(raw)
        at += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def config_for(family, config, published, nested):
    """config.json as publishers write it: `config` of transformers, its keys replaced by those in `published`."""
    of_transformers = ("transformers_version", "architectures", "dtype", "num_local_experts", "output_hidden_states",
                       "return_dict", "chunk_size_feed_forward", "is_encoder_decoder", "id2label", "label2id", "problem_type",
                       "_name_or_path", "output_attentions")
    text = {k: v for k, v in config.items() if k not in of_transformers}
    if family == "nemotron_h":
        # Publishers write one of the two spellings of the layers, and an Infinity that is no JSON.
        text.pop("layers_block_type", None)
        text.pop("mtp_layers_block_type", None)
        text.pop("hybrid_override_pattern", None)
        text |= {"time_step_min": 0.001, "time_step_limit": [0.0, float("inf")]}
    text |= {"torch_dtype": "bfloat16"} | published
    architecture = ARCHITECTURES[family]
    if not nested:
        return {"architectures": [architecture]} | text
    text["model_type"] = family + "_text"
    return {"architectures": [architecture.replace("CausalLM", "ConditionalGeneration")], "model_type": family,
            "text_config": text, "tie_word_embeddings": text["tie_word_embeddings"], "image_token_id": 90,
            "vision_config": {"depth": 1, "hidden_size": 24, "model_type": family + "_vision"}}


def write_config(folder, *args):
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as out:
        json.dump(config_for(*args), out, indent=1)
