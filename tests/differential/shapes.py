"""Shapes, joining, indexing, creation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.differential.registry import OPS, Case, Draw, array, axes, axis, count, one_of, quiet, shape, whole
from tests.reference.strategies import NUMBERS, broadcastable
from tests.reference.wire import Array, Call, Dtype, Program

ANY = ("float32", "int32", "bool", "bfloat16", "complex64", "uint8")


def _any(draw: Draw, **limits: int) -> tuple[Array, int]:
    of = shape(draw, **limits)
    return array(draw, one_of(draw, *ANY), of), len(of)


def _indices(draw: Draw, low: int, high: int, of: tuple[int, ...], dtype: str = "int32") -> Array:
    rng = np.random.default_rng(whole(draw, 0, 1 << 30))
    return Array(dtype, rng.integers(low, high, of, dtype=np.int64).astype(dtype))


@OPS.add("reshape")
def _reshape(draw: Draw, name: str) -> Case:
    a, _ = _any(draw)
    total = count(a.resolved().shape)
    divisors = [n for n in range(1, total + 1) if total % n == 0] or [0, 3]
    first = draw(st.sampled_from(divisors))
    target = one_of(
        draw, (total,), (-1,), (first, -1), (first, total // first if first else 0), (first, 2, -1), (5, total)
    )
    return Case(Call(name, (a, target)))


@OPS.add("flatten")
def _flatten(draw: Draw, name: str) -> Case:
    a, ndim = _any(draw)
    return Case(Call(name, (a, axis(draw, ndim), axis(draw, ndim))))


@OPS.add("unflatten")
def _unflatten(draw: Draw, name: str) -> Case:
    a, ndim = _any(draw, rank_min=1)
    return Case(Call(name, (a, axis(draw, ndim), one_of(draw, (1, -1), (-1,), (2, -1), (3, 3)))))


@OPS.add("squeeze expand_dims")
def _squeeze(draw: Draw, name: str) -> Case:
    a, ndim = _any(draw)
    along = axes(draw, ndim)
    if name == "expand_dims":
        along = whole(draw, -ndim - 2, ndim + 1) if draw(st.booleans()) else [0, ndim + 1]
    return Case(Call(name, (a, along)))


@OPS.add("transpose permute_dims")
def _transpose(draw: Draw, name: str) -> Case:
    a, ndim = _any(draw)
    order = list(draw(st.permutations(range(ndim))))
    if whole(draw, 0, 9) == 9:
        order = [*order, 0]
    return Case(Call(name, (a, order if name == "permute_dims" or draw(st.booleans()) else None)))


@OPS.add("swapaxes moveaxis")
def _swap(draw: Draw, name: str) -> Case:
    a, ndim = _any(draw)
    return Case(Call(name, (a, axis(draw, ndim), axis(draw, ndim))))


@OPS.add("atleast_1d atleast_2d atleast_3d")
def _atleast(draw: Draw, name: str) -> Case:
    return Case(Call(name, (_any(draw)[0],)))


@OPS.add("broadcast_to broadcast_arrays")
def _broadcast(draw: Draw, name: str) -> Case:
    first, second = draw(broadcastable(2, elements_max=128))
    a = array(draw, one_of(draw, *ANY), first)
    if name == "broadcast_to":
        return Case(Call(name, (a, second)))
    return Case(Call(name, (a, array(draw, "float32", second))))


@OPS.add("as_strided")
def _as_strided(draw: Draw, name: str) -> Case:
    base = array(draw, one_of(draw, *ANY), (64,), views=False)
    sides, strides = ([whole(draw, 1, 4) for _ in range(2)] for _ in range(2))
    return Case(Call(name, (base, sides, strides, whole(draw, 0, 20))))


@OPS.add("concatenate concat stack")
def _join(draw: Draw, name: str) -> Case:
    of = shape(draw, rank_min=0 if name == "stack" else 1)
    ndim = len(of)
    along = axis(draw, ndim) if ndim else 0
    parts = []
    for _ in range(whole(draw, 1, 4)):
        side = list(of)
        if name != "stack" and -ndim <= along < ndim:
            side[along] = whole(draw, 0, 5)
        parts.append(array(draw, one_of(draw, "float32", "int32", "float16"), tuple(side), special=False))
    return Case(Call(name, (parts, along)))


@OPS.add("split")
def _split(draw: Draw, name: str) -> Case:
    a, ndim = _any(draw, rank_min=1)
    return Case(Call(name, (a, one_of(draw, 1, 2, 3, [1], [1, 3], [0, 2, 2]), axis(draw, ndim))))


@OPS.add("unstack")
def _unstack(draw: Draw, name: str) -> Case:
    a, ndim = _any(draw, rank_min=1)
    return Case(Call(name, (a, axis(draw, ndim))))


@OPS.add("pad", examples=40)
def _pad(draw: Draw, name: str) -> Case:
    of = shape(draw, rank_min=1, side_min=1, rank_max=3, elements_max=64)
    a = array(draw, one_of(draw, "float32", "int32"), of, special=False)
    width = one_of(draw, 1, (1, 2), [(whole(draw, 0, 3), whole(draw, 0, 3)) for _ in of])
    mode = one_of(draw, "constant", "edge")
    return Case(Call(name, (a, width, mode), {"constant_values": one_of(draw, 0, 7)} if mode == "constant" else {}))


@OPS.add("repeat")
def _repeat(draw: Draw, name: str) -> Case:
    a, ndim = _any(draw, elements_max=32)
    return Case(Call(name, (a, whole(draw, 0, 3), axis(draw, ndim) if draw(st.booleans()) else None)))


@OPS.add("tile")
def _tile(draw: Draw, name: str) -> Case:
    a, _ndim = _any(draw, elements_max=32)
    return Case(Call(name, (a, one_of(draw, 2, [], [2], [1, 2, 3], [2, 1]))))


@OPS.add("roll flip")
def _roll(draw: Draw, name: str) -> Case:
    a, ndim = _any(draw)
    along = axes(draw, ndim)
    return Case(Call(name, (a, along) if name == "flip" else (a, whole(draw, -9, 9), along)))


@OPS.add("meshgrid")
def _meshgrid(draw: Draw, name: str) -> Case:
    vectors = [array(draw, "float32", (whole(draw, 0, 5),)) for _ in range(whole(draw, 1, 3))]
    return Case(Call(name, tuple(vectors), {"sparse": draw(st.booleans()), "indexing": one_of(draw, "xy", "ij")}))


@OPS.add("diag diagonal")
def _diag(draw: Draw, name: str) -> Case:
    a, _ = _any(draw, rank_min=1, rank_max=2 if name == "diag" else 4)
    return Case(Call(name, (a, whole(draw, -3, 3))))


@OPS.add("tril triu")
def _triangle(draw: Draw, name: str) -> Case:
    a, _ = _any(draw, rank_min=1)
    return Case(Call(name, (a, whole(draw, -3, 3))))


@OPS.add("take", examples=40)
def _take(draw: Draw, name: str) -> Case:
    of = shape(draw, rank_min=1, side_min=1)
    a = array(draw, one_of(draw, *ANY), of)
    along = whole(draw, -len(of), len(of) - 1) if draw(st.booleans()) else None
    side = of[along] if along is not None else count(of)
    indices = _indices(draw, -side, side, shape(draw, rank_max=2, elements_max=32), one_of(draw, "int32", "int64"))
    return Case(Call(name, (a, indices, along)))


@OPS.add("take_along_axis put_along_axis", examples=40)
def _along_axis(draw: Draw, name: str) -> Case:
    of = shape(draw, rank_min=1, side_min=1)
    a = array(draw, one_of(draw, *ANY), of)
    along = whole(draw, -len(of), len(of) - 1)
    side = of[along]
    rng = np.random.default_rng(whole(draw, 0, 1 << 30))
    moved = [n for i, n in enumerate(of) if i != along % len(of)]
    rows = np.stack([rng.permutation(side) for _ in range(math.prod(moved))]).reshape(*moved, side)
    indices = Array("int32", np.moveaxis(rows[..., : whole(draw, 1, side)], -1, along).astype(np.int32))
    if name == "take_along_axis":
        return Case(Call(name, (a, indices, along)))
    return Case(Call(name, (a, indices, array(draw, a.dtype, indices.stored.shape), along)))


@OPS.add("slice")
def _slice(draw: Draw, name: str) -> Case:
    a = array(draw, one_of(draw, *ANY), (7, 9))
    start = _indices(draw, 0, 4, (2,))
    return Case(Call(name, (a, start, (0, 1), (whole(draw, 1, 3), whole(draw, 1, 5)))))


@OPS.add("slice_update")
def _slice_update(draw: Draw, name: str) -> Case:
    dtype = one_of(draw, *ANY)
    a, update = array(draw, dtype, (7, 9)), array(draw, dtype, (whole(draw, 1, 3), whole(draw, 1, 5)))
    return Case(Call(name, (a, update, _indices(draw, 0, 4, (2,)), (0, 1))))


@OPS.add("zeros ones empty")
def _filled(draw: Draw, name: str) -> Case:
    of = one_of(draw, shape(draw), 3, [2, 2], (-1,))
    dtype = Dtype(one_of(draw, *NUMBERS))
    if name == "empty":  # what it holds is free
        return Case(
            Program("a = mx.empty(shape, dtype)\nout = [list(a.shape), a.dtype]", {"shape": of, "dtype": dtype})
        )
    return Case(Call(name, (of, dtype)))


@OPS.add("zeros_like ones_like empty_like full_like")
def _filled_like(draw: Draw, name: str) -> Case:
    a = _any(draw)[0]
    if name == "empty_like":
        return Case(Program("b = mx.empty_like(a)\nout = [list(b.shape), b.dtype]", {"a": a}))
    return Case(Call(name, (a, 3) if name == "full_like" else (a,)))


@OPS.add("full")
def _full(draw: Draw, name: str) -> Case:
    value = one_of(draw, 3, 2.5, True, array(draw, one_of(draw, *ANY), ()))
    dtype = one_of(draw, None, Dtype("float32"), Dtype("int8"), Dtype("bool"))
    if isinstance(value, Array) or dtype != Dtype("float32"):
        dtype = None  # which the reference takes from the values where they are an array, or of a wider type
    return Case(Call(name, (shape(draw), value, dtype)))


@OPS.add("arange", examples=60)
def _arange(draw: Draw, name: str) -> Case:
    kind = one_of(draw, "integers", "floats")
    numbers = st.integers(-50, 50) if kind == "integers" else st.sampled_from((0.0, 0.5, -3.0, 10.0, 7.25))
    steps = st.sampled_from((1, 2, -1, 3)) if kind == "integers" else st.sampled_from((0.5, 0.25, -1.0))
    dtype = one_of(draw, None, Dtype("int32"), Dtype("float32"), Dtype("uint8")) if kind == "integers" else None
    low, high, step = draw(numbers), draw(numbers), draw(steps)
    if dtype == Dtype("uint8"):
        low, high = abs(low), abs(high)
    return Case(Call(name, (low, high, step, dtype)))


@OPS.add("linspace")
def _linspace(draw: Draw, name: str) -> Case:
    # The reference steps in float32: a few units of the larger end.
    start, stop = (one_of(draw, 0, 1, -3.5, 100) for _ in range(2))
    return Case(Call(name, (start, stop, whole(draw, 0, 40))), tolerance="sum", magnitude=np.float64(100.0))


@OPS.add("eye identity tri")
def _eye(draw: Draw, name: str) -> Case:
    n, m, k = whole(draw, 0, 7), one_of(draw, None, 3, 5), whole(draw, -3, 3)
    dtype = Dtype(one_of(draw, "float32", "int32", "bool", "bfloat16"))
    return Case(Call(name, (n, dtype) if name == "identity" else (n, m, k, dtype)))


@OPS.add("bartlett hanning hamming blackman", examples=10)
def _windows(draw: Draw, name: str) -> Case:
    return Case(Call(name, (whole(draw, -1, 40),)), tolerance="sum", magnitude=np.float64(2.0))


@OPS.add("array asarray")
def _array(draw: Draw, name: str) -> Case:
    nested = one_of(draw, 3, 2.5, True, [1, 2], [[1.5], [2]], [], [True, 2], (1, (2,)), [1, 1 << 40], "text", None, 1j)
    dtype = one_of(draw, None, Dtype("float32"), Dtype("int16"))
    if dtype == Dtype("int16") and nested == [1, 1 << 40]:
        dtype = None  # the reference tells numbers beyond 32 bits from those beyond the type, and wraps the latter
    return Case(Call(name, (nested, dtype)))


_KEYS = st.one_of(
    st.integers(-8, 8), st.just(None), st.just(Ellipsis),
    st.builds(slice, st.none() | st.integers(-9, 9), st.none() | st.integers(-9, 9), st.sampled_from((None, 1, 2, -1, -3))),
)  # fmt: skip


def _key(draw: Draw) -> Any:
    parts = draw(st.lists(_KEYS, min_size=1, max_size=4))
    if parts.count(Ellipsis) > 1:
        parts = [p for p in parts if p is not Ellipsis] or [Ellipsis]
    if draw(st.booleans()):
        at = whole(draw, 0, len(parts))
        parts.insert(at, _indices(draw, -3, 3, one_of(draw, (2,), (), (3, 1)), one_of(draw, "int32", "int64", "uint8")))
    return tuple(parts) if len(parts) > 1 or draw(st.booleans()) else parts[0]


def _bounded(key: Any, of: tuple[int, ...]) -> Any:
    """Integers within the sides that they index: the reference does not check them."""
    parts = list(key) if isinstance(key, tuple) else [key]
    taken = sum(1 for p in parts if p is not None and p is not Ellipsis)
    place, bounded = 0, []
    for part in parts:
        if part is Ellipsis:
            place += max(len(of) - taken, 0)
        elif isinstance(part, int) and place < len(of) and of[place]:
            part = part % of[place] - (of[place] if part < 0 else 0)
        if part is not None and part is not Ellipsis:
            place += 1
        bounded.append(part)
    return tuple(bounded) if isinstance(key, tuple) else bounded[0]


def _box(draw: Draw) -> tuple[int, ...]:
    """One to four axes that every drawn index fits."""
    return tuple(whole(draw, 3, 6) for _ in range(whole(draw, 1, 4)))


@OPS.add("array.__getitem__", examples=150)
def _getitem(draw: Draw, name: str) -> Case:
    of = _box(draw)
    a = array(draw, one_of(draw, "float32", "int32", "bfloat16"), of, special=False)
    key = _unsigned_within(_bounded(_key(draw), of))
    return Case(Program("out = a[key]", {"a": a, "key": key}))


def _unsigned_within(key: Any) -> Any:
    def fix(part: Any) -> Any:
        if isinstance(part, Array) and part.dtype == "uint8":
            return Array("uint8", part.stored % 3)
        return part

    return tuple(map(fix, key)) if isinstance(key, tuple) else fix(key)


def _selects_nothing(key: Any, of: tuple[int, ...]) -> bool:
    parts = key if isinstance(key, tuple) else (key,)
    taken = quiet(lambda: np.zeros(of)[tuple(p.stored if isinstance(p, Array) else p for p in parts)])
    return taken is not None and not np.size(taken)


@OPS.add("array.__setitem__", examples=150)
def _setitem(draw: Draw, name: str) -> Case:
    of = _box(draw)
    a = array(draw, one_of(draw, "float32", "int32"), of, special=False)
    key = _unsigned_within(_bounded(_key(draw), of))
    if _selects_nothing(key, of):
        key = Ellipsis  # the reference ends the process, or raises for a length below zero
    value = one_of(draw, 5, array(draw, a.dtype, ()))
    return Case(Program("a[key] = value\nout = a", {"a": a, "key": key, "value": value}))


@OPS.add("array.at", examples=60)
def _at(draw: Draw, name: str) -> Case:
    of = _box(draw)
    a = array(draw, one_of(draw, "float32", "int32"), of, special=False, low=1, high=4)
    rows = _indices(draw, -of[0], of[0], (whole(draw, 1, 6),))
    method = one_of(draw, "add", "subtract", "multiply", "maximum", "minimum")
    return Case(
        Program(f"out = a.at[rows].{method}(value)", {"a": a, "rows": rows, "value": 2}), tolerance="sum",
        magnitude=np.float64(64.0),
    )  # fmt: skip
