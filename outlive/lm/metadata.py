"""Typed access to a model file's metadata, with errors that name the key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from outlive.lm.errors import ModelError

_MISSING = object()


class Metadata:
    """The metadata of one file; every getter checks type and range.

    Raises:
        ModelError: if a key without default is missing, or a value has another type or is out of range.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values = values
        self.where = where

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def with_defaults(self, values: Mapping[str, Any]) -> Metadata:
        """The same, with ``values`` for keys that are missing."""
        return Metadata(
            {**values, **{key: value for key, value in self._values.items() if value is not None}}, self.where
        )

    def with_values(self, values: Mapping[str, Any]) -> Metadata:
        """The same, with ``values`` in place of what is there."""
        return Metadata({**self._values, **values}, self.where)

    def count(self, key: str, default: Any = _MISSING, *, maximum: int = 1 << 31) -> int:
        """A positive integer up to ``maximum``."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= maximum:
            raise self._wrong(key, value, f"a positive integer up to {maximum}")
        return value

    def index(self, key: str, size: int) -> int | None:
        """An index below ``size``, or None where the key is missing."""
        value = self._values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < size:
            raise self._wrong(key, value, f"an index below {size}")
        return value

    def positive(self, key: str, default: Any = _MISSING) -> float:
        """A finite number above zero."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise self._wrong(key, value, "a positive number")
        return float(value)

    def number(self, key: str, default: Any = _MISSING) -> float:
        """A finite number."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < float("inf"):
            raise self._wrong(key, value, "a number")
        return float(value)

    def has(self, key: str) -> bool:
        """Whether the key is there and not null."""
        return self._values.get(key) is not None

    def section(self, key: str) -> Metadata | None:
        """The object under the key, or None where there is none."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self._wrong(key, value, "an object")
        return None if value is None else Metadata(value, self.where)

    def flag(self, key: str, default: bool) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def text(self, key: str, default: Any = _MISSING) -> Any:
        """A string (or the default, which may be None)."""
        value = self._get(key, default)
        if value is not default and not isinstance(value, str):
            raise self._wrong(key, value, "a string")
        return value

    def value(self, key: str) -> Any:
        """What is under the key, unchecked; None where there is nothing."""
        return self._values.get(key)

    def texts(self, key: str) -> list[str]:
        value = self._get(key, _MISSING)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._wrong(key, value, "a list of strings")
        return value

    def integers(self, key: str, length: int) -> list[int]:
        value = self._get(key, _MISSING)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu" or len(value) != length:
            raise self._wrong(key, value, f"a list of {length} integers")
        return value.tolist()

    def numbers(self, key: str, length: int) -> list[float]:
        """A list of ``length`` finite numbers."""
        value = self._get(key, _MISSING)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuf" or len(value) != length:
            raise self._wrong(key, value, f"a list of {length} numbers")
        if not np.isfinite(value).all():
            raise self._wrong(key, value, "a list of finite numbers")
        return value.tolist()

    def _get(self, key: str, default: Any) -> Any:
        value = self._values.get(key)
        if value is None:  # a config.json writes null for what is not set
            value = default
        if value is _MISSING:
            raise ModelError(
                f"{self.where} has no metadata {key!r}, which its model needs; get or convert the file anew"
            )
        return value

    def _wrong(self, key: str, value: Any, expected: str) -> ModelError:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return ModelError(f"{self.where}: metadata {key!r} is {shown}, not {expected}; get or convert the file anew")
