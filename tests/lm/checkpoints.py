"""Tiny random checkpoints of every family in Hugging Face's layout: config.json, safetensors, tokenizer.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

from tests.lm.tiny import CONTROL, MERGES, TEMPLATE, TOKENS, VOCABULARY

COMMON = {
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 600,
    "tie_word_embeddings": False,
    "eos_token_id": 2,
    "bos_token_id": 1,
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama"},
    "llama-tied": {"model_type": "llama", "tie_word_embeddings": True, "num_key_value_heads": 4},
    "llama-linear": {"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 4.0}},
    "llama-llama3": {"model_type": "llama", "rope_scaling": {**LLAMA3, "original_max_position_embeddings": 32}},
    "llama-yarn": {
        "model_type": "llama",
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    },
    "llama-dynamic": {"model_type": "llama", "rope_scaling": {"type": "dynamic", "factor": 2.0}},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True, "rope_theta": 1_000_000.0},
    "qwen3": {"model_type": "qwen3", "head_dim": 64, "tie_word_embeddings": True},
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        "head_dim": 32,
        "num_hidden_layers": 3,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 64,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [1],
        "norm_topk_prob": True,
    },
    "gemma3_text": {
        "model_type": "gemma3_text",
        "head_dim": 64,
        "num_hidden_layers": 4,
        "sliding_window": 9,
        "sliding_window_pattern": 3,
        "query_pre_attn_scalar": 48,
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10_000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "tie_word_embeddings": True,
    },
}


def config_of(family: str) -> dict[str, Any]:
    return {**COMMON, **FAMILIES[family]}


def tensors_of(config: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Normal weights with standard deviation 1 / sqrt(inputs), biases where the family has them."""
    rng = np.random.default_rng(seed)
    gemma = config["model_type"] == "gemma3_text"
    dims, hidden, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    head_dims = config.get("head_dim", dims // config["num_attention_heads"])
    queries, keys = config["num_attention_heads"] * head_dims, config["num_key_value_heads"] * head_dims

    def matrix(rows: int, columns: int) -> np.ndarray:
        return rng.normal(0, columns**-0.5, (rows, columns)).astype(np.float32)

    def norm(length: int) -> np.ndarray:
        return rng.normal(0 if gemma else 1, 0.1, length).astype(np.float32)

    tensors = {"model.embed_tokens.weight": rng.normal(0, 1, (vocabulary, dims)).astype(np.float32)}
    for index in range(config["num_hidden_layers"]):
        name = f"model.layers.{index}"
        for which, rows in (("q", queries), ("k", keys), ("v", keys)):
            tensors[f"{name}.self_attn.{which}_proj.weight"] = matrix(rows, dims)
            if config["model_type"] == "qwen2":
                tensors[f"{name}.self_attn.{which}_proj.bias"] = rng.normal(0, 0.5, rows).astype(np.float32)
        tensors[f"{name}.self_attn.o_proj.weight"] = matrix(dims, queries)
        if config["model_type"] in ("qwen3", "qwen3_moe", "gemma3_text"):
            tensors |= {f"{name}.self_attn.{which}_norm.weight": norm(head_dims) for which in "qk"}
        norms = ["input_layernorm", "post_attention_layernorm"]
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"] if gemma else []
        tensors |= {f"{name}.{which}.weight": norm(dims) for which in norms}
        tensors |= _feed_forward(config, index, dims, hidden, matrix)
    tensors["model.norm.weight"] = norm(dims)
    if not config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = matrix(vocabulary, dims)
    return tensors


def _feed_forward(config: dict[str, Any], index: int, dims: int, hidden: int, matrix: Any) -> dict[str, np.ndarray]:
    name = f"model.layers.{index}.mlp"
    if config["model_type"] != "qwen3_moe" or index in config["mlp_only_layers"]:
        blocks = [(name, hidden)]
    else:
        inside = config["moe_intermediate_size"]
        blocks = [(f"{name}.experts.{expert}", inside) for expert in range(config["num_experts"])]
    tensors = {}
    for block, inside in blocks:
        tensors[f"{block}.gate_proj.weight"] = matrix(inside, dims)
        tensors[f"{block}.up_proj.weight"] = matrix(inside, dims)
        tensors[f"{block}.down_proj.weight"] = matrix(dims, inside)
    if len(blocks) > 1:
        tensors[f"{name}.gate.weight"] = matrix(config["num_experts"], dims) * 3
    return tensors


def tokenizer_json() -> str:
    """The vocabulary of :mod:`tests.lm.tiny` as the tokenizers library writes it."""
    merges = [tuple(line.split(" ")) for line in MERGES]
    library = Tokenizer(BPE(vocab={text: index for index, text in enumerate(TOKENS)}, merges=merges))
    library.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    library.decoder = ByteLevelDecoder()
    library.add_tokens([AddedToken(text, special=True, normalized=False) for text in CONTROL])
    return library.to_str()


def write_checkpoint(
    folder: Path,
    family: str = "llama",
    *,
    shards: int = 1,
    config: dict[str, Any] | None = None,
    tensors: dict[str, np.ndarray | None] | None = None,
    seed: int = 0,
) -> Path:
    """A folder; ``config`` and ``tensors`` override entries (None leaves a tensor out)."""
    folder.mkdir(parents=True, exist_ok=True)
    values = config_of(family)
    weights = tensors_of(values, seed) | (tensors or {})
    weights = {name: value for name, value in weights.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(values | (config or {})))
    names = sorted(weights)
    if shards == 1:
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
    else:
        placed = {name: f"model-{index % shards + 1:05}-of-{shards:05}.safetensors" for index, name in enumerate(names)}
        for shard in set(placed.values()):
            save_file({name: weights[name] for name in names if placed[name] == shard}, folder / shard)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": placed}))
    (folder / "tokenizer.json").write_text(tokenizer_json())
    settings = {"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder
