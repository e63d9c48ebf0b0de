"""Derivatives: `vjp` and `jvp` interpret a tape backward and forward, `grad` and `value_and_grad` are what people
call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from outlive.graph.array import array, wrap
from outlive.graph.node import Node
from outlive.graph.primitive import Pick, Primitive
from outlive.graph.tracing import Trace
from outlive.ops.creation import ones_like, zeros
from outlive.ops.elementwise import add
from outlive.transforms.tape import argument, between, is_group, on_stream_of, outputs_of, picks, placeholder
from outlive.transforms.trees import arrays_of, rebuild


def _zeros(node: Node) -> array:
    return zeros(node.layout.shape, node.layout.dtype)  # type: ignore[arg-type]  # the runtime knows types by protocol


def _grouped(tape: list[Node]) -> dict[Node, dict[int, Node]]:
    """The `Pick` nodes of each node with several outputs, by index."""
    found: dict[Node, dict[int, Node]] = {}
    for node in tape:
        if type(node.primitive) is Pick:
            found.setdefault(node.inputs[0], {})[node.primitive.index] = node
    return found


def pull_back(outputs: Sequence[Node], cotangents: Sequence[array], sources: Sequence[Node]) -> list[array]:
    """Cotangents of `sources` from those of `outputs` (reverse accumulation); zeros where nothing depends on a
    source.
    """
    tape = between(outputs, sources, "vjp")
    grouped = _grouped(tape)
    active = {*sources, *tape}
    found: dict[Node, array] = {}

    def accumulate(node: Node, cotangent: array) -> None:
        before = found.get(node)
        found[node] = cotangent if before is None else add(before, cotangent)

    for node, cotangent in zip(outputs, cotangents, strict=True):
        if node in active:
            accumulate(node, cotangent)
    for node in reversed(tape):
        if type(node.primitive) is Pick:
            continue
        if is_group(node):
            known = grouped[node]
            if not any(n in found for n in known.values()):
                continue
            outs = picks(node, known)
            with on_stream_of(node):
                given = tuple([found.pop(o._node) if o._node in found else _zeros(o._node) for o in outs])
        elif node in found:
            outs, given = (wrap(node),), (found.pop(node),)
        else:
            continue
        argnums = tuple([k for k, i in enumerate(node.inputs) if i in active])
        primals = tuple([wrap(i) for i in node.inputs])
        with on_stream_of(node):
            for k, made in zip(argnums, node.primitive.vjp(primals, given, argnums, outs), strict=True):  # type: ignore[union-attr]
                if made is not None:
                    accumulate(node.inputs[k], made)
    return [found[s] if s in found else _zeros(s) for s in sources]


def push_forward(outputs: Sequence[Node], sources: Sequence[Node], tangents: Sequence[array]) -> list[array]:
    """Tangents of `outputs` from those of `sources`; zeros where an output depends on none."""
    tape = between(outputs, sources, "jvp")
    grouped = _grouped(tape)
    found: dict[Node, array] = dict(zip(sources, tangents, strict=True))
    for node in tape:
        if type(node.primitive) is Pick:
            continue
        known = grouped.get(node, {})
        outs = picks(node, known) if is_group(node) else (wrap(node),)
        argnums = tuple([k for k, i in enumerate(node.inputs) if i in found])
        primals = tuple([wrap(i) for i in node.inputs])
        given = tuple([found[node.inputs[k]] for k in argnums])
        with on_stream_of(node):
            made = _jvp(node.primitive, primals, given, argnums, outs)  # type: ignore[arg-type]
        for out, tangent in zip(outs, made, strict=True):
            if tangent is not None:
                found[out._node] = tangent
    return [found[o] if o in found else _zeros(o) for o in outputs]


def _jvp(
    primitive: Primitive,
    primals: tuple[array, ...],
    tangents: tuple[array, ...],
    argnums: tuple[int, ...],
    outputs: tuple[array, ...],
) -> Sequence[array | None]:
    """The op's own rule, or the transpose of its vjp, which is linear in the cotangents: its own vjp with respect to
    them.
    """
    if type(primitive).jvp is not Primitive.jvp:
        return primitive.jvp(primals, tangents, argnums)
    with Trace() as trace:
        cotangents = [placeholder(o._node.layout, trace) for o in outputs]
        made = primitive.vjp(primals, tuple([wrap(c) for c in cotangents]), argnums, outputs)
        used = [(m._node, t) for m, t in zip(made, tangents, strict=True) if m is not None]
        return pull_back([m for m, _ in used], [t for _, t in used], cotangents)


def _checked_arrays(op: str, what: str, values: Any) -> list[array]:
    if not isinstance(values, (list, tuple)) or any(type(v) is not array for v in values):
        raise TypeError(f"[{op}] {what} must be a list or tuple of arrays.")
    return list(values)


def _matching(op: str, what: str, given: list[array], like: Sequence[array]) -> list[array]:
    """`given` cast to the types of `like`; raises ValueError where their number or shapes differ."""
    if len(given) != len(like):
        raise ValueError(f"[{op}] Got {len(given)} {what} for {len(like)} arrays; they must agree in number.")
    for k, (g, a) in enumerate(zip(given, like, strict=True)):
        if g.shape != a.shape:
            raise ValueError(
                f"[{op}] Number {k} of the {what} has shape {g.shape}; it must have its array's shape {a.shape}."
            )
    return [g if g.dtype is a.dtype else g.astype(a.dtype) for g, a in zip(given, like, strict=True)]


def vjp(
    fun: Callable[..., Any], primals: Sequence[array], cotangents: Sequence[array]
) -> tuple[list[array], list[array]]:
    """Outputs of `fun(*primals)`, and the product of `cotangents` with its Jacobian there.

    `fun` returns an array, or a list or tuple of arrays. `cotangents`: one for each output, of its shape (cast to its
    type). Returns the outputs and the cotangents of the primals, two lists. Raises ValueError for numbers or shapes
    that differ, and for ops without a derivative. Source: reverse accumulation (Speelpenning, 1980).

    >>> outputs, cotangents = mx.vjp(lambda x: x * x, [mx.array([1.0, 2.0])], [mx.array([1.0, 10.0])])
    >>> cotangents
    [array([2, 40], dtype=float32)]
    """
    given = _checked_arrays("vjp", "primals", primals)
    seeds = _checked_arrays("vjp", "cotangents", cotangents)
    with Trace() as trace:
        sources = [argument(p, trace) for p in given]
        outs = outputs_of("vjp", fun(*[wrap(s) for s in sources]))
        seeds = _matching("vjp", "cotangents", seeds, outs)
        return outs, pull_back([o._node for o in outs], seeds, sources)


def jvp(
    fun: Callable[..., Any], primals: Sequence[array], tangents: Sequence[array]
) -> tuple[list[array], list[array]]:
    """Outputs of `fun(*primals)`, and the product of its Jacobian there with `tangents`.

    `fun` returns an array, or a list or tuple of arrays. `tangents`: one for each primal, of its shape (cast to its
    type). Returns the outputs and their tangents, two lists. Raises ValueError for numbers or shapes that differ, and
    for ops without a derivative.

    >>> outputs, tangents = mx.jvp(lambda x: x * x, [mx.array([1.0, 2.0])], [mx.array([1.0, 10.0])])
    >>> tangents
    [array([2, 40], dtype=float32)]
    """
    given = _checked_arrays("jvp", "primals", primals)
    seeds = _matching("jvp", "tangents", _checked_arrays("jvp", "tangents", tangents), given)
    with Trace() as trace:
        sources = [argument(p, trace) for p in given]
        outs = outputs_of("jvp", fun(*[wrap(s) for s in sources]))
        return outs, push_forward([o._node for o in outs], sources, seeds)


def _positions(
    op: str, argnums: int | Sequence[int] | None, argnames: str | Sequence[str]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Which arguments to derive by: positions and keywords."""
    names = (argnames,) if isinstance(argnames, str) else tuple(argnames)
    if argnums is None:
        numbers: tuple[int, ...] = () if names else (0,)
    else:
        numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for n in numbers:
        if n < 0:
            raise ValueError(f"[{op}] Arguments are counted from 0; there is no argument {n}.")
    for kind, values in (("argument", numbers), ("keyword", names)):
        twice = next((v for k, v in enumerate(values) if v in values[:k]), None)
        if twice is not None:
            raise ValueError(f"[{op}] The {kind} {twice!r} is named twice.")
    if not numbers and not names:
        raise ValueError(f"[{op}] Name at least one argument to derive by, in argnums or argnames.")
    return numbers, names


def _check_call(
    op: str, numbers: tuple[int, ...], names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    for n in numbers:
        if n >= len(args):
            raise ValueError(
                f"[{op}] Cannot derive by argument {n}: the function was called with {len(args)} positional arguments."
            )
    for name in names:
        if name not in kwargs:
            raise ValueError(
                f"[{op}] Cannot derive by {name!r}: the function was called with the keywords {sorted(kwargs)}."
            )


def _value_and_grad(
    op: str,
    fun: Callable[..., Any],
    argnums: int | Sequence[int] | None,
    argnames: str | Sequence[str],
    loss_of: Callable[[Any], array],
) -> Callable[..., tuple[Any, Any]]:
    if not callable(fun):
        raise TypeError(f"[{op}] Expected a function; got a {type(fun).__name__}.")
    numbers, names = _positions(op, argnums, argnames)

    @wraps(fun)
    def derivative(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        _check_call(op, numbers, names, args, kwargs)
        by = [args[n] for n in numbers], {name: kwargs[name] for name in names}
        with Trace() as trace:
            sources = [argument(a, trace) for a in arrays_of(op, by)]
            listed, named = rebuild(by, iter([wrap(s) for s in sources]))
            called = list(args)
            for n, value in zip(numbers, listed, strict=True):
                called[n] = value
            result = fun(*called, **{**kwargs, **named})
            loss = loss_of(result)
            if loss.ndim:
                raise ValueError(
                    f"[{op}] The function must return a scalar (shape ()); it returned shape {loss.shape}."
                )
            cotangents = pull_back([loss._node], [ones_like(loss)], sources)
        listed, named = rebuild(by, iter(cotangents))
        positional = None if not numbers else listed[0] if len(numbers) == 1 else tuple(listed)
        return result, (positional, named) if names else positional

    return derivative


def _loss_alone(result: Any) -> array:
    if type(result) is not array:
        raise ValueError(f"[grad] The function must return one scalar array; it returned a {type(result).__name__}.")
    return result


def _loss_first(result: Any) -> array:
    if type(result) is array:
        return result
    if type(result) is tuple and result and type(result[0]) is array:
        return result[0]
    raise ValueError(
        "[value_and_grad] The function must return a scalar array, or a tuple that begins with one; it returned a "
        f"{type(result).__name__}."
    )


def value_and_grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] | None = None, argnames: str | Sequence[str] = ()
) -> Callable[..., tuple[Any, Any]]:
    """A function that returns what `fun` returns, and the gradient of its loss.

    `fun` takes arrays or trees of arrays (nested lists, tuples, dictionaries) and returns a scalar loss, or a tuple
    that begins with it; the rest of the tuple is passed through. `argnums`: positions to derive by (by default 0 where
    `argnames` is empty); `argnames`: keywords.

    The gradient has the structure of the argument; for several positions it is a tuple of such, and with `argnames` a
    pair of that and a dictionary by keyword. Raises ValueError for a loss that is not a scalar, for arguments that are
    not trees of arrays, and for ops without a derivative.

    >>> loss = lambda w, x: ((w * x) ** 2).sum()
    >>> mx.value_and_grad(loss)(mx.array(3.0), mx.array([1.0, 2.0]))
    (array(45, dtype=float32), array(30, dtype=float32))
    """
    return _value_and_grad("value_and_grad", fun, argnums, argnames, _loss_first)


def grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] | None = None, argnames: str | Sequence[str] = ()
) -> Callable[..., Any]:
    """A function that returns the gradient of `fun`, which returns one scalar array. Arguments and errors as in
    `value_and_grad`.

    >>> mx.grad(lambda x: x**3)(mx.array(2.0))
    array(12, dtype=float32)
    """
    derivative = _value_and_grad("grad", fun, argnums, argnames, _loss_alone)

    @wraps(fun)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        return derivative(*args, **kwargs)[1]

    return gradient
