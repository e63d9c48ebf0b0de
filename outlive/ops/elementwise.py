"""Elementwise ops of one, two or three operands."""

from __future__ import annotations

from typing import Any

from outlive.graph.array import _new, array
from outlive.graph.node import Node
from outlive.graph.primitive import Primitive
from outlive.graph.tracing import trace_of
from outlive.ops.common import (
    as_stream,
    broadcast_layout,
    broadcast_shapes,
    current_stream,
    layout,
    operands,
    promote,
    user_origin,
)


class Elementwise(Primitive):
    """Base: operands of one type broadcast to the output's shape."""

    __slots__ = ()
    pairs = True

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        shape = layout.shape
        seen = inputs
        for i in inputs:
            if i.layout.shape is not shape:
                seen = tuple([encoder.reshaped(i, broadcast_layout(i.layout, shape)) for i in inputs])
                break
        out = encoder.output(layout)
        encoder.dispatch(self, seen, (out,))
        if len(inputs) == 2:
            encoder.learn_pair(self, inputs, out)
        return out


def binary(primitive: Primitive, a: Any, b: Any, stream: Any = None, result: Any = None) -> array:
    """Apply an elementwise primitive to two operands after promotion and broadcasting; `result` is the output's type if it is its own."""
    if type(a) is not array or type(b) is not array:
        a, b = operands(primitive.name, a, b)
    x, y = a._node, b._node
    out = x.layout
    if out is not y.layout:
        other = y.layout
        if out.dtype is not other.dtype:
            common = promote(out.dtype, other.dtype)
            a, b = a.astype(common), b.astype(common)
            x, y = a._node, b._node
            out, other = x.layout, y.layout
        if other.ndim or not out.ndim:
            out = layout(broadcast_shapes(primitive.name, out.shape, other.shape), out.dtype)
    if result is not None:
        out = layout(out.shape, result)
    made = _new(array)
    node = made._node = Node(
        primitive, (x, y), out, current_stream() if stream is None else as_stream(stream), user_origin(1)
    )
    if x.traced or y.traced:
        node.traced = trace_of(node.inputs)
    return made


class Add(Elementwise):
    __slots__ = ()
    name = "add"

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        xp.add(reads[0], reads[1], out=writes[0])


_ADD = Add.make()


def add(a: Any, b: Any, /, *, stream: Any = None) -> array:
    return binary(_ADD, a, b, stream)
