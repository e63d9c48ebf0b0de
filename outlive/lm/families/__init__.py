"""Model families, one file each, found by the architecture that a file states."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

import outlive.core as mx
from outlive.lm.cache import CacheOptions, KVCache, LayerCache
from outlive.lm.errors import ModelError
from outlive.lm.families.transformer import Transformer, TransformerConfig
from outlive.lm.metadata import Metadata
from outlive.lm.weights import Weights


class Network(Protocol):
    """What generation needs of a family.

    ``decode_steps`` is empty at first; :mod:`outlive.lm.decoding` keeps its compiled steps there, by what they depend on.
    """

    context_length: int
    vocabulary_size: int
    decode_steps: dict[Hashable, Callable]

    def make_cache(self, options: CacheOptions = ...) -> list[KVCache]:
        """An empty cache, one entry a layer."""
        ...

    def hidden(self, ids: mx.array, cache: Sequence[LayerCache]) -> mx.array:
        """Token ids (batch, tokens) to final hidden states (batch, tokens, dims); appends to the cache."""
        ...

    def logits(self, hidden: mx.array) -> mx.array:
        """Hidden states (..., dims) to float logits (..., vocabulary)."""
        ...


# What a file states -> module of the family, and the function there that reads the configuration.
GGUF_FAMILIES = {
    "llama": ("llama", "from_gguf"),
    "qwen2": ("qwen2", "from_gguf"),
    "qwen3": ("qwen3", "from_gguf"),
    "qwen3moe": ("qwen3", "moe_from_gguf"),
    "gemma3": ("gemma3", "from_gguf"),
}
CONFIG_FAMILIES = {
    "llama": ("llama", "from_config"),
    "qwen2": ("qwen2", "from_config"),
    "qwen3": ("qwen3", "from_config"),
    "qwen3_moe": ("qwen3", "moe_from_config"),
    "gemma3_text": ("gemma3", "from_config"),
}


def configuration(families: dict[str, tuple[str, str]], architecture: str, metadata: Metadata) -> TransformerConfig:
    """The checked configuration of a model of ``architecture``.

    Raises:
        ModelError: if no family serves it, or a value is missing or without meaning.
    """
    place = families.get(architecture)
    if place is None:
        known = ", ".join(sorted(families))
        raise ModelError(f"{metadata.where} holds a model of the architecture {architecture!r}; supported are: {known}")
    module = importlib.import_module(f"outlive.lm.families.{place[0]}")
    config: TransformerConfig = getattr(module, place[1])(metadata)
    config.check(metadata.where)
    return config


def build(config: TransformerConfig, weights: Weights) -> Network:
    """The network of a configuration."""
    return Transformer(config, weights)
