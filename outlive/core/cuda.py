"""`mx.cuda`: whether an NVIDIA GPU can be used here."""

from __future__ import annotations

from outlive.backends import cuda


def is_available() -> bool:
    """Whether an NVIDIA GPU can be used. Loads the driver on the first call.

    >>> isinstance(mx.cuda.is_available(), bool)
    True
    """
    return cuda.device_count() > 0


__all__ = ["is_available"]
