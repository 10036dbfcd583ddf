"""Dimensions of published models, for make_random_model.py."""

import dataclasses


@dataclasses.dataclass
class Shape:
    family: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool
    theta: float = 1e6
    context: int = 32768
    eps: float = 1e-6
    window: int = 0


SHAPES = {
    "smollm2-135m": Shape("llama", 576, 1536, 30, 9, 3, 64, 49152, True, 1e5, 8192, 1e-5),
    "smollm2-1.7b": Shape("llama", 2048, 8192, 24, 32, 32, 64, 49152, True, 1.3e5, 8192, 1e-5),
    "llama-3.2-1b": Shape("llama", 2048, 8192, 16, 32, 8, 64, 128256, True, 5e5, 131072, 1e-5),
    "llama-3.1-8b": Shape("llama", 4096, 14336, 32, 32, 8, 128, 128256, False, 5e5, 131072, 1e-5),
    "qwen2.5-0.5b": Shape("qwen2", 896, 4864, 24, 14, 2, 64, 151936, True),
    "qwen2.5-1.5b": Shape("qwen2", 1536, 8960, 28, 12, 2, 128, 151936, True),
    "qwen2.5-7b": Shape("qwen2", 3584, 18944, 28, 28, 4, 128, 152064, False),
    "qwen3-0.6b": Shape("qwen3", 1024, 3072, 28, 16, 8, 128, 151936, True),
    "qwen3-4b": Shape("qwen3", 2560, 9728, 36, 32, 8, 128, 151936, True),
    "qwen3-8b": Shape("qwen3", 4096, 12288, 36, 32, 8, 128, 151936, False),
    "gemma-3-270m": Shape("gemma3", 640, 2048, 18, 4, 1, 256, 262144, True, window=512),
    "gemma-3-1b": Shape("gemma3", 1152, 6912, 26, 4, 1, 256, 262144, True, window=512),
    "gemma-3-4b": Shape("gemma3", 2560, 10240, 34, 8, 4, 256, 262144, True, window=1024),
}
for family in ("llama", "qwen2", "qwen3", "gemma3"):
    window = 64 if family == "gemma3" else 0
    tied = family in ("llama", "gemma3")
    SHAPES[f"tiny-{family}"] = Shape(family, 256, 512, 3, 4, 2, 64, 0, tied, window=window)
