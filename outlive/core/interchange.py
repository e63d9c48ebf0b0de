"""Exchange with other libraries: NumPy, the buffer protocol, DLPack, pickling."""

from __future__ import annotations

from typing import Any

import numpy as np

from outlive.graph import dtypes
from outlive.graph.array import array, from_host, host_view, wrap
from outlive.graph.convert import node_from
from outlive.graph.dtypes import Dtype, dtype_by_name
from outlive.graph.host import to_numpy


def array_protocol(self: array, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    """The elements as a NumPy array; a view over the array's memory where neither a copy nor another type is asked for.

    >>> import numpy as np
    >>> np.asarray(mx.array([1, 2])).sum().item()
    3
    """
    return to_numpy(self, dtype, copy)


def to_bytes(self: array) -> bytes:
    """The elements in row-major order, in the storage form of the type.

    >>> bytes(mx.array([65, 66], mx.uint8))
    b'AB'
    """
    return np.ascontiguousarray(host_view(self)).tobytes()


def buffer(self: array, flags: int) -> memoryview:
    """The buffer protocol (Python 3.12 on): a view over the array's memory, which it keeps.

    >>> mx.array([1, 2]).__buffer__(0).nbytes
    8
    """
    view: Any = to_numpy(self)
    return memoryview(view)


def dlpack_device(self: array) -> tuple[int, int]:
    """(kDLCPU, 0): DLPack exports host memory.

    >>> mx.array([1, 2]).__dlpack_device__()
    (1, 0)
    """
    return 1, 0


def dlpack(
    self: array,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """A DLPack capsule over the computed array's memory, which it keeps alive.

    Raises BufferError for another device or for bfloat16.

    >>> import numpy as np
    >>> np.from_dlpack(mx.array([1, 2])).tolist()
    [1, 2]
    """
    if dl_device is not None and dl_device[0] != 1:
        raise BufferError(f"[dlpack] Arrays are exported from host memory; device {dl_device} is not served.")
    if self.dtype is dtypes.bfloat16:
        raise BufferError("[dlpack] bfloat16 arrays are not exported; convert to float32 first.")
    view = to_numpy(self, copy=copy)
    return view.__dlpack__(max_version=max_version)


def from_dlpack(x: Any, /, *, copy: bool | None = None) -> array:
    """The array behind `x`, anything with `__dlpack__`, in host memory; float64 becomes float32, as in `array`.

    `copy=False` raises BufferError: buffers are our own.

    >>> import numpy as np
    >>> mx.from_dlpack(np.arange(3, dtype=np.int32))
    array([0, 1, 2], dtype=int32)
    """
    if copy is False:
        raise BufferError("[from_dlpack] Arrays own their memory, so the elements must be copied; leave `copy` out.")
    if type(x) is array:
        return wrap(x._node)
    return wrap(node_from(np.from_dlpack(x), None))


def asarray(a: Any, dtype: Dtype | None = None, *, copy: bool | None = None) -> array:
    """`a` (a number, nested sequence, array, or anything with an array protocol) as an array of `dtype` (None: its
    own).

    Raises ValueError for `copy=False` where the elements must be copied.

    >>> mx.asarray([1, 2], mx.float32)
    array([1, 2], dtype=float32)
    """
    if type(a) is array and (dtype is None or dtype is a.dtype):
        return wrap(a._node)
    if copy is False:
        raise ValueError("[asarray] The elements must be copied; leave `copy` out.")
    return array(a, dtype)


def get_state(self: array) -> tuple[str, tuple[int, ...], bytes]:
    """What pickling keeps: type, shape, and the elements.

    >>> mx.array([65, 66], mx.uint8).__getstate__()
    ('uint8', (2,), b'AB')
    """
    return self.dtype.name, self.shape, to_bytes(self)


def set_state(self: array, state: tuple[str, tuple[int, ...], bytes]) -> None:
    """Give the array what `get_state` told.

    >>> import pickle
    >>> pickle.loads(pickle.dumps(mx.array([1, 2])))
    array([1, 2], dtype=int32)
    """
    name, shape, data = state
    kind = dtype_by_name(name)
    self._node = from_host(np.frombuffer(data, kind.storage).reshape(shape), kind)


def reduce(self: array) -> tuple[Any, ...]:
    """How pickling makes the array anew.

    >>> import pickle
    >>> pickle.loads(pickle.dumps(mx.array([1, 2])))
    array([1, 2], dtype=int32)
    """
    return array.__new__, (array,), get_state(self)


class ArrayLike:
    """Anything that becomes an array: an object with a method `__mlx_array__` that returns one, a number, a sequence.

    >>> class Point:
    ...     def __mlx_array__(self):
    ...         return mx.array([1, 2])
    ...
    >>> mx.array(Point())
    array([1, 2], dtype=int32)
    """

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __mlx_array__(self) -> array:
        return array(self._value)


__all__ = ["ArrayLike", "asarray", "from_dlpack"]
