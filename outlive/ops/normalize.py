"""Normalizations over the last axis, computed in float32 and rounded once."""

from __future__ import annotations

from typing import Any

from outlive.graph.array import apply, array
from outlive.graph.primitive import Primitive
from outlive.ops import reduce
from outlive.ops.common import Dtype, Plans, as_array, dtypes, layout, promote
from outlive.ops.creation import ones
from outlive.ops.elementwise import add, multiply, subtract
from outlive.ops.matmul import cast
from outlive.ops.shape import broadcast_to, moveaxis, sum_to
from outlive.ops.slicing import one_by_one
from outlive.ops.unary import rsqrt, square


class RMSNorm(Primitive):
    """x / sqrt(mean(x^2) + eps) * weight. Reads x and, where there is one, the weight."""

    __slots__ = ("eps",)
    name = "rms_norm"
    donates = False
    eps: float

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        x = reads[0]
        if not x.size:
            return
        mean = (x * x).mean(axis=-1, keepdims=True, dtype=_wide(xp, x))
        scaled = x * (1 / xp.sqrt(mean + self.eps)).astype(x.dtype)
        writes[0][...] = scaled if len(reads) == 1 else scaled * reads[1]

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        x, *weight = [_float32(a) for a in primals]
        cotangent = _float32(cotangents[0])
        scale = rsqrt(add(reduce.mean(square(x), -1, True), self.eps))
        normal = multiply(x, scale)
        given = multiply(cotangent, weight[0]) if weight else cotangent
        made = []
        for i in argnums:
            if i:
                made.append(_like(sum_to(multiply(cotangent, normal), primals[1].shape), primals[1]))
            else:
                along = multiply(normal, reduce.mean(multiply(given, normal), -1, True))
                made.append(_like(multiply(scale, subtract(given, along)), primals[0]))
        return made

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        x, *weight = [_float32(a) for a in primals]
        scale = rsqrt(add(reduce.mean(square(x), -1, True), self.eps))
        normal = multiply(x, scale)
        total: array | None = None
        for i, t in zip(argnums, tangents, strict=True):
            t = _float32(t)
            if i:
                term = multiply(normal, t)
            else:
                term = multiply(scale, subtract(t, multiply(normal, reduce.mean(multiply(t, normal), -1, True))))
                term = multiply(term, weight[0]) if weight else term
            total = term if total is None else add(total, term)
        return [cast(total, primals[0].dtype)]  # type: ignore[arg-type]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        if any(axis is not None for axis in axes[1:]):
            return one_by_one(lambda x, w: rms_norm(x, w, self.eps), inputs, axes)
        return [rms_norm(moveaxis(inputs[0], axes[0], 0), inputs[1] if len(inputs) > 1 else None, self.eps)], [0]


class LayerNorm(Primitive):
    """(x - mean(x)) / sqrt(var(x) + eps) * weight + bias. Reads x, then weight, then bias; a bias comes with a weight."""

    __slots__ = ("eps",)
    name = "layer_norm"
    donates = False
    eps: float

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        x = reads[0]
        if not x.size:
            return
        wide = _wide(xp, x)
        centred = x - x.mean(axis=-1, keepdims=True, dtype=wide).astype(x.dtype)
        variance = (centred * centred).mean(axis=-1, keepdims=True, dtype=wide)
        made = centred * (1 / xp.sqrt(variance + self.eps)).astype(x.dtype)
        for parameter, combine in zip(reads[1:], (xp.multiply, xp.add), strict=False):
            made = combine(made, parameter)
        writes[0][...] = made

    def _normal(self, x: array) -> tuple[array, array]:
        centred = subtract(x, reduce.mean(x, -1, True))
        scale = rsqrt(add(reduce.mean(square(centred), -1, True), self.eps))
        return multiply(centred, scale), scale

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        x, *parameters = [_float32(a) for a in primals]
        cotangent = _float32(cotangents[0])
        normal, scale = self._normal(x)
        made = []
        for i in argnums:
            if i == 2:
                made.append(_like(sum_to(cotangent, primals[2].shape), primals[2]))
            elif i == 1:
                made.append(_like(sum_to(multiply(cotangent, normal), primals[1].shape), primals[1]))
            else:
                given = multiply(cotangent, parameters[0]) if parameters else cotangent
                made.append(_like(self._back(given, normal, scale), primals[0]))
        return made

    def _back(self, given: array, normal: array, scale: array) -> array:
        """The derivative of the normalization, which is symmetric: it serves cotangents and tangents."""
        along = multiply(normal, reduce.mean(multiply(given, normal), -1, True))
        return multiply(scale, subtract(subtract(given, reduce.mean(given, -1, True)), along))

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        x, *parameters = [_float32(a) for a in primals]
        normal, scale = self._normal(x)
        total: array | None = None
        for i, t in zip(argnums, tangents, strict=True):
            term = _float32(t)
            if i == 0:
                term = self._back(term, normal, scale)
                term = multiply(term, parameters[0]) if parameters else term
            elif i == 1:
                term = multiply(normal, term)
            total = term if total is None else add(total, term)

        return [cast(broadcast_to(total, x.shape), primals[0].dtype)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        if any(axis is not None for axis in axes[1:]):
            return one_by_one(lambda *row: _layer_norm(row, self.eps, None), inputs, axes)
        return [_layer_norm((moveaxis(inputs[0], axes[0], 0), *inputs[1:]), self.eps, None)], [0]


def _wide(xp: Any, x: Any) -> Any:
    """The type of a sum over elements of `x`: wider than float32, so that a long row is not worse than a short one."""
    return xp.float64


def _float32(a: array) -> array:
    return a if a.dtype is dtypes.float64 else cast(a, dtypes.float32)


def _like(a: array, primal: array) -> array:
    return cast(a, primal.dtype)


def _checked(op: str, x: Any, parameters: dict[str, Any]) -> tuple[array, dict[str, array | None], Dtype]:
    x = as_array(x)
    if not x.ndim:
        raise ValueError(f"[{op}] x needs at least 1 dimension; got an array without axes.")
    if x.dtype.category is not dtypes.floating:
        raise ValueError(f"[{op}] Needs a real floating-point x; got {x.dtype.name}.")
    made: dict[str, array | None] = {}
    kind = x.dtype
    for name, given in parameters.items():
        made[name] = None if given is None else as_array(given)
        found = made[name]
        if found is None:
            continue
        if found.shape != (x.shape[-1],):
            raise ValueError(f"[{op}] The {name} must have shape ({x.shape[-1]},), x's last axis; got {found.shape}.")
        if name == "weight":
            kind = promote(kind, found.dtype)
    return x, made, kind


def rms_norm(x: Any, weight: Any, eps: float, *, stream: Any = None) -> array:
    """x / sqrt(mean(x^2) + eps) over the last axis, times `weight` (a vector of that length, or None).

    Computed in float32 and rounded once to the common type of `x` and `weight`. Raises ValueError where the shapes do
    not fit, and for types that are not real floating-point ones. Source: Zhang and Sennrich 2019, "Root Mean Square
    Layer Normalization".

    >>> mx.fast.rms_norm(mx.array([1.0, 1.0, 1.0, -1.0]), mx.array([1.0, 2.0, 3.0, 4.0]), 0.0)
    array([1, 2, 3, -4], dtype=float32)
    """
    key = None
    if type(x) is array and (weight is None or type(weight) is array):
        key = (x._node.layout, None if weight is None else weight._node.layout, eps)
        known = _norms.get(key)
        if known is not None:
            return apply(known, (x,) if weight is None else (x, weight), x._node.layout, stream)
    made, parameters, kind = _checked("rms_norm", x, {"weight": weight})
    found = parameters["weight"]
    op = RMSNorm.make(float(eps))
    if key is not None and made.dtype is kind:
        _norms.keep(key, op)
    made = cast(made, kind)
    return apply(op, (made,) if found is None else (made, found), made._node.layout, stream)


_norms = Plans()


def _layer_norm(inputs: tuple[array, ...], eps: float, stream: Any) -> array:
    x = inputs[0]
    return apply(LayerNorm.make(eps), inputs, layout(x.shape, x.dtype), stream)


def layer_norm(x: Any, weight: Any, bias: Any, eps: float, *, stream: Any = None) -> array:
    """(x - mean) / sqrt(variance + eps) over the last axis, times `weight`, plus `bias` (vectors of that length, or
    None).

    Computed in float32 and rounded once to the common type of `x` and `weight`. Raises ValueError where the shapes do
    not fit, and for types that are not real floating-point ones. Source: Ba, Kiros and Hinton 2016, "Layer
    Normalization".

    >>> mx.fast.layer_norm(mx.array([1.0, 3.0]), mx.array([2.0, 2.0]), None, 0.0)
    array([-2, 2], dtype=float32)
    """
    x, parameters, kind = _checked("layer_norm", x, {"weight": weight, "bias": bias})
    found, added = parameters["weight"], parameters["bias"]
    if added is not None and found is None:
        found = ones((x.shape[-1],), kind)
    inputs = [cast(x, kind), *[a for a in (found, added) if a is not None]]
    return _layer_norm(tuple(inputs), float(eps), stream)


__all__ = ["layer_norm", "rms_norm"]
