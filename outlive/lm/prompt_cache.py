"""Keys and values of a text so far, reused where the next prompt begins with the same tokens, and kept in files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import save

import outlive.core as mx
from outlive.io.checkpoint import SafetensorsFile
from outlive.io.errors import FileFormatError, UserError
from outlive.io.replace import replace_file
from outlive.lm.cache import EVERYTHING, CacheOptions, KVCache
from outlive.lm.families import Network

FORMAT = "outlive prompt cache 1"


class PromptCache:
    """The caches of all layers with the tokens they stand for.

    Attributes:
        tokens: whose keys and values are there.
        entries: one a layer.
    """

    def __init__(self, network: Network, options: CacheOptions = EVERYTHING) -> None:
        self._network = network
        self.options = options
        self.tokens: list[int] = []
        self.entries: list[KVCache] = self._fresh()

    def prepare(self, ids: Sequence[int]) -> Sequence[int]:
        """Keep what ``ids`` begins with, forget the rest; returns the tokens that are still to be run, at least one."""
        shared = 0
        for ours, theirs in zip(self.tokens, ids[:-1], strict=False):
            if ours != theirs:
                break
            shared += 1
        try:
            for entry in self.entries:
                entry.trim(entry.offset - shared)  # may be one token ahead of ours if a reader stopped early
        except ValueError:  # a window has moved on: what was before the tokens to forget is gone
            shared, self.entries = 0, self._fresh()
        self.tokens = list(ids[:shared])
        return ids[shared:]

    def save(self, path: Path, identity: str) -> None:
        """Write everything to ``path``, whole or not at all; ``identity`` tells the model.

        Raises:
            UserError: if the file cannot be written.
        """
        self.prepare([*self.tokens, 0])  # forgets what was computed ahead
        arrays = {"tokens": np.array(self.tokens, np.int64)}
        for index, entry in enumerate(self.entries):
            for number, array in enumerate(entry.state()):
                arrays[f"{index}.{number}"] = np.array(array)
        settings = json.dumps({"window": self.options.window, "bits": self.options.bits})
        metadata = {"format": FORMAT, "model": identity, "options": settings}
        replace_file(path, save(arrays, metadata))

    @classmethod
    def load(cls, path: Path, network: Network, identity: str, options: CacheOptions) -> PromptCache:
        """What :meth:`save` wrote.

        Raises:
            UserError: if the file cannot be opened, or was written by another model or with other options.
            FileFormatError: if it is not well-formed.
        """
        file = SafetensorsFile(path)
        if file.metadata.get("format") != FORMAT:
            raise FileFormatError(f"{path} is no prompt cache; write one with --save-prompt-cache")
        if file.metadata.get("model") != identity:
            raise UserError(
                f"{path} was written by another model ({file.metadata.get('model')}); write one anew for this one"
            )
        if json.loads(file.metadata.get("options", "null")) != {"window": options.window, "bits": options.bits}:
            raise UserError(f"{path} was written with other options of the cache; give the same, or write one anew")
        made = cls(network, options)
        try:
            arrays = {name: _read(file, name) for name in file.tensors}
            made.tokens = arrays["tokens"].tolist()
            for index, entry in enumerate(made.entries):
                held = [arrays[f"{index}.{n}"] for n in range(len(arrays)) if f"{index}.{n}" in arrays]
                entry.restore(len(made.tokens), held)
        except (KeyError, StopIteration) as error:
            raise FileFormatError(f"{path} lacks a part ({error}); write it anew") from error
        return made

    def _fresh(self) -> list[KVCache]:
        # A network without options of the cache needs none.
        return self._network.make_cache() if self.options == EVERYTHING else self._network.make_cache(self.options)


def _read(file: SafetensorsFile, name: str) -> mx.array:
    array = mx.array(next(file.rows(name, 1 << 30)))
    return array.view(mx.bfloat16) if file.tensors[name].dtype == "bfloat16" else array


def identity_of(name: str, network: Network) -> str:
    """What tells a model from others in a prompt cache's file."""
    return f"{name} {getattr(network, 'config', '')}"[:2000]
