"""Writing any model that can be loaded as an MLX folder: config.json, safetensors, tokenizer; quantized or not.

Tensors go to disk in shards as they are read, so memory holds one shard and what the model itself takes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

import outlive.core as mx
from outlive.io.checkpoint import INDEX, read_json
from outlive.io.errors import UserError
from outlive.lm.errors import ModelError
from outlive.lm.families.transformer import TransformerConfig
from outlive.lm.gguf_tokenizer import GGUFTokenizer
from outlive.lm.layers import QuantizedArrays
from outlive.lm.loading import LoadOptions, load_path
from outlive.lm.model import LanguageModel
from outlive.lm.progress import Progress
from outlive.lm.quantization import Quantization
from outlive.lm.rope import factors_as_scaling
from outlive.lm.weights import Stored

SHARD_BYTES_MAX = 5_000_000_000
_COPIED = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja", "README.md")
_MODEL_TYPES = {"qwen3moe": "qwen3_moe", "gemma3": "gemma3_text"}  # GGUF's names -> those of config.json


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """``quantize`` matrices, or ``dequantize`` those that are; what is not quantized becomes ``dtype`` if given."""

    quantize: Quantization | None = None
    dequantize: bool = False
    dtype: mx.Dtype | None = None


def convert(source: Path, target: Path, options: ConvertOptions, progress: Progress) -> LanguageModel:
    """Write the model at ``source`` to the folder ``target``, which appears whole or not at all.

    Its SHA256SUMS lists the digests of all files. Raises:
        UserError: if ``target`` exists or cannot be written; what loading raises.
    """
    if target.exists():
        raise UserError(f"{target} exists already; remove it or name another folder")
    partial = target.with_name(f".{target.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        writer = _Writer(partial, options)
        model = load_path(source, LoadOptions(mx.float32, options.quantize, writer), progress)
        _finish(source, partial, model, writer)
        os.rename(partial, target)
    except OSError as error:
        raise UserError(
            f"cannot write {target}: {(error.strerror or str(error)).lower()}; choose another place"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return model


@dataclass(slots=True)
class _Writer:
    """Collects tensors and writes a shard when enough came together."""

    folder: Path
    options: ConvertOptions
    placed: dict[str, Path] = field(default_factory=dict)
    total_bytes: int = 0
    ways: dict[str, Quantization] = field(default_factory=dict)
    held: dict[str, mx.array] = field(default_factory=dict)
    shards: list[Path] = field(default_factory=list)
    rope_factors: mx.array | None = None
    config: TransformerConfig = field(init=False)

    def begin(self, config: TransformerConfig) -> None:
        self.config = config

    def add(self, name: str, stored: Stored) -> None:
        if isinstance(stored, QuantizedArrays) and self.options.dequantize:
            stored = stored.dequantized(self.options.dtype or mx.float32)
        if isinstance(stored, QuantizedArrays):
            self.ways[name] = Quantization(stored.group_size, stored.bits, stored.mode)
            for part, array in zip(("weight", "scales", "biases"), stored.arrays, strict=False):
                self._hold(f"{name}.{part}", self._reordered(name, array))
        elif name == "rope.freqs":
            self.rope_factors = stored
        else:
            suffix = "" if name.endswith(".bias") else ".weight"
            stored = self._reordered(name, stored)
            self._hold(name + suffix, stored if self.options.dtype is None else stored.astype(self.options.dtype))

    def flush(self) -> None:
        if not self.held:
            return
        path = self.folder / f"part-{len(self.shards)}"
        save_file({name: np.ascontiguousarray(array) for name, array in self.held.items()}, path, {"format": "mlx"})
        self.placed |= dict.fromkeys(self.held, path)
        self.shards.append(path)
        self.held.clear()

    def _reordered(self, name: str, array: mx.array) -> mx.array:
        """Rows of query and key projections in the order of checkpoints, where numbers that rotate together are not
        neighbours but half a head apart."""
        name = name.removesuffix(".bias")
        if not self.config.rope.traditional or not name.endswith(("self_attn.q_proj", "self_attn.k_proj")):
            return array
        pairs = array.reshape(-1, self.config.head_dims // 2, 2, *array.shape[1:])
        return pairs.swapaxes(1, 2).reshape(array.shape)

    def _hold(self, name: str, array: mx.array) -> None:
        self.held[name] = array
        self.total_bytes += array.nbytes
        if sum(held.nbytes for held in self.held.values()) > SHARD_BYTES_MAX:
            self.flush()


def _finish(source: Path, folder: Path, model: LanguageModel, writer: _Writer) -> None:
    """Give shards their names, and write everything else."""
    writer.flush()
    names = _shard_names(len(writer.shards))
    for path, name in zip(writer.shards, names, strict=True):
        os.rename(path, folder / name)
    if len(names) > 1:
        of_path = dict(zip(writer.shards, names, strict=True))
        index = {name: of_path[path] for name, path in sorted(writer.placed.items())}
        _write_json(folder / INDEX, {"metadata": {"total_size": writer.total_bytes}, "weight_map": index})
    if source.is_dir():
        values = read_json(source / "config.json")
        values = {**values, **values.pop("text_config", {})}
        for name in _COPIED:
            if (source / name).is_file():
                shutil.copyfile(source / name, folder / name)
    else:
        tied = "lm_head.weight" not in writer.placed
        values = config_values(writer.config, writer.rope_factors) | {"tie_word_embeddings": tied}
        _write_tokenizer(folder, model)
    for name in ("quantization", "quantization_config", "vision_config"):
        values.pop(name, None)
    if block := _quantization_block(writer.ways):
        values["quantization"] = values["quantization_config"] = block
    _write_json(folder / "config.json", values)
    _write_digests(folder)


def _shard_names(count: int) -> list[str]:
    if count == 1:
        return ["model.safetensors"]
    return [f"model-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]


def _quantization_block(ways: dict[str, Quantization]) -> dict[str, Any] | None:
    """The most frequent way for all matrices, and the others by name."""
    if not ways:
        return None
    general = Counter(ways.values()).most_common(1)[0][0]
    return general.as_config() | {name: way.as_config() for name, way in ways.items() if way != general}


def config_values(config: TransformerConfig, rope_factors: mx.array | None) -> dict[str, Any]:
    """A configuration that came from a GGUF file, as a config.json states it.

    Raises:
        ModelError: for rotary factors that no known scaling has.
    """
    if config.family == "gemma3" or config.experts is not None or config.rope.dims != config.head_dims:
        raise ModelError(
            f"this GGUF file of the {config.family} family cannot be converted; convert the original model instead"
        )
    values: dict[str, Any] = {
        "model_type": _MODEL_TYPES.get(config.family, config.family),
        "hidden_size": config.dims,
        "intermediate_size": config.hidden_dims,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.key_heads,
        "head_dim": config.head_dims,
        "rms_norm_eps": config.norm_epsilon,
        "vocab_size": config.vocabulary_size,
        "max_position_embeddings": config.context_length,
        "rope_theta": config.rope.base,
    }
    rope = config.rope
    if rope_factors is not None:
        values["rope_scaling"] = factors_as_scaling(rope, np.array(rope_factors, np.float64))
        if values["rope_scaling"] is None:
            raise ModelError(
                "the file's rotary factors are those of no known scaling; convert the original model instead"
            )
    elif rope.kind != "default":
        original = {"original_max_position_embeddings": rope.original_context}
        values["rope_scaling"] = {"rope_type": rope.kind, "factor": rope.factor, **original, **dict(rope.parameters)}
    return values


def _write_tokenizer(folder: Path, model: LanguageModel) -> None:
    tokenizer = model.tokenizer
    assert isinstance(tokenizer, GGUFTokenizer)  # only GGUF files come without a tokenizer.json
    (folder / "tokenizer.json").write_text(tokenizer.serialized(), encoding="utf-8")
    settings: dict[str, Any] = {}
    if tokenizer.bos is not None:
        settings["bos_token"] = tokenizer.token_text(tokenizer.bos)
    if tokenizer.eos is not None:
        settings["eos_token"] = tokenizer.token_text(tokenizer.eos)
    if model.chat_template is not None:
        settings["chat_template"] = model.chat_template.source
    _write_json(folder / "tokenizer_config.json", settings)
    _write_json(folder / "generation_config.json", {"eos_token_id": sorted(tokenizer.ends)})


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_digests(folder: Path) -> None:
    lines = []
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")
