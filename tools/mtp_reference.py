"""The draft heads (MTP) of the hybrid families in NumPy, a token at a time with a cache of their own.

transformers has no such heads, so tests/golden/models takes their logits from here: written from
specs/qwen3_5.md section 10 and specs/nemotron_h.md section 6, all in float64. make_hybrid_goldens.py
compares the layers inside with those of transformers, which can be run on any input.
"""

import numpy as np


def rms_norm(x, gain, eps):
    return x / np.sqrt(np.mean(np.square(x)) + eps) * gain


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


class Attention:
    """Causal attention of one layer, fed token by token; keys and values of earlier ones are kept."""

    def __init__(self, num_heads, num_kv_heads, head_dim):
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, head_dim
        self.keys, self.values = [], []

    def step(self, q, k, v):
        self.keys.append(k)
        self.values.append(v)
        out = []
        for head in range(self.num_heads):
            shared = head * self.num_kv_heads // self.num_heads
            scores = np.array([q[head] @ key[shared] for key in self.keys]) / np.sqrt(self.head_dim)
            weights = np.exp(scores - scores.max())
            weights /= weights.sum()
            out.append(sum(w * value[shared] for w, value in zip(weights, self.values)))
        return np.array(out)


class QwenHead:
    """qwen3_5, qwen3_5_moe and qwen3_next. `weights`: names behind "mtp.", gains without their 1."""

    def __init__(self, config, weights, embedding, lm_head):
        self.c, self.w, self.embedding, self.lm_head = config, weights, embedding, lm_head
        self.attention = Attention(config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"])

    def gain(self, name):
        return 1 + self.w[name + ".weight"]

    def rotate(self, head, position):
        rope = self.c["rope_parameters"]
        half = int(self.c["head_dim"] * rope["partial_rotary_factor"]) // 2
        angle = position * rope["rope_theta"] ** (-np.arange(half) / half)
        turned = (head[:half] + 1j * head[half : 2 * half]) * np.exp(1j * angle)
        return np.concatenate([turned.real, turned.imag, head[2 * half :]])

    def mixer(self, x, position):
        at, eps, dim = "layers.0.self_attn.", self.c["rms_norm_eps"], self.c["head_dim"]
        q, gate = np.split((self.w[at + "q_proj.weight"] @ x).reshape(-1, 2 * dim), 2, axis=1)
        k = (self.w[at + "k_proj.weight"] @ x).reshape(-1, dim)
        v = (self.w[at + "v_proj.weight"] @ x).reshape(-1, dim)
        q = [self.rotate(rms_norm(head, self.gain(at + "q_norm"), eps), position) for head in q]
        k = [self.rotate(rms_norm(head, self.gain(at + "k_norm"), eps), position) for head in k]
        return self.w[at + "o_proj.weight"] @ (self.attention.step(q, k, v) * sigmoid(gate)).reshape(-1)

    def feed_forward(self, x, at="layers.0.mlp."):
        if at + "gate.weight" not in self.w:
            return self.swiglu(x, at)
        scores = self.w[at + "gate.weight"] @ x
        chosen = np.argsort(-scores, kind="stable")[: self.c["num_experts_per_tok"]]
        share = np.exp(scores - scores.max())
        if self.c.get("norm_topk_prob", True):
            share /= share[chosen].sum()
        else:
            share /= share.sum()
        y = sigmoid(self.w[at + "shared_expert_gate.weight"] @ x) * self.swiglu(x, at + "shared_expert.")
        for expert in chosen:
            gate, up = np.split(self.w[at + "experts.gate_up_proj"][expert] @ x, 2)
            y = y + share[expert] * (self.w[at + "experts.down_proj"][expert] @ (silu(gate) * up))
        return y

    def swiglu(self, x, at):
        inner = silu(self.w[at + "gate_proj.weight"] @ x) * (self.w[at + "up_proj.weight"] @ x)
        return self.w[at + "down_proj.weight"] @ inner

    def step(self, hidden, next_token, position):
        """`hidden`: the trunk's at `position`, behind its last norm. -> (logits, hidden of the next draft)."""
        eps = self.c["rms_norm_eps"]
        e = rms_norm(self.embedding[next_token], self.gain("pre_fc_norm_embedding"), eps)
        h = rms_norm(hidden, self.gain("pre_fc_norm_hidden"), eps)
        y = self.w["fc.weight"] @ np.concatenate([e, h])
        y = y + self.mixer(rms_norm(y, self.gain("layers.0.input_layernorm"), eps), position)
        y = y + self.feed_forward(rms_norm(y, self.gain("layers.0.post_attention_layernorm"), eps))
        m = rms_norm(y, self.gain("norm"), eps)
        return self.lm_head @ m, m


class NemotronHead:
    """nemotron_h with the pattern "*E". The last norm is an RMSNorm, as the vendor has it."""

    def __init__(self, config, weights, embedding, lm_head):
        self.c, self.w, self.embedding, self.lm_head = config, weights, embedding, lm_head
        self.attention = Attention(config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"])

    def norm(self, x, name):
        return rms_norm(x, self.w[name + ".weight"], self.c["layer_norm_epsilon"])

    def mixer(self, x):
        q, k, v = ((self.w[f"layers.0.mixer.{n}_proj.weight"] @ x).reshape(-1, self.c["head_dim"]) for n in "qkv")
        return self.w["layers.0.mixer.o_proj.weight"] @ self.attention.step(q, k, v).reshape(-1)

    def feed_forward(self, x, at="layers.1.mixer."):
        share = sigmoid(self.w[at + "gate.weight"] @ x)
        wanted = share + self.w[at + "gate.e_score_correction_bias"]
        chosen = np.argsort(-wanted, kind="stable")[: self.c["num_experts_per_tok"]]
        if self.c["norm_topk_prob"]:
            share = share / (share[chosen].sum() + 1e-20)
        y = self.two_matrices(x, self.w[at + "shared_experts.up_proj.weight"], self.w[at + "shared_experts.down_proj.weight"])
        for expert in chosen:
            up, down = self.w[at + "experts.up_proj"][expert], self.w[at + "experts.down_proj"][expert]
            y = y + self.c["routed_scaling_factor"] * share[expert] * self.two_matrices(x, up, down)
        return y

    @staticmethod
    def two_matrices(x, up, down):
        return down @ np.square(np.maximum(up @ x, 0))

    def step(self, hidden, next_token, position):
        del position  # these layers know no positions
        e = self.norm(self.embedding[next_token], "layers.0.enorm")
        y = self.w["layers.0.eh_proj.weight"] @ np.concatenate([e, self.norm(hidden, "layers.0.hnorm")])
        y = y + self.mixer(self.norm(y, "layers.0.norm"))
        y = y + self.feed_forward(self.norm(y, "layers.1.norm"))
        m = self.norm(y, "layers.1.final_layernorm")
        return self.lm_head @ m, m


def head_of(family, config, weights, embedding, lm_head):
    kind = NemotronHead if family == "nemotron_h" else QwenHead
    return kind(config, {n: w.astype(np.float64) for n, w in weights.items()}, embedding.astype(np.float64),
                lm_head.astype(np.float64))


def run(head, hidden, tokens, first_token, num_drafts):
    """The prompt's pairs (hidden i, token i + 1), then `first_token` behind the last, then drafts of the head's own.

    -> (logits [len(tokens) - 1 + num_drafts, vocab], the token of each row)
    """
    fed = [*tokens[1:], first_token]
    logits, m = [], None
    for position in range(len(tokens) - 1 + num_drafts):
        if position >= len(fed):
            fed.append(int(np.argmax(logits[-1])))
        given = hidden[position] if position < len(hidden) else m
        row, m = head.step(given.astype(np.float64), fed[position], position)
        logits.append(row)
    return np.array(logits), fed
