"""`vmap`: a function over one more axis, by the batching rules of its ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from outlive.graph.array import array, wrap
from outlive.graph.node import Node
from outlive.graph.primitive import Pick
from outlive.graph.tracing import Trace
from outlive.ops.shape import broadcast_to, moveaxis
from outlive.runtime.layout import layout
from outlive.transforms.tape import between, is_group, on_stream_of, placeholder
from outlive.transforms.trees import arrays_of, paired, rebuild

Batched = tuple[array, int | None]
"""An array, and its batch axis (None: it has none)."""


def spread(outputs: Sequence[Node], sources: Sequence[Node], values: Sequence[Batched]) -> list[Batched]:
    """`outputs` over a batch, from batched `values` of `sources`."""
    found: dict[Node, Batched] = dict(zip(sources, values, strict=True))
    several: dict[Node, list[Batched]] = {}
    for node in between(outputs, sources, "vmap"):
        primitive = node.primitive
        assert primitive is not None
        if type(primitive) is Pick:
            found[node] = several[node.inputs[0]][primitive.index]
            continue
        inputs = [found.get(i) or (wrap(i), None) for i in node.inputs]
        with on_stream_of(node):
            made, axes = primitive.vmap(tuple([i for i, _ in inputs]), tuple([a for _, a in inputs]))
        batched = list(zip(made, axes, strict=True))
        if is_group(node):
            several[node] = batched
        else:
            found[node] = batched[0]
    return [found.get(o) or (wrap(o), None) for o in outputs]


def _checked_axis(what: str, axis: Any) -> int | None:
    if axis is not None and (not isinstance(axis, int) or isinstance(axis, bool)):
        raise ValueError(f"[vmap] {what} holds integers and None alone; found a {type(axis).__name__}.")
    return axis


def _input_axes(args: Any, in_axes: Any) -> tuple[list[array], list[int | None], int]:
    """Leaves of the arguments with their normal axes, and the length of the batch."""
    arrays_of("vmap", args)
    if len(args) == 1 and isinstance(in_axes, dict):
        in_axes = (in_axes,)
    pairs = paired("vmap", "in_axes", args, in_axes)
    given: list[array] = []
    axes: list[int | None] = []
    length: int | None = None
    for leaf, axis in pairs:
        given.append(leaf)
        if _checked_axis("in_axes", axis) is None:
            axes.append(None)
            continue
        if not -leaf.ndim <= axis < leaf.ndim:
            raise IndexError(f"[vmap] in_axes names axis {axis} of an array with shape {leaf.shape}.")
        axes.append(axis % leaf.ndim)
        n = leaf.shape[axis]
        if length is not None and n != length:
            raise ValueError(f"[vmap] All batch axes must have one length; found {length} and {n}.")
        length = n
    if length is None:
        raise ValueError("[vmap] At least one array must have a batch axis: give in_axes an integer for it.")
    return given, axes, length


def _laid_out(value: Batched, axis: int | None, length: int) -> array:
    """A batched result with its batch axis at `axis`."""
    made, at = value
    if axis is None:
        if at is not None:
            raise ValueError("[vmap] out_axes is None for an output that depends on the batch; give it an axis.")
        return made
    rank = made.ndim + (at is None)
    if not -rank <= axis < rank:
        raise IndexError(
            f"[vmap] out_axes names axis {axis} of an output with {rank} dimensions, the batch among them."
        )
    if at is None:
        made, at = broadcast_to(made, (length, *made.shape)), 0
    return made if at == axis % rank else moveaxis(made, at, axis % rank)


def vmap(fun: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """A function that computes `fun` for every place along a batch axis of its arguments, at once.

    `fun` takes and returns arrays or trees of arrays. `in_axes`, `out_axes`: an axis for all, or a prefix tree of the
    arguments (of the result) with an axis or None (not batched) at its leaves. An output that does not depend on the
    batch is repeated along it.

    Calling it raises ValueError where batch lengths differ, no argument is batched or an op has no batching rule,
    IndexError for an axis out of range, and TypeError for keyword arguments. Values are not at hand inside `fun`:
    evaluating there raises ValueError.

    >>> dot = lambda x, y: (x * y).sum()
    >>> mx.vmap(dot, in_axes=(0, None))(mx.array([[1, 2], [3, 4]]), mx.array([1, 10]))
    array([21, 43], dtype=int32)
    """
    if not callable(fun):
        raise TypeError(f"[vmap] Expected a function; got a {type(fun).__name__}.")

    @wraps(fun)
    def batched(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            raise TypeError("[vmap] A batched function takes positional arguments alone.")
        given, axes, length = _input_axes(args, in_axes)
        with Trace() as trace:
            sources, values = [], []
            for value, axis in zip(given, axes, strict=True):
                if axis is None:
                    continue
                shape = value.shape[:axis] + value.shape[axis + 1 :]
                sources.append(placeholder(layout(shape, value.dtype), trace))
                values.append((value, axis))
            one = iter(sources)
            called = rebuild(
                args, iter([v if a is None else wrap(next(one)) for v, a in zip(given, axes, strict=True)])
            )
            result = fun(*called)
            arrays_of("vmap", result)
            targets = paired("vmap", "out_axes", result, out_axes)
            made = spread([o._node for o, _ in targets], sources, values)
        laid = [_laid_out(v, _checked_axis("out_axes", a), length) for v, (_, a) in zip(made, targets, strict=True)]
        return rebuild(result, iter(laid))

    return batched
