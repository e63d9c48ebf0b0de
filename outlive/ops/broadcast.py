"""`Elementwise`: the base of ops whose operands are broadcast to one shape, and how such ops are applied.

Derivatives come back in the shape of the output and are summed over the axes along which an operand was repeated. A
batch axis goes to the
front of every operand that has one; operands without one are broadcast along it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from outlive.graph.array import _new, apply, array
from outlive.graph.node import Node
from outlive.graph.primitive import Primitive
from outlive.graph.tracing import trace_of
from outlive.ops.common import (
    Dtype,
    as_stream,
    broadcast_layout,
    broadcast_shapes,
    current_stream,
    dtypes,
    layout,
    operands,
    promote,
    user_origin,
)

Rule = Callable[..., Any]


class Elementwise(Primitive):
    """Base: operands of one type broadcast to the output's shape.

    `derivatives`: for each operand, a function (cotangent, output, *operands) -> cotangent in the output's shape, or
    None where the
    derivative is zero. `result`: the output's type where it is not the operands' own. `holomorphic`: over complex
    numbers the rules are
    complex derivatives; their cotangents, d/d(real) + i d/d(imaginary), then take the conjugates.
    """

    __slots__ = ()
    pairs = True
    derivatives: tuple[Rule | None, ...] = ()
    result: Dtype | None = None
    holomorphic = True

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

    def workspace(self, reads: Any, writes: Any) -> int:
        # operands raised to float32 and a few intermediates of the output's shape
        return 2 * super().workspace(reads, writes)

    def output_type(self, types: Sequence[Dtype]) -> Dtype:
        """The output's type for operands of these types."""
        return self.result or types[-1]

    def apply(self, *inputs: array, stream: Any = None) -> array:
        """The op over operands that have their final types."""
        shape = broadcast_shapes(self.name, *[i.shape for i in inputs])
        return apply(self, inputs, layout(shape, self.output_type([i.dtype for i in inputs])), stream)

    def _rule(self, index: int, kind: str) -> Rule | None:
        if not self.derivatives:
            raise ValueError(f"[{self.name}] This op has no derivative ({kind}).")
        return self.derivatives[index]

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        from outlive.ops.shape import sum_to
        from outlive.ops.unary import conjugate

        ct = cotangents[0]
        found: list[array | None] = []
        conjugated = self.holomorphic and ct.dtype is dtypes.complex64
        for i in argnums:
            rule = self._rule(i, "vjp")
            if rule is None:
                found.append(None)
                continue
            part = (
                conjugate(rule(conjugate(ct), outputs[0], *primals)) if conjugated else rule(ct, outputs[0], *primals)
            )
            found.append(sum_to(part, primals[i].shape))
        return found

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        from outlive.ops.creation import zeros
        from outlive.ops.shape import broadcast_to

        out = self.apply(*primals)
        total = None
        for i, tangent in zip(argnums, tangents, strict=True):
            rule = self._rule(i, "jvp")
            if rule is not None:
                part = rule(tangent, out, *primals)
                total = part if total is None else total + part
        return [zeros(out.shape, out.dtype) if total is None else broadcast_to(total, out.shape)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        from outlive.ops.shape import moveaxis, reshape

        rank = max(i.ndim - (axis is not None) for i, axis in zip(inputs, axes, strict=True))
        seen = []
        for i, axis in zip(inputs, axes, strict=True):
            if axis is not None:
                i = moveaxis(i, axis, 0)
                i = reshape(i, (i.shape[0], *[1] * (rank + 1 - i.ndim), *i.shape[1:]))
            seen.append(i)
        return [self.apply(*seen)], [0]


def named(name: str, base: type[Elementwise], body: dict[str, Any]) -> Elementwise:
    """The primitive of a new class, called as its op is: a table of ops makes one of each entry."""
    made: type[Elementwise] = type(name.title().replace("_", ""), (base,), body)
    return made.make()


def binary(primitive: Primitive, a: Any, b: Any, stream: Any = None, result: Any = None) -> array:
    """Apply an elementwise primitive to two operands after promotion and broadcasting; `result` is the output's type if
    it is its own.
    """
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
