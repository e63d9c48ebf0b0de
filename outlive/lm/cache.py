"""The key-value cache of one attention layer, as the prompt and as a compiled decode step see it."""

from __future__ import annotations

from typing import Protocol

import outlive.core as mx


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


class KVCache:
    """Keys and values of the tokens so far, shape (batch, key heads, tokens, head size).

    The arrays have room for more tokens than there are. New ones are written into that room: the slice update is given
    the old buffer, so nothing is copied until the room is used up; then it grows by a quarter, in whole steps.
    """

    STEP_TOKENS = 256

    def __init__(self) -> None:
        self.offset = 0
        self._keys: mx.array | None = None
        self._values: mx.array | None = None

    def update(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        begin, end = self.offset, self.offset + keys.shape[2]
        self._keys = self._with_room(self._keys, keys.shape, keys.dtype, end)
        self._values = self._with_room(self._values, values.shape, values.dtype, end)
        self._keys[..., begin:end, :] = keys
        self._values[..., begin:end, :] = values
        self.offset = end
        return self._keys[..., :end, :], self._values[..., :end, :]

    def mask(self, tokens: int) -> str | mx.array | None:
        return "causal" if tokens > 1 else None

    @property
    def arrays(self) -> list[mx.array]:
        """The two arrays, room included; empty before the first token."""
        return [array for array in (self._keys, self._values) if array is not None]

    def reserve(self) -> None:
        """Make room for one more token after the first ones came."""
        self._keys, self._values = (
            self._with_room(array, array.shape, array.dtype, self.offset + 1) for array in self.arrays
        )

    def replace(self, keys: mx.array, values: mx.array) -> None:
        """Take the arrays back from a step that wrote one token into their room."""
        self._keys, self._values = keys, values
        self.offset += 1

    def _with_room(self, held: mx.array | None, shape: tuple[int, ...], dtype: mx.Dtype, end: int) -> mx.array:
        capacity = 0 if held is None else held.shape[2]
        if held is not None and end <= capacity:
            return held
        wanted = max(end, capacity + capacity // 4)
        room = -(-wanted // self.STEP_TOKENS) * self.STEP_TOKENS - self.offset
        empty = mx.zeros((*shape[:2], room, shape[3]), dtype)
        return empty if held is None else mx.concatenate([held[..., : self.offset, :], empty], axis=2)


class StepCache:
    """The same cache inside a compiled step for one token: all shapes are fixed, and the offset is an array.

    Attention meets the whole room; ``visible`` hides what is not filled yet.
    """

    def __init__(self, keys: mx.array, values: mx.array, offset: mx.array, visible: mx.array) -> None:
        self.offset = offset
        self.keys = keys
        self.values = values
        self._visible = visible

    def update(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        self.keys = mx.slice_update(self.keys, keys, self.offset, axes=(2,))
        self.values = mx.slice_update(self.values, values, self.offset, axes=(2,))
        return self.keys, self.values

    def mask(self, tokens: int) -> str | mx.array | None:
        return self._visible
