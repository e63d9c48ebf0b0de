"""Elementwise kernels: unary, binary, select, casts and copies, over contiguous, broadcast and strided operands.

Arguments: the reads' pointers, the write's, then `Pattern.words`. One kernel serves one op, one pair of types and one
pattern of innermost strides; dimensions beyond the innermost are walked by an odometer whose sizes are static words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outlive.backends.cpu.abi import CpuKernel, Selection
from outlive.backends.cpu.kernels import library, math
from outlive.backends.cpu.kernels.emit import (
    BOOL,
    DOUBLE,
    FLOAT,
    HALF,
    I8,
    LANES,
    STORAGES,
    Emitter,
    Storage,
    Value,
)
from outlive.backends.cpu.kernels.layouts import Pattern, pattern

Function = Callable[..., Value]

_BLOCK = 4096  # elements of the innermost dimension that one step of the outer walk covers
_PART_ELEMENTS_CHEAP, _PART_ELEMENTS_DEAR = 32768, 4096


def maximum(k: Emitter, s: Storage, a: Value, b: Value) -> Value:
    if s.is_float:
        return k.float_maximum(a, b)
    return k.maximum(a, b, s.signed)


def minimum(k: Emitter, s: Storage, a: Value, b: Value) -> Value:
    if s.is_float:
        return k.float_minimum(a, b)
    return k.minimum(a, b, s.signed)


def _abs(k: Emitter, s: Storage, a: Value) -> Value:
    if s.is_float:
        return k.intrinsic("fabs", a)
    return k.select(a < 0, -a, a) if s.signed else a


def _sign(k: Emitter, s: Storage, a: Value) -> Value:
    zero, one = a.like(0), a.like(1)
    if not s.signed:
        return k.select(a.differs(0), one, zero)
    sign = k.select(a > 0, one, k.select(a < 0, -one, zero))
    return k.select(a.isnan(), a, sign) if s.is_float else sign


def _float_function(own: Callable[[Emitter, Value], Value] | None, name: str) -> Function:
    """Our polynomial for float32, the C library's function for float64 and where we have no polynomial."""

    def function(k: Emitter, s: Storage, a: Value) -> Value:
        return own(k, a) if own is not None and s.compute == FLOAT else k.intrinsic(name, a)

    return function


def _compare(operator: str) -> Function:
    return lambda k, s, a, b: a.compare(operator, b, s.signed)


def _erf(k: Emitter, s: Storage, a: Value) -> Value:
    return math.erf(k, a)


ANY, NUMBER, FLOATS, FLOAT32S, INTEGERS, BOOLS = "any", "number", "floats", "float32s", "integers", "bools"

UNARY: dict[str, tuple[str, bool, Function]] = {
    # op: types served, whether it is dear (worth sharing early), function
    "negative": (NUMBER, False, lambda k, s, a: -a),
    "abs": (NUMBER, False, _abs),
    "sign": (NUMBER, False, _sign),
    "square": (NUMBER, False, lambda k, s, a: a * a),
    "reciprocal": (FLOATS, False, lambda k, s, a: 1.0 / a),
    "sqrt": (FLOATS, False, _float_function(None, "sqrt")),
    "rsqrt": (FLOATS, False, lambda k, s, a: math.rsqrt(k, a)),
    "floor": (FLOATS, False, _float_function(None, "floor")),
    "ceil": (FLOATS, False, _float_function(None, "ceil")),
    "exp": (FLOATS, True, _float_function(math.exp, "exp")),
    "log": (FLOATS, True, _float_function(math.log, "log")),
    "sin": (FLOATS, True, _float_function(math.sin, "sin")),
    "cos": (FLOATS, True, _float_function(math.cos, "cos")),
    "tanh": (FLOAT32S, True, lambda k, s, a: math.tanh(k, a)),
    "sigmoid": (FLOAT32S, True, lambda k, s, a: math.sigmoid(k, a)),
    "erf": (FLOAT32S, True, _erf),
    "logical_not": (BOOLS, False, lambda k, s, a: a.equals(0)),
}
BINARY: dict[str, tuple[str, bool, Function]] = {
    "add": (NUMBER, False, lambda k, s, a, b: a + b),
    "subtract": (NUMBER, False, lambda k, s, a, b: a - b),
    "multiply": (NUMBER, False, lambda k, s, a, b: a * b),
    "divide": (FLOATS, False, lambda k, s, a, b: a / b),
    "maximum": (ANY, False, maximum),
    "minimum": (ANY, False, minimum),
    "power": (FLOATS, True, lambda k, s, a, b: k.intrinsic("pow", a, b)),
    "equal": (ANY, False, _compare("==")),
    "not_equal": (ANY, False, _compare("!=")),
    "less": (ANY, False, _compare("<")),
    "less_equal": (ANY, False, _compare("<=")),
    "greater": (ANY, False, _compare(">")),
    "greater_equal": (ANY, False, _compare(">=")),
    "logical_and": (BOOLS, False, lambda k, s, a, b: a & b),
    "logical_or": (BOOLS, False, lambda k, s, a, b: a | b),
    "bitwise_and": (INTEGERS, False, lambda k, s, a, b: a & b),
    "bitwise_or": (INTEGERS, False, lambda k, s, a, b: a | b),
    "bitwise_xor": (INTEGERS, False, lambda k, s, a, b: a ^ b),
}


def _serves(types: str, s: Storage) -> bool:
    return {
        ANY: True,
        NUMBER: s is not BOOL,
        FLOATS: s.is_float,
        FLOAT32S: s.compute == FLOAT,
        INTEGERS: not s.is_float,
        BOOLS: s is BOOL,
    }[types]


def cast(k: Emitter, source: Storage, target: Storage, value: Value) -> Value:
    """`value` as the target's compute type. Floats outside an integer's range become its smallest value, as on x86."""
    if target is BOOL:
        return value.differs(0) if source is not BOOL else value
    if source.is_float and not target.is_float:
        bits = target.compute.width
        limit = 2.0 ** (bits - 1)
        inside = value.compare(">=", -limit) & value.compare("<", limit)
        whole = k.select(inside, value, 0.0).convert(target.compute)
        return k.select(inside, whole, -(2 ** (bits - 1)))
    return k.convert(value, target.compute, source.signed)


def _castable(source: Storage, target: Storage) -> bool:
    if source.compute == DOUBLE and target.memory == HALF:
        return False  # through float32 it would round twice
    return not source.is_float or target.is_float or target is BOOL or target.name in ("int32", "int64")


def _emit_loop(
    k: Emitter, reads: tuple[Storage, ...], write: Storage, modes: str, function: Callable[..., Value], outer: bool
) -> None:
    """The loops around one function of LANES-wide values."""
    operands = len(modes)
    pointers = [k.pointer(i) for i in range(operands)]
    count = k.integer(operands)
    inner = [k.integer(operands + 1 + i) for i in range(operands)]
    scalars: dict[int, Value] = {}

    def step(bases: list[Value], i: Value, mask: Value | None) -> None:
        values = []
        for n, storage in enumerate(reads):
            if modes[n] == "s":
                values.append(scalars[n])
            elif modes[n] == "c":
                values.append(k.load(bases[n], i, storage, LANES, mask))
            else:
                values.append(k.gather(bases[n], i * inner[n], inner[n], storage, mask))
        result = function(*values)
        if write is BOOL and result.element.width == 1:
            result = result.convert(I8, signed=False)
        if modes[-1] == "c":
            k.store(bases[-1], i, result, write, mask)
        else:
            k.scatter(bases[-1], i * inner[-1], inner[-1], result, write, mask)

    def span(bases: list[Value], low: Value, high: Value) -> None:
        for n, storage in enumerate(reads):
            if modes[n] == "s":
                scalars[n] = k.splat(k.load(bases[n], 0, storage), LANES)
        whole = low + (high - low) // LANES * LANES
        with k.loop(low, whole, LANES) as i:
            step(bases, i, None)
        with k.when(whole < high):
            step(bases, whole, k.first_lanes(high - whole))

    if not outer:
        low, high = k.share(count, 64)
        with k.when(low < high):
            span(pointers, low, high)
        return
    _emit_odometer(k, pointers, count, (*reads, write), span)


def _emit_odometer(
    k: Emitter,
    pointers: list[Value],
    count: Value,
    storages: tuple[Storage, ...],
    span: Callable[[list[Value], Value, Value], None],
) -> None:
    """Walks the outer dimensions in order; each step covers a block of the innermost one."""
    operands = len(pointers)
    rank_word = 2 * operands + 1
    rank = k.integer(rank_word)
    dims, strides = rank_word + 1, rank + (rank_word + 1)
    rows = k.variable(1)
    with k.loop(0, rank) as axis:
        rows.set(rows.get() * k.integer(axis + dims))
    blocks = (count + (_BLOCK - 1)) // _BLOCK
    low, high = k.share(rows.get() * blocks)
    with k.loop(low, high) as step:
        row, block = step // blocks, step % blocks
        rest = k.variable(row)
        offsets = [k.variable(0) for _ in pointers]
        with k.loop(0, rank) as back:
            axis = rank - 1 - back
            size = k.integer(axis + dims)
            position = rest.get() % size
            rest.set(rest.get() // size)
            for n, offset in enumerate(offsets):
                offset.set(offset.get() + position * k.integer(strides + (rank * n + axis)))
        bases = [k.address(p, o.get(), s.bytes) for p, o, s in zip(pointers, offsets, storages, strict=True)]
        first = block * _BLOCK
        span(bases, first, k.minimum(first + _BLOCK, count))


def _kernel(
    op: str, reads: tuple[Storage, ...], write: Storage, p: Pattern, function: Callable[..., Value]
) -> CpuKernel:
    outer = "n" if p.dims else "f"
    name = "_".join((op, *(s.name for s in reads), write.name, p.modes, outer))
    return library.compiled(
        name, lambda k: _emit_loop(k, reads, write, p.modes, lambda *v: function(k, *v), outer == "n"), "elementwise"
    )


def _select(
    op: str,
    reads: tuple[Storage, ...],
    write: Storage,
    layouts: list,
    target,
    dear: bool,
    function: Callable[..., Value],
) -> Selection | None:
    p = pattern(layouts, target)
    if p is None:
        return None
    grain = _PART_ELEMENTS_DEAR if dear or "g" in p.modes else _PART_ELEMENTS_CHEAP
    return _kernel(op, reads, write, p, function), target.size // grain, p.words


def _storage(layout) -> Storage | None:
    return STORAGES.get(layout.dtype.name)


def _arithmetic(op: str, entry: tuple[str, bool, Function]) -> Callable[..., Selection | None]:
    types, dear, function = entry

    def select(reads: list, writes: list, params: Any) -> Selection | None:
        source, target = _storage(reads[0].layout), _storage(writes[0].layout)
        if source is None or target is None or any(r.layout.dtype.name != source.name for r in reads):
            return None
        if not _serves(types, source) or (target is not source and target is not BOOL):
            return None
        return _select(
            op,
            (source,) * len(reads),
            target,
            [r.layout for r in reads],
            writes[0].layout,
            dear,
            lambda k, *v: function(k, source, *v),
        )

    return select


def _select_cast(reads: list, writes: list, params: Any) -> Selection | None:
    source, target = _storage(reads[0].layout), _storage(writes[0].layout)
    if source is None or target is None or not _castable(source, target):
        return None
    return _select(
        "cast", (source,), target, [reads[0].layout], writes[0].layout, False, lambda k, v: cast(k, source, target, v)
    )


def _select_copy(reads: list, writes: list, params: Any) -> Selection | None:
    """A copy moves bits: half precision goes as integers, so that every NaN keeps its payload."""
    source = _storage(reads[0].layout)
    if source is None or reads[0].layout.dtype.name != writes[0].layout.dtype.name:
        return None
    raw = STORAGES[f"uint{8 * source.bytes}"]
    return _select("copy", (raw,), raw, [reads[0].layout], writes[0].layout, False, lambda k, v: v)


def _select_where(reads: list, writes: list, params: Any) -> Selection | None:
    condition, source = (_storage(x.layout) for x in reads[:2])
    if condition is not BOOL or source is None or len({x.layout.dtype.name for x in (*reads[1:], writes[0])}) != 1:
        return None
    raw = STORAGES[f"uint{8 * source.bytes}"]
    return _select(
        "select",
        (BOOL, raw, raw),
        raw,
        [r.layout for r in reads],
        writes[0].layout,
        False,
        lambda k, c, a, b: k.select(c.differs(0), a, b),
    )


ROUTES: dict[str, Callable[[list, list, Any], Selection | None]] = {
    **{op: _arithmetic(op, entry) for op, entry in (UNARY | BINARY).items()},
    "astype": _select_cast,
    "copy": _select_copy,
    "contiguous": _select_copy,
    "select": _select_where,
    "where": _select_where,
}
