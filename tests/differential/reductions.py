"""Reductions, scans, orders and statistics."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.differential.registry import OPS, Case, Draw, array, axes, axis, is_float, one_of, quiet, shape, whole, wide
from tests.reference.strategies import FLOATS, REALS
from tests.reference.wire import Array, Call, Dtype


def _tuple(axis: Any) -> Any:
    return tuple(axis) if isinstance(axis, list) else axis


def _reduced(function: Any, values: np.ndarray, axis: Any, **options: Any) -> Any:
    return quiet(function, values, axis=_tuple(axis), **options)


@OPS.add("sum prod mean", examples=40)
def _sums(draw: Draw, name: str) -> Case:
    dtype = one_of(draw, *REALS, "complex64")
    a = array(draw, dtype, shape(draw), special=name != "prod", low=-2, high=2)
    along, keep = axes(draw, len(a.resolved().shape)), draw_bool(draw)
    call = Call(name, (a, along, keep))
    if name != "mean" and not is_float(dtype) and dtype != "complex64":
        return Case(call)
    function = {"sum": np.sum, "prod": np.prod, "mean": np.mean}[name]
    truth = _reduced(function, wide(a), along, keepdims=keep)
    return Case(call, truth=truth, magnitude=_reduced(function, np.abs(wide(a)), along, keepdims=keep))


def draw_bool(draw: Draw) -> bool:
    """True or False."""
    return one_of(draw, False, True)


@OPS.add("max min all any argmax argmin", examples=40)
def _extremes(draw: Draw, name: str) -> Case:
    dtype = one_of(draw, *REALS)
    extreme = name in ("max", "min", "argmax", "argmin")
    of = shape(draw, side_min=1 if extreme else 0, rank_min=1 if name.startswith("arg") else 0)
    a = array(draw, dtype, of)
    along = axes(draw, len(of))
    if name.startswith("arg"):
        along = axis(draw, len(of)) if draw_bool(draw) else None
        a = Array(dtype, np.nan_to_num(a.resolved()) if dtype in ("float16", "float32") else a.resolved())
        if dtype == "bfloat16":
            a = array(draw, dtype, of, special=False)
    return Case(Call(name, (a, along, draw_bool(draw))))


@OPS.add("minmax")
def _minmax(draw: Draw, name: str) -> Case:
    a = array(draw, one_of(draw, "float32", "int32", "float16"), shape(draw, side_min=1), special=False)
    return Case(Call(name, (a,), {"axis": axes(draw, len(a.resolved().shape)), "keepdims": draw_bool(draw)}))


@OPS.add("count_nonzero")
def _count(draw: Draw, name: str) -> Case:
    a = array(draw, one_of(draw, *REALS), shape(draw))
    return Case(Call(name, (a,), {"axis": axes(draw, len(a.resolved().shape))}))


@OPS.add("var std")
def _spread(draw: Draw, name: str) -> Case:
    a = array(draw, one_of(draw, *FLOATS), shape(draw, side_min=1), special=False)
    along, keep = axes(draw, len(a.resolved().shape)), draw_bool(draw)
    ddof = one_of(draw, 0, 1)
    function = {"var": np.var, "std": np.std}[name]
    truth = _reduced(function, wide(a), along, keepdims=keep, ddof=ddof)
    scale = None if truth is None else np.full(np.shape(truth), 100.0)
    return Case(Call(name, (a, along, keep, ddof)), truth=truth, magnitude=scale)


@OPS.add("median")
def _median(draw: Draw, name: str) -> Case:
    a = array(draw, one_of(draw, "float32", "int32", "float16"), shape(draw, side_min=1), special=False)
    along = axes(draw, len(a.resolved().shape))
    return Case(Call(name, (a, None if along == [] else along, draw_bool(draw))))


@OPS.add("logsumexp softmax")
def _exponentials(draw: Draw, name: str) -> Case:
    # The exponent of a small term carries the rounding of its distance from the largest: it stays within 4 units here.
    a = array(draw, one_of(draw, *FLOATS), shape(draw, rank_min=1, side_min=1), special=False, low=-2, high=2)
    along = axes(draw, len(a.resolved().shape))
    x = wide(a)
    top = _reduced(np.max, x, along, keepdims=True)
    if top is None:
        truth = None
    elif name == "softmax":
        e = np.exp(x - top)
        truth = e / _reduced(np.sum, e, along, keepdims=True)
    else:
        truth = np.log(_reduced(np.sum, np.exp(x - top), along, keepdims=True)) + top
    if name == "softmax":
        return Case(Call(name, (a, along), {"precise": draw_bool(draw)}), truth=truth)
    magnitude = None if truth is None else np.maximum(np.abs(truth), np.abs(top))
    return Case(Call(name, (a, along, True)), truth=truth, magnitude=magnitude)


@OPS.add("cumsum cumprod cumulative_sum cumulative_prod", examples=30)
def _sum_scans(draw: Draw, name: str) -> Case:
    dtype = one_of(draw, *REALS)
    a = array(draw, dtype, shape(draw, rank_min=1), special=False, low=-2, high=2)
    options: dict[str, Any] = {"axis": axis(draw, len(a.resolved().shape))}
    options |= {"reverse": draw_bool(draw), "inclusive": one_of(draw, True, False)}
    return Case(Call(name, (a,), options), tolerance="cumsum", **_scan_truth(name, a, **options))


def _scan_truth(name: str, a: Array, axis: int, reverse: bool, inclusive: bool) -> dict[str, Any]:
    if not is_float(a.dtype):
        return {}
    function = np.cumsum if name.endswith("sum") else np.cumprod

    def scan(x: np.ndarray) -> Any:
        x = np.flip(x, axis) if reverse else x
        out = function(x, axis=axis)
        if not inclusive:
            first = np.full_like(np.take(out, [0], axis), 0.0 if name.endswith("sum") else 1.0)
            out = np.concatenate([first, np.delete(out, -1, axis)], axis)
        return np.flip(out, axis) if reverse else out

    if not a.resolved().size:
        return {}
    return {"truth": quiet(scan, wide(a)), "magnitude": quiet(scan, np.abs(wide(a)))}


@OPS.add("cummax cummin logcumsumexp")
def _other_scans(draw: Draw, name: str) -> Case:
    dtype = "float32" if name == "logcumsumexp" else one_of(draw, *REALS)
    a = array(draw, dtype, shape(draw, rank_min=1), special=False)
    options = {"axis": axis(draw, len(a.resolved().shape)), "reverse": draw_bool(draw)}
    return Case(Call(name, (a,), options), magnitude=np.float64(20.0))


@OPS.add("sort")
def _sort(draw: Draw, name: str) -> Case:
    a = array(draw, one_of(draw, *REALS), shape(draw, rank_min=1))
    return Case(Call(name, (a, axis(draw, len(a.resolved().shape)))))


def _distinct(draw: Draw, of: tuple[int, ...]) -> Array:
    rng = np.random.default_rng(whole(draw, 0, 1 << 30))
    return Array.of(rng.permutation(int(np.prod(of))).astype(np.float32).reshape(of))


@OPS.add("argsort")
def _argsort(draw: Draw, name: str) -> Case:
    a = _distinct(draw, shape(draw, rank_min=1))
    return Case(Call(name, (a, axis(draw, a.stored.ndim))))


@OPS.add("partition argpartition topk")
def _partition(draw: Draw, name: str) -> Case:
    # Only what the functions promise is compared: the element at its place, or the set of the largest.
    a = _distinct(draw, shape(draw, rank_min=1, side_min=1))
    side = a.stored.shape[-1]
    k = whole(draw, 0, side - 1)
    if name == "topk":
        from tests.reference.wire import Program

        return Case(Program("out = mx.sort(mx.topk(a, k), -1)", {"a": a, "k": max(k, 1)}))
    from tests.reference.wire import Program

    body = (
        "taken = mx.take_along_axis(a, mx.argpartition(a, k), -1)"
        if name == "argpartition"
        else "taken = mx.partition(a, k)"
    )
    return Case(
        Program(
            f"{body}\nout = [mx.sort(taken[..., :k], -1), taken[..., k], mx.sort(taken[..., k:], -1)]", {"a": a, "k": k}
        )
    )


@OPS.add("searchsorted")
def _searchsorted(draw: Draw, name: str) -> Case:
    dtype = one_of(draw, "float32", "int32")
    ordered = array(draw, dtype, (whole(draw, 0, 40),), special=False, views=False)
    values = array(draw, dtype, shape(draw), special=False)
    return Case(Call(name, (Array(dtype, np.sort(ordered.stored)), values), {"side": one_of(draw, "left", "right")}))


@OPS.add("diff")
def _diff(draw: Draw, name: str) -> Case:
    a = array(draw, one_of(draw, "float32", "int32", "bool"), shape(draw, rank_min=1), special=False)
    return Case(Call(name, (a,), {"n": whole(draw, 0, 3), "axis": axis(draw, len(a.resolved().shape))}))


@OPS.add("trace")
def _trace(draw: Draw, name: str) -> Case:
    a = array(draw, one_of(draw, "float32", "int32", "int8"), shape(draw, rank_min=1, side_min=1), special=False)
    of = a.resolved().shape
    # An offset beyond the matrix, or a matrix without rows, makes the reference sum for ever.
    offset = 0 if len(of) < 2 else whole(draw, 1 - of[0], of[1] - 1)
    dtype = one_of(draw, None, Dtype("float32"))
    return Case(Call(name, (a, offset), {"dtype": dtype}), tolerance="sum", magnitude=np.float64(200.0))


@OPS.add("unique")
def _unique(draw: Draw, name: str) -> Case:
    a = array(draw, one_of(draw, "int32", "float32", "uint8"), shape(draw), special=False, low=-3, high=3)
    return Case(Call(name, (a,)))
