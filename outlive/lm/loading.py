"""From a file or folder to a language model: configuration, weights, tokenizer and chat template."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import outlive.core as mx
from outlive.io.checkpoint import Checkpoint, read_json
from outlive.io.gguf import GGUFFile
from outlive.lm import DEFAULT_SOURCE, families
from outlive.lm.chat_template import ChatTemplate
from outlive.lm.checkpoint_source import CheckpointSource
from outlive.lm.errors import ModelError
from outlive.lm.families import Network
from outlive.lm.families.transformer import TransformerConfig
from outlive.lm.gguf_source import GGUFSource
from outlive.lm.gguf_tokenizer import GGUFTokenizer
from outlive.lm.json_tokenizer import JSONTokenizer
from outlive.lm.metadata import Metadata
from outlive.lm.model import LanguageModel
from outlive.lm.progress import Progress, Silent
from outlive.lm.quantization import Quantization, QuantizationBlock
from outlive.lm.sources import is_at_hand, resolve
from outlive.lm.weights import Stored, TensorSource, Weights


class Observer(Protocol):
    """Sees a model while it is loaded: a conversion writes what it sees."""

    def begin(self, config: TransformerConfig) -> None: ...

    def add(self, name: str, stored: Stored) -> None:
        """A tensor by its name, without ``.weight``."""
        ...


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How weights are taken: activations of ``dtype``; matrices quantized if asked for."""

    dtype: mx.Dtype
    quantize: Quantization | None = None
    observer: Observer | None = None


def load(
    source: str | os.PathLike[str] = DEFAULT_SOURCE,
    *,
    dtype: mx.Dtype = mx.float32,
    quantize: str | None = None,
    revision: str | None = None,
    progress: Progress | None = None,
) -> LanguageModel:
    """Load a model from ``source`` with activations of ``dtype``.

    ``source`` is the path of a GGUF file or of a folder with config.json and safetensors files, ``pypi:PACKAGE``, or a
    hub repository: ``hf:ORG/NAME`` (or ``ORG/NAME``, where there is no such folder), at ``revision`` if given.
    ``quantize``, such as ``"affine4"``, quantizes matrices while they are read.

    Raises:
        SourceError: if the source cannot be fetched or found.
        FileFormatError: if a file is not well-formed.
        ModelError: if it holds a model that cannot be run.
        PromptError: if there is no such quantization.
    """
    progress = progress or Silent()
    options = LoadOptions(dtype, None if quantize is None else Quantization.parse(quantize))
    told = is_at_hand(source, revision)
    model = load_path(resolve(source, progress, revision=revision), options, progress)
    if not told and model.license:
        progress.note(f"the licence of {model.name}: {model.license}")
    return model


def load_path(path: Path, options: LoadOptions, progress: Progress) -> LanguageModel:
    """The model at a local path."""
    if path.is_file() and path.suffix == ".safetensors":
        path = path.parent
    return _load_folder(path, options, progress) if path.is_dir() else _load_gguf(path, options, progress)


def _load_gguf(path: Path, options: LoadOptions, progress: Progress) -> LanguageModel:
    with GGUFFile(path) as file:
        metadata = Metadata(file.metadata, str(path))
        architecture = metadata.text("general.architecture")
        config = families.configuration(families.GGUF_FAMILIES, architecture, metadata)
        tokenizer = GGUFTokenizer(metadata)
        special = {
            f"{name}_token": tokenizer.token_text(metadata.index(f"tokenizer.ggml.{name}_token_id", tokenizer.size))
            for name in ("bos", "eos")
        }
        template = _template(metadata.text("tokenizer.chat_template", None), str(path), special)
        total = sum(info.nbytes for info in file.tensors.values())
        with progress.stage(f"load {path.name}", total, "bytes") as advance:
            source = GGUFSource(file, architecture, config.layers, advance)
            network, weights = _build(config, source, options)
        weights.finish(architecture)
        weights.note_decoded(progress)
    name = metadata.text("general.name", path.name)
    return LanguageModel(name, metadata.text("general.license", None), network, tokenizer, template)


def _load_folder(folder: Path, options: LoadOptions, progress: Progress) -> LanguageModel:
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} has no config.json; name a folder with one and safetensors files, or a GGUF file")
    values = read_json(folder / "config.json")
    where = Metadata(values, str(folder))
    text = where.section("text_config")  # a model of text and images describes its language model there
    layout = where if text is None else text
    architecture = layout.text("model_type")
    config = families.configuration(families.CONFIG_FAMILIES, architecture, layout)
    settings = _optional_json(folder / "tokenizer_config.json")
    tokenizer = JSONTokenizer(folder, settings, _stated_ends(folder, values, config), config.vocabulary_size)
    template = _template(_template_text(folder, settings), str(folder), _special_tokens(settings))
    block = QuantizationBlock(values.get("quantization"), str(folder))
    _refuse_other_quantization(folder, values)
    with Checkpoint(folder) as checkpoint:
        rename = _renaming(checkpoint, multimodal=text is not None)
        needed = {name for name in checkpoint.tensors if not _not_needed(name, config)}
        total = sum(checkpoint.tensors[name].nbytes for name in needed)
        with progress.stage(f"load {folder.name}", total, "bytes") as advance:
            source = CheckpointSource(checkpoint, block, advance, needed, rename)
            network, weights = _build(config, source, options)
        weights.finish(architecture)
    return LanguageModel(folder.name, _license(folder), network, tokenizer, template)


def _build(config: TransformerConfig, source: TensorSource, options: LoadOptions) -> tuple[Network, Weights]:
    if options.observer is not None:
        options.observer.begin(config)
    seen = None if options.observer is None else options.observer.add
    weights = Weights(source, options.dtype, options.quantize, seen)
    return families.build(config, weights), weights


def _renaming(checkpoint: Checkpoint, *, multimodal: bool) -> Callable[[str], str]:
    """From a language model's names to those in a checkpoint, of which it may be one part."""
    if multimodal and any(name.startswith("language_model.") for name in checkpoint.tensors):
        return lambda name: f"language_model.{name}"
    if multimodal and any(name.startswith("model.language_model.") for name in checkpoint.tensors):
        return lambda name: name.replace("model.", "model.language_model.", 1) if name.startswith("model.") else name
    return lambda name: name


def _not_needed(name: str, config: TransformerConfig) -> bool:
    """Whether a tensor is there without being a parameter of the language model."""
    bare = name.removeprefix("model.").removeprefix("language_model.")
    if bare.startswith(("vision_tower.", "multi_modal_projector.")) or name.endswith("rotary_emb.inv_freq"):
        return True
    return config.tied is True and bare.startswith("lm_head.")  # a second copy of the embedding


def _refuse_other_quantization(folder: Path, values: Mapping[str, Any]) -> None:
    """MLX writes its block twice, under both names; other libraries' blocks have a method and packings of their own."""
    other = values.get("quantization_config")
    method = other.get("quant_method") if isinstance(other, Mapping) else None
    if "quantization" not in values and method is not None:
        raise ModelError(
            f"{folder} is quantized by the method {str(method)[:40]!r}, which is not read; get the unquantized model and "
            "quantize it while loading, or an MLX or GGUF version"
        )


def _stated_ends(folder: Path, values: Mapping[str, Any], config: TransformerConfig) -> frozenset[int]:
    """Ids of ending tokens in generation_config.json and config.json: a number or a list of them."""
    found: set[int] = set()
    for place in (_optional_json(folder / "generation_config.json"), values):
        stated = place.get("eos_token_id")
        for token in stated if isinstance(stated, list) else [stated]:
            if token is None:
                continue
            if type(token) is not int or not 0 <= token < config.vocabulary_size:
                raise ModelError(f"{folder}: eos_token_id is {token!r}, not an index below {config.vocabulary_size}")
            found.add(token)
    return frozenset(found)


def _optional_json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _template_text(folder: Path, settings: Mapping[str, Any]) -> str | None:
    """The chat template: a file of its own, or a text in the tokenizer's settings, or the default one of several."""
    if (own := folder / "chat_template.jinja").is_file():
        return own.read_text(encoding="utf-8", errors="replace")
    found = settings.get("chat_template") or _optional_json(folder / "chat_template.json").get("chat_template")
    if isinstance(found, list):
        named = {entry.get("name"): entry.get("template") for entry in found if isinstance(entry, Mapping)}
        found = named.get("default")
    if found is not None and not isinstance(found, str):
        raise ModelError(f"{folder}: its chat template is no text; get the folder anew")
    return found


def _special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    special = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        token = settings.get(name)
        text = token.get("content") if isinstance(token, Mapping) else token
        if isinstance(text, str):
            special[name] = text
    return special


def _license(folder: Path) -> str | None:
    """What the front matter of the folder's README states."""
    readme = folder / "README.md"
    if not readme.is_file():
        return None
    lines = readme.read_text(encoding="utf-8", errors="replace").splitlines()[:200]
    if lines[:1] != ["---"]:
        return None
    for line in lines[1:]:
        if line == "---":
            return None
        if line.startswith("license:"):
            return line.removeprefix("license:").strip().strip("'\"")[:100] or None
    return None


def _template(source: str | None, where: str, special: Mapping[str, str]) -> ChatTemplate | None:
    return None if source is None else ChatTemplate(source, where, special)
