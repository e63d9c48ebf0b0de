"""GGUF files of every family give the logits of the checkpoint that they were made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from outlive.lm.loading import load
from tests.lm.checkpoints import config_of, tensors_of, write_checkpoint
from tests.lm.test_llama import ids_of, logits, relative_error
from tests.lm.tiny import TinyLlama, _add

IDS = ids_of(40, seed=6)
ARCHITECTURES = {
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
}
CHANGES: dict[str, dict[str, Any]] = {
    # What a GGUF file does not state, as its readers take it: the pattern, and the scale of queries.
    "gemma3_text": {"num_hidden_layers": 7, "sliding_window_pattern": 6, "query_pre_attn_scalar": 64},
    # Files with experts have them in every layer, and weights that sum to one.
    "qwen3_moe": {"mlp_only_layers": []},
}


def write_gguf(path: Path, config: dict[str, Any], tensors: dict[str, np.ndarray]) -> Path:
    """The tensors under GGUF's names, experts stacked, the one added to Gemma's norms, as converters do."""
    kind = ARCHITECTURES[config["model_type"]]
    name = gguf.MODEL_ARCH_NAMES[kind]
    writer = gguf.GGUFWriter(path, name)
    for key, value in (_metadata(name, config) | _vocabulary()).items():
        _add(writer, key, value)
    names = gguf.get_tensor_name_map(kind, config["num_hidden_layers"])
    for own, tensor in _stacked(tensors).items():
        stem, _, suffix = own.rpartition(".")
        gemma_norm = kind == gguf.MODEL_ARCH.GEMMA3 and stem.endswith("norm")
        writer.add_tensor(f"{names.get_name(stem)}.{suffix}", tensor + np.float32(1) if gemma_norm else tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _stacked(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    experts: dict[str, list[np.ndarray]] = {}
    plain = {}
    for name, tensor in tensors.items():
        block, middle, rest = name.partition(".mlp.experts.")
        if middle:
            experts.setdefault(f"{block}.mlp.experts.{rest.partition('.')[2]}", []).append(tensor)
        else:
            plain[name] = tensor
    return plain | {name: np.stack(parts) for name, parts in experts.items()}


def _metadata(name: str, config: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": config["rope_theta"],
    }
    if "head_dim" in config:
        values |= {"attention.key_length": config["head_dim"], "attention.value_length": config["head_dim"]}
    if "num_experts" in config:
        values |= {"expert_count": config["num_experts"], "expert_used_count": config["num_experts_per_tok"]}
        values["expert_feed_forward_length"] = config["moe_intermediate_size"]
    if "sliding_window" in config:
        values |= {"attention.sliding_window": config["sliding_window"]}
        values |= {"rope.scaling.type": "linear", "rope.scaling.factor": config["rope_scaling"]["factor"]}
    return {f"{name}.{key}": value for key, value in values.items()}


def _vocabulary() -> dict[str, Any]:
    return {key: value for key, value in TinyLlama().default_metadata().items() if key.startswith("tokenizer.")}


@pytest.mark.parametrize("family", ARCHITECTURES)
def test_a_gguf_file_gives_the_logits_of_its_checkpoint(tmp_path, family):
    config = config_of(family) | CHANGES.get(family, {})
    tensors = tensors_of(config, seed=3)
    folder = write_checkpoint(
        tmp_path / "m", config=config, tensors=dict.fromkeys(tensors_of(config_of("llama"))) | tensors
    )
    model = load(write_gguf(tmp_path / "m.gguf", config, tensors))
    expected = logits(load(folder), IDS, [40])
    assert relative_error(logits(model, IDS, [40]), expected) < 1e-5
    assert relative_error(logits(model, IDS, [1] * 40), expected) < 1e-4
