"""Qwen 2 and 2.5: Llama's layers with biases on query, key and value."""

from __future__ import annotations

from outlive.lm.families.sizes import config_sizes, config_windows, gguf_sizes
from outlive.lm.families.transformer import TransformerConfig
from outlive.lm.metadata import Metadata


def from_gguf(metadata: Metadata) -> TransformerConfig:
    return TransformerConfig(**gguf_sizes(metadata, "qwen2"), attention_bias=True)


def from_config(config: Metadata) -> TransformerConfig:
    sizes = config_sizes(config, "qwen2", rope_base=1_000_000.0)
    windows = None
    if config.flag("use_sliding_window", False):
        first = config.count("max_window_layers", sizes["layers"])
        windows = config_windows(config, sizes["layers"], [layer >= first for layer in range(sizes["layers"])])
    return TransformerConfig(**sizes, attention_bias=True, windows=windows)
