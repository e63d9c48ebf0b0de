"""`mx.distributed` in one process: a group of one member, whose collectives are the identity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.graph.array import array, wrap
from outlive.graph.dtypes import Dtype
from outlive.ops.common import as_array

BACKENDS = ("any",)


class Group:
    """The processes that take part in a collective.

    >>> group = mx.distributed.init()
    >>> group.rank(), group.size()
    (0, 1)
    """

    __slots__ = ("_rank", "_size")

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self._rank = rank
        self._size = size

    def rank(self) -> int:
        """This process's number, from 0.

        >>> mx.distributed.init().rank()
        0
        """
        return self._rank

    def size(self) -> int:
        """How many processes there are.

        >>> mx.distributed.init().size()
        1
        """
        return self._size

    def split(self, color: int, key: int = -1) -> Group:
        """Raises RuntimeError: a group of one cannot be split.

        >>> mx.distributed.init().split(0)
        Traceback (most recent call last):
            ...
        RuntimeError: [distributed] A group of one process cannot be split.
        """
        raise RuntimeError("[distributed] A group of one process cannot be split.")


_WORLD = Group()


def is_available(backend: str = "any") -> bool:
    """Whether a backend can be used; "any" always can, with one process.

    >>> mx.distributed.is_available()
    True
    """
    return backend in BACKENDS


def init(strict: bool = False, backend: str = "any", *, all_gather_factory: Any = None) -> Group:
    """The group of all processes: one member, where the program was not launched on several.

    `all_gather_factory` is used by the backend "jaccl" alone, which is not available.

    Raises RuntimeError where `strict` asks for a real backend, ValueError for an unknown one.

    >>> mx.distributed.init().size()
    1
    """
    if strict or backend not in BACKENDS:
        raise RuntimeError(f"[distributed] No backend for several processes is available (asked for {backend!r}).")
    return _WORLD


def _same(x: Any) -> array:
    return wrap(as_array(x)._node)


def all_sum(x: Any, *, group: Group | None = None, stream: Any = None) -> array:
    """The sum of `x` over the group.

    >>> mx.distributed.all_sum(mx.array([1, 2]))
    array([1, 2], dtype=int32)
    """
    return _same(x)


def all_max(x: Any, *, group: Group | None = None, stream: Any = None) -> array:
    """The largest of `x` over the group, element by element.

    >>> mx.distributed.all_max(mx.array([1, 2]))
    array([1, 2], dtype=int32)
    """
    return _same(x)


def all_min(x: Any, *, group: Group | None = None, stream: Any = None) -> array:
    """The smallest of `x` over the group, element by element.

    >>> mx.distributed.all_min(mx.array([1, 2]))
    array([1, 2], dtype=int32)
    """
    return _same(x)


def all_gather(x: Any, *, group: Group | None = None, stream: Any = None) -> array:
    """`x` of all members, one after the other along the first axis.

    >>> mx.distributed.all_gather(mx.array([1, 2]))
    array([1, 2], dtype=int32)
    """
    return _same(x)


def sum_scatter(x: Any, *, group: Group | None = None, stream: Any = None) -> array:
    """This member's part along the first axis of the sum of `x` over the group.

    >>> mx.distributed.sum_scatter(mx.array([1, 2]))
    array([1, 2], dtype=int32)
    """
    return _same(x)


def _alone(op: str) -> ValueError:
    return ValueError(f"[{op}] There is no other process in a group of one.")


def send(x: Any, dst: int, *, group: Group | None = None, stream: Any = None) -> array:
    """Send `x` to member `dst`. Raises ValueError in a group of one.

    >>> mx.distributed.send(mx.array([1, 2]), 1)
    Traceback (most recent call last):
        ...
    ValueError: [send] There is no other process in a group of one.
    """
    raise _alone("send")


def recv(shape: Sequence[int], dtype: Dtype, src: int, *, group: Group | None = None, stream: Any = None) -> array:
    """Receive an array from member `src`. Raises ValueError in a group of one.

    >>> mx.distributed.recv((2,), mx.int32, 0)
    Traceback (most recent call last):
        ...
    ValueError: [recv] There is no other process in a group of one.
    """
    raise _alone("recv")


def recv_like(x: Any, src: int, *, group: Group | None = None, stream: Any = None) -> array:
    """Receive an array like `x` from member `src`. Raises ValueError in a group of one.

    >>> mx.distributed.recv_like(mx.array([1, 2]), 0)
    Traceback (most recent call last):
        ...
    ValueError: [recv_like] There is no other process in a group of one.
    """
    raise _alone("recv_like")


__all__ = [
    "Group", "all_gather", "all_max", "all_min", "all_sum", "init", "is_available", "recv", "recv_like", "send",
    "sum_scatter",
]  # fmt: skip
