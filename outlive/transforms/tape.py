"""Tracing a function, and the tape of what its outputs need of its arguments. Every transform interprets such a
tape.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

from outlive.graph import state
from outlive.graph.array import array, wrap
from outlive.graph.node import Node
from outlive.graph.primitive import Pick, Primitive
from outlive.graph.tracing import Trace
from outlive.runtime.layout import Layout
from outlive.runtime.origin import user_origin


class Identity(Primitive):
    """The same value under another node: an argument of a transformed function, told apart from the caller's array."""

    __slots__ = ()
    name = "identity"

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        return encoder.view_as(0, inputs[0].layout)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return cotangents

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        return tangents

    def vmap(self, inputs: Any, axes: Any) -> Any:
        return inputs, axes


IDENTITY = Identity.make()


class Opaque(Primitive):
    """Base of nodes that say which of their inputs a transform goes on to."""

    __slots__ = ()

    def followed(self, transform: str, inputs: tuple[Node, ...]) -> tuple[Node, ...]:
        """The inputs that "vjp", "jvp" or "vmap" walks; any other word means all."""
        return inputs


def argument(given: array, trace: Trace) -> Node:
    """A node with the value of `given` that belongs to `trace`. Where `given` belongs to another trace, it leads
    there.
    """
    source = given._node
    made = Node(None, (), source.layout, source.stream or state.current_stream(), user_origin(1))
    if source.data is None or source.traced:
        made.primitive, made.inputs = IDENTITY, (source,)
    else:
        made.data = source.data
    made.traced = trace
    return made


def placeholder(layout: Layout, trace: Trace) -> Node:
    """A node that has a layout and no value."""
    made = Node(None, (), layout, state.current_stream(), user_origin(1))
    made.traced = trace
    return made


def between(outputs: Iterable[Node], sources: Sequence[Node], transform: str) -> list[Node]:
    """The nodes that depend on `sources` and that `outputs` need, each after its inputs; without the sources.
    Iterative.

    `transform`: who walks ("vjp", "jvp", "vmap"), for nodes that have a rule of their own.
    """
    depends = dict.fromkeys(sources, True)
    order: list[Node] = []
    stack = list(outputs)
    while stack:
        node = stack[-1]
        if node in depends:
            stack.pop()
            continue
        inputs = node.inputs
        if isinstance(node.primitive, Opaque):
            inputs = node.primitive.followed(transform, inputs)
        waiting = [i for i in inputs if i not in depends and i.traced]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        found = depends[node] = any(depends.get(i, False) for i in inputs)
        if found:
            order.append(node)
    return order


def picks(group: Node, known: dict[int, Node]) -> tuple[array, ...]:
    """All outputs of a node that makes several; `known` has those that exist already, by index."""
    made = []
    for index, layout in enumerate(group.layout):  # type: ignore[arg-type, var-annotated]  # a group's layout is a tuple
        node = known.get(index)
        if node is None:
            node = Node(Pick.make(index), (group,), layout, group.stream, group.origin)
            node.traced = group.traced
        made.append(wrap(node))
    return tuple(made)


def is_group(node: Node) -> bool:
    """Whether the node makes several outputs, which `Pick` nodes take."""
    return type(node.layout) is tuple


def on_stream_of(node: Node) -> contextlib.AbstractContextManager[None]:
    """A scope whose ops run where `node` does."""
    if node.stream is None or node.stream is state.current_stream():
        return contextlib.nullcontext()
    return state.stream(node.stream)


def outputs_of(op: str, result: Any) -> list[array]:
    """What a function of arrays returned, an array or a list or tuple of arrays, as a list; raises ValueError for
    anything else.
    """
    found = [result] if type(result) is array else result
    if not isinstance(found, (list, tuple)) or any(type(r) is not array for r in found):
        raise ValueError(
            f"[{op}] The function must return an array, or a list or tuple of arrays; it returned {_kind(result)}."
        )
    return list(found)


def _kind(result: Any) -> str:
    if isinstance(result, (list, tuple)):
        return f"a {type(result).__name__} with a {next(type(r).__name__ for r in result if type(r) is not array)}"
    return f"a {type(result).__name__}"
