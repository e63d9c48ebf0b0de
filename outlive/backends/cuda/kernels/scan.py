"""Routes of scans: one kernel for short rows; totals of pieces, what comes before each, and the pieces themselves for
long ones.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from outlive.backends.cuda.kernels.build import Kind, TritonKernel
from outlive.backends.cuda.kernels.rows import (
    ACCUMULATORS,
    FLOAT32_TYPES,
    LIMIT_GRID_X,
    LIMIT_GRID_Y,
    MIDDLE,
    POINTERS,
    SCRATCH_POINTERS,
    block_of,
    compiled,
    divisible,
    launch,
    pieces,
)
from outlive.backends.cuda.launches import Steps, step

if TYPE_CHECKING:
    from outlive.backends.cuda.kernels import Library

OPS = {"cumsum": "sum", "cumprod": "prod", "cummax": "max", "cummin": "min"}
BLOCK = 1024


def select_scan(library: Library, kernel: Any, reads: Any, writes: Any) -> Any:
    """cumsum, cumprod, cummax, cummin along one axis of a dense operand."""
    x, out = reads[0].layout, writes[0].layout
    if (
        x.dtype.name not in POINTERS
        or x.dtype.name == "bool"
        or x.dtype is not out.dtype
        or not x.contiguous
        or not out.contiguous
    ):
        return None
    kind = "d" if x.dtype.name == "float64" else "f" if x.dtype.name in FLOAT32_TYPES else x.dtype.name[0]
    accumulator = ACCUMULATORS[kind]
    op = OPS[kernel.name]
    low, high = extremes(x.dtype)
    count = x.shape[kernel.axis]
    inner = math.prod(x.shape[kernel.axis + 1 :])
    rows = x.size // count
    constants: dict[str, Any] = {
        "OP": op, "ACCUMULATOR": Kind(accumulator), "IDENTITY": {"sum": 0, "prod": 1, "max": low, "min": high}[op],
    }  # fmt: skip
    order = {"REVERSE": bool(kernel.reverse), "SHIFT": 0 if kernel.inclusive else 1}
    return _scan(library, x, rows, count, inner, MIDDLE[accumulator], constants, order)


def extremes(dtype: Any) -> tuple[Any, Any]:
    """The smallest and the largest value of an element type: what running extremes start from."""
    if dtype.inexact:
        return -math.inf, math.inf
    return int(np.iinfo(dtype.storage).min), int(np.iinfo(dtype.storage).max)


def _scan(
    library: Library,
    x: Any,
    rows: int,
    count: int,
    inner: int,
    middle: str,
    constants: dict[str, Any],
    order: dict[str, Any],
) -> Any:
    kind = POINTERS[x.dtype.name]
    parts = pieces(rows, count, library.facts.multiprocessors)
    if parts == 1:
        block = block_of(count, BLOCK)
        given = {**constants, "BLOCK": block, **order, "CARRIED": False, "p_carries": None}
        source = _source(
            "scan_pieces", {"p_x": kind, "p_carries": "constexpr", "p_out": kind}, given, count, count, inner
        )
        return launch(library, source, (rows, 1, 1), 2, (count, count, inner))
    part = -(-count // parts)
    part += -part % BLOCK
    parts = -(-count // part)
    if rows > LIMIT_GRID_X or parts > LIMIT_GRID_Y:
        return None
    given = {**constants, "BLOCK": BLOCK}
    fold = _source("fold_pieces", {"p_x": kind, "p_totals": middle}, {**given, **order}, count, part, inner)
    carry = compiled(
        "scan", "carry_pieces",
        {"p_totals": middle, "p_carries": middle, "parts": "i64", **dict.fromkeys(given, "constexpr")}, given, (), 4,
    )  # fmt: skip
    pointers = {"p_x": kind, "p_carries": middle, "p_out": kind}
    last = _source("scan_pieces", pointers, {**given, **order, "CARRIED": True}, count, part, inner)
    words = (count, part, inner, *SCRATCH_POINTERS)
    size = -(-rows * parts * (8 if middle[-2:] == "64" else 4) // 16) * 16
    return Steps(
        2 * size,
        [
            step(*library.load(fold), (rows, parts, 1), (0, 2), words),
            step(*library.load(carry), (rows, 1, 1), (2, (2, size)), (parts, *SCRATCH_POINTERS)),
            step(*library.load(last), (rows, parts, 1), (0, (2, size), 1), words),
        ],
    )


def _source(
    name: str, pointers: dict[str, str], constants: dict[str, Any], count: int, part: int, inner: int
) -> TritonKernel:
    arguments = {**pointers, "count": "i64", "part": "i64", "inner": "i64"}
    arguments |= {c: "constexpr" for c in constants if c not in pointers}
    return compiled("scan", name, arguments, constants, divisible(False, [], count=count, part=part, inner=inner), 4)


ROUTES = dict.fromkeys(OPS, select_scan)
