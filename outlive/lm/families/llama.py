"""The Llama family: Llama 1 to 3, SmolLM, and whatever else a file calls ``llama``."""

from __future__ import annotations

from outlive.lm.errors import ModelError
from outlive.lm.families.sizes import config_sizes, gguf_sizes
from outlive.lm.families.transformer import TransformerConfig
from outlive.lm.metadata import Metadata


def from_gguf(metadata: Metadata) -> TransformerConfig:
    """Converters to GGUF reorder the rows of the query and key projections of this family so that the two numbers that
    rotate together are neighbours: rotary positions are the interleaved (``traditional``) kind."""
    config = TransformerConfig(**gguf_sizes(metadata, "llama", traditional=True))
    if "llama.expert_count" in metadata and metadata.count("llama.expert_count") > 1:
        raise ModelError(f"{metadata.where}: mixtures of experts are not supported in the llama family")
    return config


def from_config(config: Metadata) -> TransformerConfig:
    return TransformerConfig(**config_sizes(config, "llama"))
