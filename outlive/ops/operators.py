"""Binary operators of `array` in one frame for the commonest case; everything else goes to the general function.

The general function does the same for two dense operands of one layout, or one and a Python number: no promotion, no broadcasting, the
current stream. This is the hottest code of the library, so the node is built in place.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import _getframe
from typing import Any

from outlive.graph.array import array
from outlive.graph.node import Node
from outlive.graph.primitive import Primitive
from outlive.graph.state import current
from outlive.runtime.origin import PACKAGE, user_origin

_new = object.__new__


def fast_operator(primitive: Primitive, general: Callable[..., Any]) -> Callable[[array, Any], array]:
    """An operator method that applies `primitive`, whose result has its operands' layout; `general(a, b)` serves the other cases."""

    def operator(self: array, other: Any) -> array:
        a = self._node
        shape = a.layout
        if type(other) is array:
            b = other._node
            if b.layout is not shape or b.traced:
                return general(self, other)
        else:
            kind = type(other)
            if kind is float:
                if not shape.dtype.inexact:  # type: ignore[attr-defined]
                    return general(self, other)
            elif kind is not int:
                return general(self, other)
            cached = current.constants.get((other, shape.dtype))
            if cached is None:
                return general(self, other)
            b = cached
        stream = current.stream
        if stream is None or a.traced or current.overridden:
            return general(self, other)
        made = _new(array)
        node = made._node = _new(Node)
        node.primitive = primitive
        node.inputs = (a, b)
        node.layout = shape
        node.stream = stream
        frame = _getframe(1)
        code = frame.f_code
        node.origin = user_origin(0) if code.co_filename.startswith(PACKAGE) else (code, frame.f_lasti)
        node.data = None
        node.mark = 0
        node.traced = False
        return made

    operator.__name__ = operator.__qualname__ = f"__{primitive.name}__"
    operator.__doc__ = general.__doc__
    return operator
