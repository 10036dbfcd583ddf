"""Quantizers that the gguf package lacks, in NumPy: Q4_K and Q6_K rows, and MLX's affine codes.

Plain round-to-nearest, no search: what a test wants is weights in the layout, not the best ones. Layouts
are those of specs/weights.md sections 2 and 3.3.
"""

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

K_BLOCK = 256


def as_bytes(values, dtype):
    values = np.ascontiguousarray(values, dtype)
    return values.view(np.uint8).reshape(len(values), -1)


def rounded_half(values):
    return values.astype(np.float16).astype(np.float32)


def divided(a, b):
    return np.divide(a, b, out=np.zeros_like(a), where=np.broadcast_to(b != 0, a.shape))


def q4_k_blocks(x):
    """x [n, 256] -> [n, 144]: half scale and half minimum, 6-bit ones of 8 runs of 32, codes of 4 bits."""
    runs = x.reshape(-1, 8, 32)
    low = np.minimum(runs.min(-1), 0)
    step = (np.maximum(runs.max(-1), 0) - low) / 15
    d, dmin = rounded_half(step.max(-1, keepdims=True) / 63), rounded_half(-low.min(-1, keepdims=True) / 63)
    scale, minimum = np.clip(np.rint(divided(step, d)), 0, 63), np.clip(np.rint(divided(-low, dmin)), 0, 63)
    codes = np.clip(np.rint(divided(runs + (dmin * minimum)[..., None], (d * scale)[..., None])), 0, 15)
    s, m = scale.astype(np.uint8), minimum.astype(np.uint8)
    packed = np.concatenate([s[:, :4] | (s[:, 4:] >> 4) << 6, m[:, :4] | (m[:, 4:] >> 4) << 6,
                             (s[:, 4:] & 15) | (m[:, 4:] & 15) << 4], axis=1)
    pairs = codes.astype(np.uint8).reshape(-1, 4, 2, 32)
    nibbles = (pairs[:, :, 0] | pairs[:, :, 1] << 4).reshape(-1, 128)
    return np.concatenate([as_bytes(d, "<f2"), as_bytes(dmin, "<f2"), packed, nibbles], axis=1)


def q6_k_blocks(x):
    """x [n, 256] -> [n, 210]: low nibbles, high pairs of bits, signed scales of 16 runs of 16, half scale."""
    runs = x.reshape(-1, 16, 16)
    edge = np.take_along_axis(runs, np.abs(runs).argmax(-1)[..., None], -1)[..., 0]
    step = edge / -32
    d = rounded_half(np.abs(step).max(-1, keepdims=True) / 127)
    scale = np.clip(np.rint(divided(step, d)), -128, 127)
    codes = np.clip(np.rint(divided(runs, (d * scale)[..., None])), -32, 31)
    codes = (codes + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    low = np.stack([codes[:, :, 0] & 15 | (codes[:, :, 2] & 15) << 4, codes[:, :, 1] & 15 | (codes[:, :, 3] & 15) << 4], 2)
    high = sum((codes[:, :, t] >> 4) << (2 * t) for t in range(4))
    return np.concatenate([low.reshape(-1, 128), high.reshape(-1, 64), as_bytes(scale, np.int8), as_bytes(d, "<f2")], axis=1)


def encode_gguf(values, kind):
    """[..., columns] -> the rows' bytes [..., bytes]."""
    blocks = {Type.Q4_K: q4_k_blocks, Type.Q6_K: q6_k_blocks}.get(kind)
    if blocks is None:
        return gguf.quants.quantize(values, kind)
    packed = blocks(np.asarray(values, np.float32).reshape(-1, K_BLOCK))
    return packed.reshape(*values.shape[:-1], -1)


def decode_gguf(packed, kind):
    return gguf.quants.dequantize(packed, kind)


def quantize_affine(w, bits, group_size):
    """MLX's: codes [..., in], scales and biases [..., in / group_size], which are stored rounded."""
    groups = w.reshape(*w.shape[:-1], -1, group_size)
    low, high = groups.min(-1), groups.max(-1)
    scale = np.maximum((high - low) / (2**bits - 1), 1e-7)
    edge = np.where(np.abs(low) > np.abs(high), low, high)
    scale = np.where(np.abs(low) > np.abs(high), scale, -scale)
    steps = np.round(edge / scale)
    scale = np.where(steps != 0, edge / np.where(steps != 0, steps, 1), scale)
    bias = np.where(steps != 0, edge, 0)
    codes = np.clip(np.round((groups - bias[..., None]) / scale[..., None]), 0, 2**bits - 1).astype(np.uint32)
    return codes.reshape(w.shape), scale, bias


def pack_bits(codes, bits):
    """A row is one little-endian bit stream, low bit first, as U32 words."""
    stream = (codes[..., None] >> np.arange(bits, dtype=np.uint32)) & 1
    stream = stream.astype(np.uint8).reshape(*codes.shape[:-1], -1)
    return np.packbits(stream, axis=-1, bitorder="little").view("<u4")
