"""Qwen 3, dense and with experts: no biases, but queries and keys are normalized head by head before they turn."""

from __future__ import annotations

from outlive.lm.errors import ModelError
from outlive.lm.families.sizes import config_sizes, gguf_sizes
from outlive.lm.families.transformer import ExpertsConfig, TransformerConfig
from outlive.lm.metadata import Metadata


def from_gguf(metadata: Metadata) -> TransformerConfig:
    return TransformerConfig(**gguf_sizes(metadata, "qwen3"), query_key_norm=True, attention_bias=False)


def from_config(config: Metadata) -> TransformerConfig:
    sizes = config_sizes(config, "qwen3", rope_base=1_000_000.0)
    return TransformerConfig(**sizes, query_key_norm=True, attention_bias=config.flag("attention_bias", False))


def moe_from_gguf(metadata: Metadata) -> TransformerConfig:
    sizes = gguf_sizes(metadata, "qwen3moe")
    experts = ExpertsConfig(
        count=metadata.count("qwen3moe.expert_count", maximum=1 << 16),
        per_token=metadata.count("qwen3moe.expert_used_count", maximum=1 << 16),
        hidden_dims=metadata.count("qwen3moe.expert_feed_forward_length"),
        normalized=True,
        layers=frozenset(range(sizes["layers"])),
    )
    return TransformerConfig(**sizes, query_key_norm=True, attention_bias=False, experts=experts)


def moe_from_config(config: Metadata) -> TransformerConfig:
    sizes = config_sizes(config, "qwen3_moe", rope_base=1_000_000.0)
    dense = config.value("mlp_only_layers") or []
    if not isinstance(dense, list) or not all(type(layer) is int for layer in dense):
        raise ModelError(f"{config.where}: mlp_only_layers is no list of integers")
    step = config.count("decoder_sparse_step", 1)
    experts = ExpertsConfig(
        count=config.count("num_experts", maximum=1 << 16),
        per_token=config.count("num_experts_per_tok", maximum=1 << 16),
        hidden_dims=config.count("moe_intermediate_size"),
        normalized=config.flag("norm_topk_prob", False),
        layers=frozenset(n for n in range(sizes["layers"]) if n not in dense and (n + 1) % step == 0),
    )
    biased = config.flag("attention_bias", False)
    return TransformerConfig(**sizes, query_key_norm=True, attention_bias=biased, experts=experts)
