"""Gemma 3: layers with a window between layers that see all, norms before and after, queries and keys normalized.

Checkpoints store the weights of norms less one. Embeddings are scaled by the square root of their size, rounded to
bfloat16 as it was in training.
"""

from __future__ import annotations

import ml_dtypes

from outlive.lm.families.sizes import config_sizes, config_windows, gguf_sizes
from outlive.lm.families.transformer import TransformerConfig
from outlive.lm.metadata import Metadata
from outlive.lm.rope import RopeConfig

_LOCAL_BASE = 10_000.0
_PATTERN = 6  # the last of so many layers sees all

# What a config.json may leave out: the values of the architecture's published configuration.
_DEFAULTS = {
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-6,
    "sliding_window": 4096,
}


def from_gguf(metadata: Metadata) -> TransformerConfig:
    """Converters to GGUF add the one to the weights of norms."""
    sizes = gguf_sizes(metadata, "gemma3") | {"tied": None}
    window = metadata.count("gemma3.attention.sliding_window")
    base = metadata.positive("gemma3.rope.freq_base_swa", _LOCAL_BASE)
    windows = tuple(None if (layer + 1) % _PATTERN == 0 else window for layer in range(sizes["layers"]))
    if sizes["layers"] == 62:  # the largest of the family alone scales by its width, which the file does not state
        sizes["attention_scale"] = (sizes["dims"] / sizes["heads"]) ** -0.5
    return TransformerConfig(**sizes, **_common(sizes, base), windows=windows)


def from_config(config: Metadata) -> TransformerConfig:
    config = config.with_defaults(_DEFAULTS)
    by_kind = config.section("rope_parameters")
    local_base = config.positive("rope_local_base_freq", _LOCAL_BASE)
    if by_kind is not None and by_kind.has("full_attention"):
        local = by_kind.section("sliding_attention")
        local_base = local.positive("rope_theta", local_base) if local else local_base
        config = config.with_values({"rope_parameters": by_kind.value("full_attention")})
    sizes = config_sizes(config, "gemma3_text", rope_base=1_000_000.0, tied=True)
    sizes["attention_scale"] = config.positive("query_pre_attn_scalar", 256.0) ** -0.5
    sizes["tied"] = sizes["tied"] or None
    pattern = config.count("sliding_window_pattern", config.count("_sliding_window_pattern", _PATTERN))
    slides = [(layer + 1) % pattern != 0 for layer in range(sizes["layers"])]
    windows = config_windows(config, sizes["layers"], slides)
    return TransformerConfig(**sizes, **_common(sizes, local_base), windows=windows, norm_shift=1.0)


def _common(sizes: dict, local_base: float) -> dict:
    return {
        "local_rope": RopeConfig(sizes["rope"].dims, local_base),
        "query_key_norm": True,
        "attention_bias": False,
        "norms_after": True,
        "embedding_scale": float(ml_dtypes.bfloat16(sizes["dims"] ** 0.5)),
        "activation": "gelu",
    }
