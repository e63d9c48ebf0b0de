"""The sizes that all families state, from a GGUF file's metadata and from a config.json."""

from __future__ import annotations

from typing import Any

from outlive.lm.errors import ModelError
from outlive.lm.metadata import Metadata
from outlive.lm.rope import RopeConfig

LAYERS_MAX = 10_000


def gguf_sizes(metadata: Metadata, family: str, *, traditional: bool = False) -> dict[str, Any]:
    """Fields of :class:`~outlive.lm.families.transformer.TransformerConfig` from the keys ``FAMILY.*``."""
    heads = metadata.count(f"{family}.attention.head_count")
    dims = metadata.count(f"{family}.embedding_length")
    head_dims = metadata.count(f"{family}.attention.key_length", dims // heads if heads <= dims else 1)
    if metadata.count(f"{family}.attention.value_length", head_dims) != head_dims:
        raise ModelError(f"{metadata.where}: values and keys of different sizes are not supported")
    rope_dims = metadata.count(f"{family}.rope.dimension_count", head_dims)
    base = metadata.positive(f"{family}.rope.freq_base", 10_000.0)
    return {
        "family": family,
        "layers": metadata.count(f"{family}.block_count", maximum=LAYERS_MAX),
        "dims": dims,
        "hidden_dims": metadata.count(f"{family}.feed_forward_length"),
        "heads": heads,
        "key_heads": metadata.count(f"{family}.attention.head_count_kv", heads),
        "head_dims": head_dims,
        "rope": RopeConfig.from_gguf(metadata, family, rope_dims, base, traditional=traditional),
        "norm_epsilon": metadata.positive(f"{family}.attention.layer_norm_rms_epsilon"),
        "vocabulary_size": len(metadata.texts("tokenizer.ggml.tokens")),
        "context_length": metadata.count(f"{family}.context_length"),
        "attention_scale": head_dims**-0.5,
    }


def config_sizes(config: Metadata, family: str, *, rope_base: float = 10_000.0, tied: bool = False) -> dict[str, Any]:
    """The same from a config.json; ``rope_base`` and ``tied`` are what the family takes where nothing is stated."""
    heads = config.count("num_attention_heads")
    dims = config.count("hidden_size")
    head_dims = config.count("head_dim", dims // heads if heads <= dims else 1)
    context = config.count("max_position_embeddings", 2048)
    scaling = config.section("rope_parameters") or config.section("rope_scaling")
    base = config.positive("rope_theta", scaling.positive("rope_theta", rope_base) if scaling else rope_base)
    rope_dims = max(1, int(head_dims * config.positive("partial_rotary_factor", 1.0)))
    rope = RopeConfig.from_config(config, rope_dims, base, context, scaling)
    return {
        "family": family,
        "layers": config.count("num_hidden_layers", maximum=LAYERS_MAX),
        "dims": dims,
        "hidden_dims": config.count("intermediate_size"),
        "heads": heads,
        "key_heads": config.count("num_key_value_heads", heads),
        "head_dims": head_dims,
        "rope": rope,
        "norm_epsilon": config.positive("rms_norm_eps", 1e-6),
        "vocabulary_size": config.count("vocab_size"),
        "context_length": int(context * rope.factor) if rope.kind == "dynamic" else context,
        "attention_scale": head_dims**-0.5,
        "tied": config.flag("tie_word_embeddings", tied),
    }


def config_windows(config: Metadata, layers: int, slides: list[bool]) -> tuple[int | None, ...] | None:
    """Windows by layer: ``layer_types`` where the file has them, else ``slides``."""
    kinds = config.value("layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != layers:
            raise ModelError(f"{config.where}: layer_types does not have an entry for each of {layers} layers")
        unknown = [kind for kind in kinds if kind not in ("sliding_attention", "full_attention")]
        if unknown:
            raise ModelError(f"{config.where}: layers of the type {str(unknown[0])[:40]!r} are not supported")
        slides = [kind == "sliding_attention" for kind in kinds]
    if not any(slides):
        return None
    window = config.count("sliding_window")
    return tuple(window if sliding else None for sliding in slides)
