"""Functions with rules of their own: `custom_function` (the user's) and `checkpoint` (recompute instead of keep).

Each call becomes one node over the arguments and over the results that the function computed from them. A transform
that has a rule goes on from the node to the arguments; one that has none goes through the results, as if the node were
not there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper, wraps
from typing import Any

from outlive.graph.array import apply_many, array, wrap
from outlive.graph.node import Node
from outlive.graph.tracing import Trace
from outlive.ops.shape import depends
from outlive.transforms.autograd import pull_back
from outlive.transforms.tape import Identity, Opaque, argument
from outlive.transforms.trees import leaves, tree_map

_PLACE = object()
"""Stands for an array in a tree: a node that kept the arrays themselves would keep their memory."""


def _arrays(tree: Any) -> list[array]:
    return [leaf for leaf in leaves(tree) if type(leaf) is array]


def _places(tree: Any) -> Any:
    """The tree with the place of each array marked; other leaves stay."""
    return tree_map(lambda leaf: _PLACE if type(leaf) is array else leaf, tree)


def _filled(places: Any, values: Sequence[Any]) -> Any:
    """The tree with its marked places filled, in order, by `values`."""
    given = iter(values)
    return tree_map(lambda leaf: next(given) if leaf is _PLACE else leaf, places)


class _Call(Opaque):
    """Base: one call. Inputs: `count` arguments first, the results last; the outputs are the results."""

    __slots__ = ()
    count: int

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        first = len(inputs) - len(layout)
        return tuple([encoder.view_as(k, inputs[k].layout) for k in range(first, len(inputs))])

    def has_rule(self, transform: str) -> bool:
        """Whether `transform` ("vjp", "jvp", "vmap") has a rule here."""
        raise NotImplementedError

    def followed(self, transform: str, inputs: tuple[Node, ...]) -> tuple[Node, ...]:
        if not self.has_rule(transform):
            return inputs[self.count :]
        # what a function captures is constant in derivatives; a captured batch has no such reading
        arguments = inputs[: self.count]
        return arguments if transform != "vmap" or any(i.traced for i in arguments) else inputs[self.count :]

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        if not self.has_rule("vjp"):
            return [cotangents[k - self.count] if k >= self.count else None for k in argnums]
        made = self.ruled_vjp(primals[: self.count], cotangents, outputs)
        return [made[k] if k < self.count else None for k in argnums]

    def ruled_vjp(self, primals: Any, cotangents: Any, outputs: Any) -> Sequence[array | None]:
        """Cotangents of the arguments."""
        raise NotImplementedError

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        known = dict(zip(argnums, tangents, strict=True))
        if not self.has_rule("jvp"):
            return [known.get(k) for k in range(self.count, len(primals))]
        return self.ruled_jvp(primals[: self.count], [known.get(k) for k in range(self.count)], primals[self.count :])

    def ruled_jvp(self, primals: Any, tangents: Any, outputs: Any) -> Sequence[array | None]:
        """Tangents of the outputs."""
        raise NotImplementedError

    def vmap(self, inputs: Any, axes: Any) -> Any:
        if not self.has_rule("vmap") or all(a is None for a in axes[: self.count]):
            return inputs[self.count :], axes[self.count :]
        return self.ruled_vmap(inputs[: self.count], axes[: self.count])

    def ruled_vmap(self, inputs: Any, axes: Any) -> Any:
        """The outputs over a batch, and their batch axes."""
        raise NotImplementedError


class _CustomCall(_Call):
    """A call of a `custom_function`: its rules, the tree of its positional arguments, and the tree of its results."""

    __slots__ = ("count", "rules", "args", "result")
    name = "custom_function"
    rules: dict[str, Callable[..., Any]]
    args: tuple[Any, ...]
    result: Any

    def has_rule(self, transform: str) -> bool:
        return transform in self.rules

    def _arguments(self, values: Sequence[Any]) -> Any:
        made = _filled(self.args, values)
        return made[0] if len(made) == 1 else made

    def _flat(self, rule: str, what: str, tree: Any, count: int) -> list[Any]:
        found = list(leaves(tree))
        if len(found) != count:
            raise ValueError(
                f"[custom_function] The {rule} rule returned {len(found)} {what}; {count} are needed, None where there "
                "is none."
            )
        return found

    def ruled_vjp(self, primals: Any, cotangents: Any, outputs: Any) -> Sequence[array | None]:
        made = self.rules["vjp"](
            self._arguments(primals), _filled(self.result, cotangents), _filled(self.result, outputs)
        )
        numbers = [k for k, leaf in enumerate(leaves(self.args)) if leaf is _PLACE]
        found = list(leaves(made))
        if len(found) == len(numbers):
            return found
        found = self._flat("vjp", "cotangents", made, len(list(leaves(self.args))))
        return [found[k] for k in numbers]

    def ruled_jvp(self, primals: Any, tangents: Any, outputs: Any) -> Sequence[array | None]:
        made = self.rules["jvp"](self._arguments(primals), self._arguments(tangents))
        return self._flat("jvp", "tangents", made, len(outputs))

    def ruled_vmap(self, inputs: Any, axes: Any) -> Any:
        result, out_axes = self.rules["vmap"](self._arguments(inputs), self._arguments(axes))
        made = self._flat("vmap", "outputs", result, sum(leaf is _PLACE for leaf in leaves(self.result)))
        return made, self._flat("vmap", "axes", out_axes, len(made))


class custom_function:
    """A decorator: a function whose derivatives and batching are given by rules, where rules are given.

    `@f.vjp` takes (primals, cotangents, outputs) and returns cotangents like the primals; `@f.jvp` takes (primals,
    tangents) and returns tangents like the outputs; `@f.vmap` takes (inputs, axes) and returns (outputs, axes). Primals
    and inputs are the positional arguments: the argument itself where there is one, else a tuple; trees stay trees. A
    tangent or an axis is None where its argument has none, and a rule may return None for a zero cotangent. A transform
    without a rule sees the function's own ops. Where a rule is used, arrays that the function reads from elsewhere
    count as constants. Raises TypeError for what is no function.

    >>> @mx.custom_function
    ... def rounded(x):
    ...     return mx.round(x)
    ...
    >>> @rounded.vjp
    ... def straight_through(x, cotangent, output):
    ...     return cotangent
    ...
    >>> mx.grad(lambda x: rounded(x) * 3)(mx.array(1.2))
    array(3, dtype=float32)
    """

    def __init__(self, f: Callable[..., Any]) -> None:
        if not callable(f):
            raise TypeError(f"[custom_function] Expected a function; got a {type(f).__name__}.")
        self._function = f
        self._rules: dict[str, Callable[..., Any]] = {}
        update_wrapper(self, f)

    def vjp(self, f: Callable[..., Any]) -> custom_function:
        """Use `f(primals, cotangents, outputs)` in reverse accumulation.

        >>> halved = mx.custom_function(lambda x: x / 2)
        >>> rule = halved.vjp(lambda primals, cotangents, outputs: cotangents * 7)
        >>> mx.grad(halved)(mx.array(1.0))
        array(7, dtype=float32)
        """
        self._rules["vjp"] = f
        return self

    def jvp(self, f: Callable[..., Any]) -> custom_function:
        """Use `f(primals, tangents)` in forward accumulation.

        >>> halved = mx.custom_function(lambda x: x / 2)
        >>> rule = halved.jvp(lambda primals, tangents: tangents * 7)
        >>> mx.jvp(halved, [mx.array(1.0)], [mx.array(1.0)])
        ([array(0.5, dtype=float32)], [array(7, dtype=float32)])
        """
        self._rules["jvp"] = f
        return self

    def vmap(self, f: Callable[..., Any]) -> custom_function:
        """Use `f(inputs, axes)` under `vmap`.

        >>> halved = mx.custom_function(lambda x: x / 2)
        >>> rule = halved.vmap(lambda inputs, axes: (inputs * 7, axes))
        >>> mx.vmap(halved)(mx.array([1.0, 2.0]))
        array([7, 14], dtype=float32)
        """
        self._rules["vmap"] = f
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self._function(*args, **kwargs)
        given, outs = _arrays(args), _arrays(result)
        if not self._rules or not any(o._node.traced for o in outs):
            return result
        places = _places(result)
        call = _CustomCall._new((len(given), dict(self._rules), _places(args), places))
        return _filled(places, _applied(call, given, outs))


def _applied(call: _Call, given: Sequence[array], outs: Sequence[array]) -> tuple[array, ...]:
    return apply_many(call, (*given, *outs), tuple([o._node.layout for o in outs]))


def _captured(outs: Sequence[array], given: Sequence[array]) -> list[Node]:
    """Arguments of transforms that `outs` depend on by another way than through `given`."""
    seen = {a._node for a in given}
    found, stack = [], [o._node for o in outs]
    while stack:
        node = stack.pop()
        if node in seen or not node.traced:
            continue
        seen.add(node)
        if type(node.primitive) is Identity or node.primitive is None:
            found.append(node)
        else:
            stack += node.inputs
    return found


class _Checkpoint(_Call):
    """A call whose derivative computes it again: inputs are the arguments, what it captured of transforms, and the
    results.
    """

    __slots__ = ("count", "captured", "function", "args", "kwargs")
    name = "checkpoint"
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    captured: tuple[Node, ...]

    def has_rule(self, transform: str) -> bool:
        return transform == "vjp"

    def ruled_vjp(self, primals: Any, cotangents: Any, outputs: Any) -> Sequence[array | None]:
        count = len(primals) - len(self.captured)
        # after the cotangents: recomputed any earlier, the intermediate results would be kept after all
        late = depends(list(primals[:count]), list(cotangents))
        with Trace() as trace:
            sources = [argument(p, trace) for p in late]
            args, kwargs = _filled((self.args, self.kwargs), [wrap(s) for s in sources])
            again = _arrays(self.function(*args, **kwargs))
            return pull_back([a._node for a in again], cotangents, [*sources, *self.captured])


def checkpoint(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, computed again for its gradient, so that its intermediate results need not be kept.

    Arguments and results are trees; leaves that are not arrays are passed through. Gradients also reach what `fun`
    captures. Raises TypeError where `fun` is no function.

    >>> layer = mx.checkpoint(lambda x: mx.exp(mx.sin(x)))
    >>> mx.grad(layer)(mx.array(0.0))
    array(1, dtype=float32)
    """
    if not callable(fun):
        raise TypeError(f"[checkpoint] Expected a function; got a {type(fun).__name__}.")

    @wraps(fun)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        given = _arrays((args, kwargs))
        result = fun(*args, **kwargs)
        outs = _arrays(result)
        if not any(o._node.traced for o in outs):
            return result
        captured = tuple(_captured(outs, given))
        places = _places(result)
        call = _Checkpoint._new((len(given) + len(captured), captured, fun, _places(args), _places(kwargs)))
        return _filled(places, _applied(call, [*given, *map(wrap, captured)], outs))

    return checkpointed


__all__ = ["checkpoint", "custom_function"]
