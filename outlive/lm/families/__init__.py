"""Model families, one file each, found by the architecture that a file states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import outlive.core as mx
from outlive.lm.cache import KVCache, LayerCache
from outlive.lm.errors import ModelError
from outlive.lm.metadata import Metadata
from outlive.lm.weights import Weights


class Network(Protocol):
    """What generation needs of a family.

    ``decode_steps`` is empty at first; :mod:`outlive.lm.decoding` keeps its compiled steps there, by temperature.
    """

    context_length: int
    vocabulary_size: int
    decode_steps: dict[float, Callable]

    def make_cache(self) -> list[KVCache]:
        """An empty cache, one entry a layer."""
        ...

    def hidden(self, ids: mx.array, cache: Sequence[LayerCache]) -> mx.array:
        """Token ids (batch, tokens) to final hidden states (batch, tokens, dims); appends to the cache."""
        ...

    def logits(self, hidden: mx.array) -> mx.array:
        """Hidden states (..., dims) to float logits (..., vocabulary)."""
        ...


def _llama(metadata: Metadata, weights: Weights) -> Network:
    from outlive.lm.families.llama import Llama, LlamaConfig

    return Llama(LlamaConfig.from_metadata(metadata), weights)


FAMILIES: dict[str, Callable[[Metadata, Weights], Network]] = {"llama": _llama}


def find(metadata: Metadata) -> Callable[[Metadata, Weights], Network]:
    """The family of the architecture that ``metadata`` states.

    Raises:
        ModelError: if no family serves it.
    """
    architecture = metadata.text("general.architecture")
    family = FAMILIES.get(architecture)
    if family is None:
        known = ", ".join(sorted(FAMILIES))
        raise ModelError(f"{metadata.where} holds a model of the architecture {architecture!r}; supported are: {known}")
    return family
