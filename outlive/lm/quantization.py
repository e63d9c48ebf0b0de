"""Which groups, bits and mode the matrices of a model have: asked for, or stated by its config.json."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import outlive.core as mx
from outlive.lm.errors import ModelError, PromptError
from outlive.lm.layers import QuantizedArrays

_AFFINE_BITS = (1, 2, 3, 4, 5, 6, 8)
_AFFINE_GROUPS = (32, 64, 128)
_FIXED = {"mxfp4": (32, 4), "mxfp8": (32, 8), "nvfp4": (16, 4)}  # mode -> group size, bits
_REQUEST = re.compile(r"affine([1-8])(?::(\d+))?")


@dataclass(frozen=True, slots=True)
class Quantization:
    """One way to quantize, in the terms of ``mx.quantize``."""

    group_size: int
    bits: int
    mode: str = "affine"

    @classmethod
    def parse(cls, text: str) -> Quantization:
        """``affine4``, ``affine4:32`` (groups of 32 instead of 64), ``mxfp4``, ``mxfp8``, ``nvfp4``.

        Raises:
            PromptError: for anything else.
        """
        if text in _FIXED:
            return cls(*_FIXED[text], text)
        match = _REQUEST.fullmatch(text)
        if match and int(match[1]) in _AFFINE_BITS and int(match[2] or 64) in _AFFINE_GROUPS:
            return cls(int(match[2] or 64), int(match[1]))
        raise PromptError(
            f"there is no quantization {text!r}; use affine4 or affine8 (also 1, 2, 3, 5, 6 bits), affine4:32 for groups of "
            f"32 or 128, or {', '.join(_FIXED)}"
        )

    def fits(self, inputs: int) -> bool:
        """Whether rows of ``inputs`` elements divide into groups and whole words."""
        return inputs % self.group_size == 0 and inputs * self.bits % 32 == 0

    def apply(self, values: mx.array) -> QuantizedArrays:
        """``values`` of shape (..., rows, inputs), quantized."""
        return self.hold(mx.quantize(values, self.group_size, self.bits, self.mode))

    def hold(self, arrays: Sequence[mx.array]) -> QuantizedArrays:
        """Words, scales and, in affine mode, biases as one."""
        weight, scales = arrays[:2]
        biases = arrays[2] if len(arrays) > 2 else None
        return QuantizedArrays(weight, scales, biases, self.group_size, self.bits, self.mode)

    def as_config(self) -> dict[str, Any]:
        """As it stands in config.json."""
        return {"group_size": self.group_size, "bits": self.bits, "mode": self.mode}


class QuantizationBlock:
    """The ``quantization`` block of a config.json: one way for all matrices, and other ways for some by their name.

    Raises:
        ModelError: if the block is not well-formed.
    """

    def __init__(self, block: Any, where: str) -> None:
        self._where = where
        self._general: Quantization | None = None
        self._named: dict[str, Quantization | None] = {}
        if block is None:
            return
        if not isinstance(block, Mapping):
            raise ModelError(f"{where}: its quantization block is no object; get or convert the model anew")
        self._general = self._read(block, "quantization", None)
        for name, entry in block.items():
            if isinstance(entry, Mapping):
                self._named[name] = self._read(entry, name, self._general)
            elif isinstance(entry, bool):
                self._named[name] = self._general if entry else None

    def __bool__(self) -> bool:
        return self._general is not None

    def of(self, name: str) -> Quantization:
        """How the matrix ``name``, which has scales, is quantized.

        Raises:
            ModelError: if the block does not say so.
        """
        found = self._named.get(name, self._general)
        if found is None:
            raise ModelError(
                f"{self._where}: tensor {name!r} has scales, but config.json does not say how it is quantized; "
                "get or convert the model anew"
            )
        return found

    def _read(self, entry: Mapping[str, Any], name: str, general: Quantization | None) -> Quantization:
        mode = entry.get("mode", general.mode if general else "affine")
        fixed = _FIXED.get(mode) if isinstance(mode, str) else None
        group, bits = entry.get("group_size", fixed and fixed[0]), entry.get("bits", fixed and fixed[1])
        legal = (
            (group, bits) == fixed if fixed else mode == "affine" and group in _AFFINE_GROUPS and bits in _AFFINE_BITS
        )
        if not legal or isinstance(bits, bool):
            raise ModelError(
                f"{self._where}: config.json quantizes {name[:60]!r} with mode {mode!r}, groups of {group!r} and {bits!r} "
                "bits, which is not a way that is known here"
            )
        return Quantization(int(group), int(bits), mode)
