"""Key-value caches of one attention layer, as the prompt and as a compiled decode step see them.

Three kinds, all with the same interface: :class:`KVCache` keeps everything, :class:`WindowKVCache` the last tokens,
:class:`QuantizedKVCache` everything in fewer bits. Arrays have room for more tokens than there are. New ones are
written into that room: the slice update is given the old buffer, so nothing is copied until the room is used up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import outlive.core as mx

Arrays = list[mx.array]
STEP_TOKENS = 256


class LayerCache(Protocol):
    """What attention needs of a cache."""

    @property
    def offset(self) -> int | mx.array:
        """The position of the first new token: an integer, or an array that is read when the step runs."""
        ...

    def update(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Take keys and values, shape (batch, key heads, new tokens, head size); returns what to attend to."""
        ...

    def mask(self, tokens: int) -> str | mx.array | None:
        """Which of those the new tokens may attend to, in the terms of ``scaled_dot_product_attention``."""
        ...


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """How a network's caches are kept.

    Attributes:
        window: if given, no layer attends to more than this many of the last tokens.
        bits: if given, keys and values are quantized to 4 or 8 bits.
    """

    window: int | None = None
    bits: int | None = None


EVERYTHING = CacheOptions()


class KVCache:
    """Keys and values of the tokens so far, shape (batch, key heads, tokens, head size).

    Attributes:
        offset: the number of tokens so far.
    """

    STEP_TOKENS: ClassVar[int] = STEP_TOKENS

    def __init__(self) -> None:
        self.offset = 0
        self._arrays: Arrays = []

    @property
    def arrays(self) -> Arrays:
        """Keys and values, room included; empty before the first token."""
        return self._arrays

    @property
    def step_kind(self) -> StepKind:
        """How a compiled step treats the arrays."""
        return StepKind()

    def update(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        begin, end = self.offset, self.offset + keys.shape[2]
        self._make_room([keys, values], end)
        for held, new in zip(self._arrays, (keys, values), strict=True):
            held[..., begin:end, :] = new
        self.offset = end
        held_keys, held_values = self._arrays
        return held_keys[..., :end, :], held_values[..., :end, :]

    def mask(self, tokens: int) -> str | mx.array | None:
        return "causal" if tokens > 1 else None

    def reserve(self) -> None:
        """Make room for one more token after the first ones came."""
        self._make_room(self._arrays, self.offset + 1)

    def replace(self, arrays: Sequence[mx.array]) -> None:
        """Take the arrays back from a step that wrote one token into their room."""
        self._arrays = list(arrays)
        self.offset += 1

    def trim(self, tokens: int) -> None:
        """Forget the last ``tokens`` tokens.

        Raises:
            ValueError: if there are not so many.
        """
        if not 0 <= tokens <= self.offset:
            raise ValueError(f"a cache of {self.offset} tokens cannot forget {tokens}")
        self.offset -= tokens

    def state(self) -> Arrays:
        """Copies of the arrays without their room."""
        return [array[..., : self.offset, :] for array in self._arrays]

    def restore(self, offset: int, arrays: Sequence[mx.array]) -> None:
        """Take what :meth:`state` gave when ``offset`` tokens were there."""
        self.offset, self._arrays = offset, list(arrays)

    def _make_room(self, like: Sequence[mx.array], end: int) -> None:
        """Room for ``end`` tokens; it grows by a quarter, in whole steps. ``like`` tells shapes and types at first."""
        capacity = self._arrays[0].shape[2] if self._arrays else 0
        if self._arrays and end <= capacity:
            return
        wanted = max(end, capacity + capacity // 4)
        room = -(-wanted // self.STEP_TOKENS) * self.STEP_TOKENS - self.offset
        empty = [mx.zeros((*array.shape[:2], room, array.shape[3]), array.dtype) for array in like]
        if self._arrays and self.offset:
            held = [array[..., : self.offset, :] for array in self._arrays]
            empty = [mx.concatenate(pair, axis=2) for pair in zip(held, empty, strict=True)]
        self._arrays = empty


class WindowKVCache(KVCache):
    """The last ``window`` tokens: token t lies in slot t mod ``window`` once there are so many."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window
        self._mask: mx.array | None = None

    @property
    def step_kind(self) -> StepKind:
        return StepKind(ring=True)

    def update(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        tokens, end = keys.shape[2], self.offset + keys.shape[2]
        earlier = min(self.offset, self.window - 1)
        seen = [keys, values]
        if earlier:
            ordered = [array[..., -earlier:, :] for array in self.state()]
            seen = [mx.concatenate(pair, axis=2) for pair in zip(ordered, seen, strict=True)]
        self._mask = _window_mask(tokens, earlier, self.window)
        kept = [array[..., -self.window :, :] for array in seen]
        self.restore(end, kept)
        return seen[0], seen[1]

    def mask(self, tokens: int) -> str | mx.array | None:
        return self._mask

    def trim(self, tokens: int) -> None:
        """Forget the last ``tokens`` tokens.

        Raises:
            ValueError: if there are not so many, or the window has moved, so that what was before them is gone.
        """
        if tokens and self.offset > self.window:
            raise ValueError(f"a window of {self.window} tokens that has moved to {self.offset} cannot forget {tokens}")
        super().trim(tokens)

    def state(self) -> Arrays:
        """The last tokens in their order, at most ``window``."""
        if self.offset < self.window or not self._arrays:
            return super().state()
        return [mx.roll(array, -(self.offset % self.window), 2) for array in self._arrays]

    def restore(self, offset: int, arrays: Sequence[mx.array]) -> None:
        if offset < self.window:
            super().restore(offset, arrays)
        else:
            super().restore(offset, [mx.roll(array, offset % self.window, 2) for array in arrays])

    def _make_room(self, like: Sequence[mx.array], end: int) -> None:
        if self._arrays and self._arrays[0].shape[2] == self.window:
            return
        super()._make_room(like, end)
        self._arrays = [array[..., : self.window, :] for array in self._arrays]


class QuantizedKVCache(KVCache):
    """All tokens, quantized in groups along the head: words, scales and biases of keys, then of values."""

    def __init__(self, bits: int, head_dims: int) -> None:
        super().__init__()
        self.bits = bits
        self.group_size = cache_group(head_dims)

    @property
    def step_kind(self) -> StepKind:
        return StepKind(bits=self.bits, group_size=self.group_size)

    def update(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        begin, end = self.offset, self.offset + keys.shape[2]
        new = _quantized(keys, values, self.group_size, self.bits)
        self._make_room(new, end)
        for held, part in zip(self._arrays, new, strict=True):
            held[..., begin:end, :] = part
        self.offset = end
        return _dequantized(self.state(), self.group_size, self.bits, keys.dtype)


def cache_group(head_dims: int) -> int:
    """The group size that a quantized cache takes for heads of this size; 0 where none divides it."""
    return next((group for group in (64, 32) if head_dims % group == 0), 0)


@dataclass(frozen=True, slots=True)
class StepKind:
    """How a compiled step for one token treats a layer's arrays; equal kinds and shapes share a trace."""

    ring: bool = False
    bits: int = 0
    group_size: int = 0

    def open(self, arrays: Arrays, position: mx.array, visible: mx.array) -> StepCache:
        """The cache inside the step; ``visible`` hides what is not filled yet."""
        return StepCache(self, arrays, position, visible)


class StepCache:
    """A layer's cache inside a compiled step: all shapes are fixed, and the offset is an array.

    Attention meets the whole room; ``visible`` hides what is not filled yet.
    """

    def __init__(self, kind: StepKind, arrays: Arrays, offset: mx.array, visible: mx.array) -> None:
        self.offset = offset
        self.arrays = arrays
        self._kind = kind
        self._visible = visible

    def update(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        kind = self._kind
        new = _quantized(keys, values, kind.group_size, kind.bits) if kind.bits else [keys, values]
        slot = mx.remainder(self.offset, self.arrays[0].shape[2]) if kind.ring else self.offset
        self.arrays = [
            mx.slice_update(held, part, slot, axes=(2,)) for held, part in zip(self.arrays, new, strict=True)
        ]
        if kind.bits:
            return _dequantized(self.arrays, kind.group_size, kind.bits, keys.dtype)
        return self.arrays[0], self.arrays[1]

    def mask(self, tokens: int) -> str | mx.array | None:
        return self._visible


def _window_mask(tokens: int, earlier: int, window: int) -> mx.array | None:
    """(tokens, earlier + tokens): each new token sees itself and the ``window - 1`` before it."""
    if tokens == 1:
        return None  # what is handed over is just what it may see
    query = mx.arange(earlier, earlier + tokens)[:, None]
    key = mx.arange(earlier + tokens)[None]
    return (key <= query) & (key > query - window)


def _quantized(keys: mx.array, values: mx.array, group_size: int, bits: int) -> Arrays:
    return [*mx.quantize(keys, group_size, bits), *mx.quantize(values, group_size, bits)]


def _dequantized(arrays: Arrays, group_size: int, bits: int, dtype: mx.Dtype) -> tuple[mx.array, mx.array]:
    keys, key_scales, key_biases, values, value_scales, value_biases = arrays
    return (
        mx.dequantize(keys, key_scales, key_biases, group_size, bits, dtype=dtype),
        mx.dequantize(values, value_scales, value_biases, group_size, bits, dtype=dtype),
    )
