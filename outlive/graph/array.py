"""`array`: the user's handle on a node. In-place assignment gives the handle another node; nobody else sees it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from outlive.graph import dtypes
from outlive.graph.dtypes import Dtype
from outlive.graph.evaluate import evaluate, wait_for
from outlive.graph.node import Node
from outlive.graph.primitive import Pick, Primitive
from outlive.graph.state import as_stream, current_stream, runtime
from outlive.graph.tracing import trace_of
from outlive.runtime.buffer import Data, Operand
from outlive.runtime.layout import Layout, layout
from outlive.runtime.origin import user_origin

_new = object.__new__


class array:
    """An N-dimensional array, computed when it is needed.

    `array(val, dtype=None)`: `val` is a scalar, a (nested) list or tuple, a NumPy array, another array, or anything with the buffer or
    DLPack protocol. Raises ValueError for ragged lists, TypeError for what no element type holds.

    >>> mx.array([[1, 2], [3, 4]]).shape
    (2, 2)
    >>> mx.array([1, 2], mx.float16)
    array([1, 2], dtype=float16)
    """

    __slots__ = ("__weakref__", "_node")
    _node: Node

    def __init__(self, val: Any, dtype: Dtype | None = None) -> None:
        from outlive.graph.convert import node_from

        self._node = node_from(val, dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes.

        >>> mx.zeros((2, 3)).shape
        (2, 3)
        """
        return self._node.layout.shape

    @property
    def dtype(self) -> Dtype:
        """Element type.

        >>> mx.array([1.5]).dtype
        outlive.core.float32
        """
        return self._node.layout.dtype  # type: ignore[return-value]

    @property
    def ndim(self) -> int:
        """Number of axes.

        >>> mx.zeros((2, 3)).ndim
        2
        """
        return self._node.layout.ndim

    @property
    def size(self) -> int:
        """Number of elements.

        >>> mx.zeros((2, 3)).size
        6
        """
        return self._node.layout.size

    @property
    def itemsize(self) -> int:
        """Bytes an element.

        >>> mx.array([1.5]).itemsize
        4
        """
        return self._node.layout.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements.

        >>> mx.zeros((2, 3)).nbytes
        24
        """
        return self._node.layout.nbytes

    if TYPE_CHECKING:
        # Operators and methods are put on the class by `core.operators`, above this layer; type checkers learn of them here.
        def __add__(self, other: Any) -> array: ...
        def __radd__(self, other: Any) -> array: ...
        def __sub__(self, other: Any) -> array: ...
        def __rsub__(self, other: Any) -> array: ...
        def __mul__(self, other: Any) -> array: ...
        def __rmul__(self, other: Any) -> array: ...
        def __truediv__(self, other: Any) -> array: ...
        def __rtruediv__(self, other: Any) -> array: ...
        def __floordiv__(self, other: Any) -> array: ...
        def __rfloordiv__(self, other: Any) -> array: ...
        def __mod__(self, other: Any) -> array: ...
        def __rmod__(self, other: Any) -> array: ...
        def __pow__(self, other: Any) -> array: ...
        def __rpow__(self, other: Any) -> array: ...
        def __matmul__(self, other: Any) -> array: ...
        def __rmatmul__(self, other: Any) -> array: ...
        def __and__(self, other: Any) -> array: ...
        def __rand__(self, other: Any) -> array: ...
        def __or__(self, other: Any) -> array: ...
        def __ror__(self, other: Any) -> array: ...
        def __xor__(self, other: Any) -> array: ...
        def __rxor__(self, other: Any) -> array: ...
        def __lshift__(self, other: Any) -> array: ...
        def __rlshift__(self, other: Any) -> array: ...
        def __rshift__(self, other: Any) -> array: ...
        def __rrshift__(self, other: Any) -> array: ...
        def __lt__(self, other: Any) -> array: ...
        def __le__(self, other: Any) -> array: ...
        def __gt__(self, other: Any) -> array: ...
        def __ge__(self, other: Any) -> array: ...
        def __eq__(self, other: object) -> array: ...  # type: ignore[override]
        def __ne__(self, other: object) -> array: ...  # type: ignore[override]
        def __neg__(self) -> array: ...
        def __invert__(self) -> array: ...
        def __abs__(self) -> array: ...
        def __getitem__(self, index: Any) -> array: ...
        def __setitem__(self, index: Any, value: Any) -> None: ...
        def __len__(self) -> int: ...
        def __iter__(self) -> Iterator[array]: ...
        def __float__(self) -> float: ...
        def __int__(self) -> int: ...
        def __getattr__(self, name: str) -> Any: ...


def wrap(node: Node) -> array:
    """The handle of a node."""
    made = _new(array)
    made._node = node
    return made


def apply(primitive: Primitive, inputs: tuple[array, ...], result: Layout, stream: Any = None) -> array:
    """The lazy result of `primitive` over `inputs`, with layout `result`."""
    made = _new(array)
    node = made._node = _new(Node)  # built in place: a constructor's frame would be a tenth of an op's cost
    node.primitive = primitive
    nodes = node.inputs = (inputs[0]._node,) if len(inputs) == 1 else tuple([i._node for i in inputs])
    node.layout = result
    node.stream = current_stream() if stream is None else as_stream(stream)
    node.origin = user_origin(1)
    node.data = None
    node.mark = 0
    node.traced = False
    for i in nodes:
        if i.traced:
            node.traced = trace_of(nodes)
            break
    return made


def apply_many(
    primitive: Primitive, inputs: tuple[array, ...], results: tuple[Layout, ...], stream: Any = None
) -> tuple[array, ...]:
    """The lazy results of a primitive with several outputs."""
    where = current_stream() if stream is None else as_stream(stream)
    origin = user_origin(1)
    nodes = tuple([i._node for i in inputs])
    group = Node(primitive, nodes, results, where, origin)  # type: ignore[arg-type]  # the layouts of all outputs
    group.traced = trace_of(nodes)
    made = []
    for index, result in enumerate(results):
        node = Node(Pick.make(index), (group,), result, where, origin)
        node.traced = group.traced
        made.append(wrap(node))
    return tuple(made)


def from_host(values: np.ndarray, dtype: Dtype) -> Node:
    """An evaluated node with a copy of host values, given in the storage form of `dtype`."""
    from outlive.graph.state import backend, default_device

    device = backend(default_device())
    origin = user_origin(1)
    shape = layout(values.shape, dtype)
    buffer = runtime.allocate(device, shape.nbytes, origin)
    operand = Operand(buffer, shape)
    data = Data(operand)
    device.copy_in(values, operand)
    node = Node(None, (), shape, None, origin)
    node.data = data
    return node


def host_view(a: array) -> np.ndarray:
    """The computed elements of `a` as a NumPy array in storage form (bfloat16: uint16), over the array's own memory where it is the host's.

    The view is valid while `a` is referenced elsewhere; `lease` gives one that keeps the memory itself. Raises the failure of `a`.
    """
    node = a._node
    if node.data is None:
        evaluate((node,))
    else:
        wait_for(node)
        owner: Any = node.data
        failure = owner.operand.buffer.failure
        if failure is not None:
            raise failure.error()
    owner = node.data
    operand: Operand = owner.operand
    values: np.ndarray = operand.buffer.device.copy_out(operand)
    return values


__all__ = ["Dtype", "apply", "apply_many", "array", "dtypes", "from_host", "host_view", "wrap"]
