"""The key-value cache of one attention layer."""

from __future__ import annotations

import outlive.core as mx


class KVCache:
    """Keys and values of the tokens so far, shape (batch, key heads, tokens, head size).

    The arrays have room for whole steps of tokens. A new token is written into that room: the slice update is given
    the old buffer, so nothing is copied until a step is full.
    """

    STEP_TOKENS = 256

    def __init__(self) -> None:
        self.offset = 0
        self._keys: mx.array | None = None
        self._values: mx.array | None = None

    def update(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append ``keys`` and ``values`` of new tokens; returns those of all tokens so far."""
        begin, end = self.offset, self.offset + keys.shape[2]
        self._keys = self._with_room(self._keys, keys, end)
        self._values = self._with_room(self._values, values, end)
        self._keys[..., begin:end, :] = keys
        self._values[..., begin:end, :] = values
        self.offset = end
        return self._keys[..., :end, :], self._values[..., :end, :]

    @property
    def arrays(self) -> list[mx.array]:
        """What a step leaves behind, for ``eval``."""
        return [array for array in (self._keys, self._values) if array is not None]

    def _with_room(self, held: mx.array | None, new: mx.array, end: int) -> mx.array:
        capacity = 0 if held is None else held.shape[2]
        if end <= capacity and held is not None:
            return held
        batch, heads, _, size = new.shape
        room = -(-end // self.STEP_TOKENS) * self.STEP_TOKENS - self.offset
        empty = mx.zeros((batch, heads, room, size), new.dtype)
        return empty if held is None else mx.concatenate([held[..., : self.offset, :], empty], axis=2)
