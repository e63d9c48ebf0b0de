"""Rotary positions and the ways in which they are stretched beyond the length that a model was trained on.

=========  ==============================================================================================
kind       wavelength i (over 2 pi) of ``dims / 2``, from the plain one, w = base^(2i / dims)
=========  ==============================================================================================
linear     factor * w (Chen et al. 2023, "Position interpolation")
llama3     w where short, factor * w where long, in between blended by the number of turns in the original
           context (Llama 3.1's release)
yarn       the same with a ramp over the index, and queries and keys scaled by 0.1 ln(factor) + 1 (Peng et
           al. 2023, "YaRN")
dynamic    w of the base that grows with the length beyond the original context (the "NTK-aware" rule)
factors    w times a factor for each i that the file carries
=========  ==============================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import outlive.core as mx
from outlive.lm.errors import ModelError
from outlive.lm.metadata import Metadata


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """``dims`` elements of each head turn; pairs are neighbours if ``traditional``. Lengths are in tokens.

    ``parameters`` hold what the kind needs beside ``factor`` and ``original_context``.
    """

    dims: int
    base: float
    traditional: bool = False
    kind: str = "default"
    factor: float = 1.0
    original_context: int = 0
    parameters: tuple[tuple[str, float], ...] = ()

    @classmethod
    def from_config(
        cls, config: Metadata, dims: int, base: float, context: int, scaling: Metadata | None
    ) -> RopeConfig:
        """From a config.json; ``scaling`` is its rope_scaling (or rope_parameters), if it has one."""
        if scaling is None:
            return cls(dims, base)
        kind = scaling.text("rope_type", scaling.text("type", "default"))
        if kind in ("default", "mrope"):
            return cls(dims, base)
        original = scaling.count(
            "original_max_position_embeddings", config.count("original_max_position_embeddings", context)
        )
        wanted = _PARAMETERS.get(kind)
        if wanted is None:
            known = ", ".join(sorted(_PARAMETERS))
            raise ModelError(f"{config.where}: rotary scaling of type {kind!r} is not supported; known are: {known}")
        found = tuple((name, scaling.number(name)) for name in wanted if scaling.has(name))
        made = cls(dims, base, False, kind, scaling.positive("factor"), original, found)
        made.check(config.where)
        return made

    @classmethod
    def from_gguf(cls, metadata: Metadata, family: str, dims: int, base: float, *, traditional: bool) -> RopeConfig:
        """From a GGUF file's ``FAMILY.rope.scaling.*``."""
        kind = metadata.text(f"{family}.rope.scaling.type", "none")
        if kind == "none":
            return cls(dims, base, traditional)
        if kind not in ("linear", "yarn"):
            raise ModelError(
                f"{metadata.where}: rotary scaling of type {kind!r} is not supported; known are: linear, yarn"
            )
        factor = metadata.positive(f"{family}.rope.scaling.factor")
        original = metadata.count(
            f"{family}.rope.scaling.original_context_length", metadata.count(f"{family}.context_length")
        )
        made = cls(dims, base, traditional, kind, factor, original)
        made.check(metadata.where)
        return made

    def check(self, where: str) -> None:
        """Refuse parameters that no wavelength comes of."""
        low, high = self.get("low_freq_factor", 1.0), self.get("high_freq_factor", 4.0)
        if self.kind == "llama3" and not 0 < low < high:
            raise ModelError(
                f"{where}: llama3 scaling has frequency factors {low} and {high}, but low must be below high"
            )
        if self.kind in ("yarn", "dynamic") and (self.base <= 1 or self.dims <= 2):
            raise ModelError(
                f"{where}: {self.kind} scaling does not go with base {self.base} and {self.dims} dimensions"
            )

    def get(self, name: str, default: float) -> float:
        return dict(self.parameters).get(name, default)


class Rope:
    """Turns queries and keys, shape (batch, heads, tokens, head size), by the positions from ``offset`` on."""

    def __init__(self, config: RopeConfig, factors: mx.array | None = None) -> None:
        self._config = config
        self._scale = 1.0 / config.factor if config.kind == "linear" else 1.0
        self._magnitude = _yarn_magnitude(config) if config.kind == "yarn" else 1.0
        self._wavelengths: mx.array | None = None
        if factors is not None:
            plain = mx.array(_plain(config).astype(np.float32))
            self._wavelengths = plain * factors.astype(mx.float32)
        elif config.kind in _WAVELENGTHS:
            self._wavelengths = mx.array(_WAVELENGTHS[config.kind](config).astype(np.float32))

    def __call__(self, x: mx.array, offset: int | mx.array) -> mx.array:
        config = self._config
        wavelengths = self._wavelengths
        if config.kind == "dynamic":
            wavelengths = _dynamic(config, offset + x.shape[2])
        if self._magnitude != 1.0:
            x = self._scaled(x)
        return mx.fast.rope(
            x, config.dims, traditional=config.traditional, base=config.base if wavelengths is None else None,
            scale=self._scale, offset=offset, freqs=wavelengths,
        )  # fmt: skip

    def _scaled(self, x: mx.array) -> mx.array:
        dims = self._config.dims
        if dims == x.shape[-1]:
            return x * self._magnitude
        return mx.concatenate([x[..., :dims] * self._magnitude, x[..., dims:]], axis=-1)


def _plain(config: RopeConfig) -> NDArray[Any]:
    return config.base ** (np.arange(0, config.dims, 2, dtype=np.float64) / config.dims)


def _llama3(config: RopeConfig) -> NDArray[Any]:
    plain = _plain(config)
    low, high = config.get("low_freq_factor", 1.0), config.get("high_freq_factor", 4.0)
    turns = config.original_context / (2 * math.pi * plain)  # in the original context
    share = np.clip((turns - low) / (high - low), 0, 1)  # 0: long waves, stretched; 1: short waves, kept
    return 1 / ((1 - share) / (config.factor * plain) + share / plain)


def _yarn(config: RopeConfig) -> NDArray[Any]:
    plain, dims = _plain(config), config.dims

    def index(turns: float) -> float:
        """The index at which the wave makes that many turns in the original context."""
        return dims * math.log(config.original_context / (turns * 2 * math.pi)) / (2 * math.log(config.base))

    low = max(math.floor(index(config.get("beta_fast", 32.0))), 0)
    high = min(math.ceil(index(config.get("beta_slow", 1.0))), dims - 1)
    stretched = np.clip((np.arange(dims // 2) - low) / max(high - low, 1e-3), 0, 1)
    return 1 / (stretched / (config.factor * plain) + (1 - stretched) / plain)


def _yarn_magnitude(config: RopeConfig) -> float:
    if stated := config.get("attention_factor", 0.0):
        return stated
    if config.factor <= 1:
        return 1.0
    logarithm = 0.1 * math.log(config.factor)
    return (logarithm * config.get("mscale", 1.0) + 1) / (logarithm * config.get("mscale_all_dim", 0.0) + 1)


def factors_as_scaling(config: RopeConfig, factors: NDArray[Any]) -> dict[str, Any] | None:
    """The ``rope_scaling`` of Llama 3's releases whose wavelengths are the plain ones times ``factors``, or None."""
    for factor in (8.0, 32.0, 16.0):
        values = {"factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        pairs = tuple((name, value) for name, value in values.items() if name != "factor")
        candidate = RopeConfig(config.dims, config.base, False, "llama3", factor, 8192, pairs)
        if np.allclose(_llama3(candidate) / _plain(config), factors, rtol=1e-4):
            return {"rope_type": "llama3", **values, "original_max_position_embeddings": 8192}
    return None


def _dynamic(config: RopeConfig, length: int | mx.array) -> mx.array:
    dims, original = config.dims, config.original_context
    length = mx.maximum(mx.array(length), original).astype(mx.float32)
    growth = config.factor * length / original - (config.factor - 1)
    base = config.base * mx.power(growth, dims / (dims - 2))
    return mx.power(base.reshape(1), mx.arange(0, dims, 2).astype(mx.float32) / dims)


_WAVELENGTHS: dict[str, Callable[[RopeConfig], NDArray[Any]]] = {"llama3": _llama3, "yarn": _yarn}

_PARAMETERS: dict[str, tuple[str, ...]] = {
    "linear": (),
    "dynamic": (),
    "llama3": ("low_freq_factor", "high_freq_factor"),
    "yarn": ("beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor"),
}
