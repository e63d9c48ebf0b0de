"""Routes of row kernels in Triton: softmax, norms, reductions over trailing or middle axes."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from outlive.backends.cuda.kernels.build import Kind, TritonKernel
from outlive.backends.cuda.launches import NativeLaunch, Steps, step

if TYPE_CHECKING:
    from outlive.backends.cuda.kernels import Library

POINTERS = {
    "bool": "*u8", "uint8": "*u8", "uint16": "*u16", "uint32": "*u32", "uint64": "*u64", "int8": "*i8", "int16": "*i16",
    "int32": "*i32", "int64": "*i64", "float16": "*fp16", "float32": "*fp32", "float64": "*fp64", "bfloat16": "*bf16",
}  # fmt: skip
"""Triton's pointer types by element type."""

FLOAT32_TYPES = ("float16", "float32", "bfloat16")
SCRATCH_POINTERS = (0, 0)
"""Every Triton kernel ends with two pointers to scratch memory, which ours do not use."""
LIMIT_GRID_X, LIMIT_GRID_Y = (1 << 31) - 1, 65535
ONE_PASS_ELEMENTS = 16384
LIMIT_ROW = 1 << 31
"""Rows are counted in 32 bits, offsets between rows in 64."""


def float_word(value: float) -> int:
    """A float32 as the low half of an argument word."""
    return struct.unpack("<i", struct.pack("<f", value))[0] & 0xFFFFFFFF


def compiled(
    module: str,
    name: str,
    arguments: dict[str, str],
    constants: dict[str, Any],
    divisible: tuple[str, ...],
    warps: int,
    stages: int = 2,
) -> TritonKernel:
    """The source of a kernel: `arguments` in order with their types, constants among them as "constexpr"."""
    return TritonKernel(module, name, tuple(arguments.items()), tuple(constants.items()), divisible, warps, stages)


def launch(
    library: Library, source: TritonKernel, grid: tuple[int, int, int], operands: int, words: tuple[int, ...]
) -> NativeLaunch | None:
    """A launch of a Triton kernel over its operands' pointers and argument words; None for a grid beyond the hardware's
    limit.
    """
    if grid[0] > LIMIT_GRID_X or grid[1] > LIMIT_GRID_Y or grid[2] > LIMIT_GRID_Y:
        return None
    function, made = library.load(source)
    return NativeLaunch(function, grid, made.threads, made.shared, operands, (*words, *SCRATCH_POINTERS))


def divisible(aligned: bool, pointers: list[str], **numbers: int) -> tuple[str, ...]:
    """The arguments known to be multiples of 16: every pointer where all operands are aligned, and such numbers."""
    return (*(pointers if aligned else ()), *[name for name, value in numbers.items() if value % 16 == 0])


def block_of(count: int, limit: int) -> int:
    """The power of two that covers `count`, at most `limit`."""
    return min(limit, 1 << max(0, count - 1).bit_length())


def _warps(block: int) -> int:
    return 4 if block <= 2048 else 8 if block <= 8192 else 16


def select_softmax(library: Library, kernel: Any, reads: Any, writes: Any, aligned: bool) -> NativeLaunch | None:
    """Softmax over the last axis of a dense operand."""
    x, out = reads[0].layout, writes[0].layout
    if (
        len(reads) != 1
        or not x.ndim
        or x.shape[-1] >= LIMIT_ROW
        or tuple(a % x.ndim for a in kernel.axes) != (x.ndim - 1,)
        or not _dense_floats(x, out)
    ):
        return None
    count = x.shape[-1]
    one = count <= ONE_PASS_ELEMENTS
    block = block_of(count, ONE_PASS_ELEMENTS if one else 4096)
    arguments = {
        "p_x": POINTERS[x.dtype.name],
        "p_out": POINTERS[out.dtype.name],
        "count": "i32",
        "BLOCK": "constexpr",
        "ONE": "constexpr",
    }
    source = compiled(
        "rows",
        "softmax",
        arguments,
        {"BLOCK": block, "ONE": one},
        divisible(aligned, ["p_x", "p_out"], count=count),
        _warps(block),
    )
    return launch(library, source, (x.size // count, 1, 1), 2, (count,))


def _dense_floats(*layouts: Any) -> bool:
    return all(s.contiguous and s.dtype.name in FLOAT32_TYPES for s in layouts)


def select_rms_norm(library: Library, kernel: Any, reads: Any, writes: Any, aligned: bool) -> NativeLaunch | None:
    """Root-mean-square norm over the last axis."""
    return _select_norm(library, kernel, reads, writes, aligned, "rms_norm", ("p_weight",), ("WEIGHTED",))


def select_layer_norm(library: Library, kernel: Any, reads: Any, writes: Any, aligned: bool) -> NativeLaunch | None:
    """Layer norm over the last axis, with a weight, a weight and a bias, or neither."""
    return _select_norm(
        library, kernel, reads, writes, aligned, "layer_norm", ("p_weight", "p_bias"), ("WEIGHTED", "BIASED")
    )


def _select_norm(
    library: Library,
    kernel: Any,
    reads: Any,
    writes: Any,
    aligned: bool,
    name: str,
    parameters: tuple[str, ...],
    flags: tuple[str, ...],
) -> NativeLaunch | None:
    x, out = reads[0].layout, writes[0].layout
    given = [o.layout for o in reads[1:]]
    if (
        len(writes) != 1
        or not x.ndim
        or x.shape[-1] >= LIMIT_ROW
        or not _dense_floats(x, out, *given)
        or any(g.shape != (x.shape[-1],) for g in given)
    ):
        return None
    count = x.shape[-1]
    one = count <= ONE_PASS_ELEMENTS
    block = block_of(count, ONE_PASS_ELEMENTS if one else 4096)
    constants: dict[str, Any] = {"BLOCK": block, "ONE": one}
    arguments = {"p_x": POINTERS[x.dtype.name]}
    for i, parameter in enumerate(parameters):
        present = i < len(given)
        arguments[parameter] = POINTERS[given[i].dtype.name] if present else "constexpr"
        if not present:
            constants[parameter] = None
        constants[flags[i]] = present
    pointers = [*arguments, "p_out"]
    arguments |= {
        "p_out": POINTERS[out.dtype.name],
        "count": "i32",
        "eps": "fp32",
        "BLOCK": "constexpr",
        "ONE": "constexpr",
    }
    arguments |= dict.fromkeys(flags, "constexpr")
    known = divisible(aligned, [p for p in pointers if constants.get(p, 0) is not None], count=count)
    source = compiled("rows", name, arguments, constants, known, _warps(block))
    return launch(library, source, (x.size // count, 1, 1), len(reads) + 1, (count, float_word(kernel.eps)))


class _Reduction(NamedTuple):
    op: str
    accumulator: str
    identity: Any
    mean: bool


ACCUMULATORS = {"f": "float32", "d": "float64", "i": "int64", "u": "uint64"}
MIDDLE = {"float32": "*fp32", "float64": "*fp64", "int64": "*i64", "uint64": "*u64"}
LIMITS = {
    "float32": (-math.inf, math.inf), "float64": (-math.inf, math.inf), "int64": (-(1 << 63), (1 << 63) - 1), "uint64": (0, (1 << 64) - 1),
}  # fmt: skip


def _reduction(name: str, x: Any, out: Any) -> _Reduction | None:
    kind = (
        "d"
        if x.dtype.name == "float64"
        else "f"
        if x.dtype.name in FLOAT32_TYPES
        else "u"
        if x.dtype.name[0] in "ub"
        else "i"
    )
    if x.dtype.name not in POINTERS or out.dtype.name not in POINTERS or (name == "mean" and kind in "iu"):
        return None
    accumulator = ACCUMULATORS[kind]
    low, high = LIMITS[accumulator]
    identity = {"sum": 0, "mean": 0, "prod": 1, "max": low, "min": high}[name]
    return _Reduction("sum" if name == "mean" else name, accumulator, identity, name == "mean")


def select_reduction(library: Library, kernel: Any, reads: Any, writes: Any, aligned: bool) -> Any:
    """sum, mean, prod, max, min over the trailing axes, or over one run of axes in the middle, of a dense operand."""
    x, out = reads[0].layout, writes[0].layout
    how = _reduction(kernel.name, x, out)
    axes = sorted(a % x.ndim for a in kernel.axes) if x.ndim else []
    if (
        how is None
        or not axes
        or not x.contiguous
        or not out.contiguous
        or not x.size
        or axes != list(range(axes[0], axes[-1] + 1))
    ):
        return None
    outer = math.prod(x.shape[: axes[0]])
    count = math.prod(x.shape[axes[0] : axes[-1] + 1])
    inner = math.prod(x.shape[axes[-1] + 1 :])
    if inner == 1:
        return _reduce_rows(library, how, x, out, outer, count, aligned)
    return _reduce_columns(library, how, x, out, outer, count, inner, aligned)


def _row_source(
    how: _Reduction, x: str, out: str, count: int, part: int, mean: bool, aligned: bool, block: int
) -> TritonKernel:
    divisor = "fp64" if how.accumulator == "float64" else "fp32"
    arguments = {"p_x": x, "p_out": out, "count": "i64", "part": "i64", "divisor": divisor}
    constants = {
        "OP": how.op,
        "ACCUMULATOR": Kind(how.accumulator),
        "IDENTITY": how.identity,
        "BLOCK": block,
        "MEAN": mean,
    }
    arguments |= dict.fromkeys(constants, "constexpr")
    return compiled(
        "rows", "reduce_rows", arguments, constants, divisible(aligned, ["p_x"], count=count, part=part), _warps(block)
    )


def _divisor(how: _Reduction, count: int) -> int:
    if how.accumulator == "float64":
        return struct.unpack("<q", struct.pack("<d", count))[0]
    return float_word(count)


def _reduce_rows(library: Library, how: _Reduction, x: Any, out: Any, outer: int, count: int, aligned: bool) -> Any:
    """One kernel where there are rows enough or they are short; else pieces into scratch memory, and those in a second
    kernel.
    """
    block = block_of(count, 4096)
    parts = pieces(outer, count, library.facts.multiprocessors)
    types = POINTERS[x.dtype.name], POINTERS[out.dtype.name]
    if parts == 1:
        source = _row_source(how, *types, count, count, how.mean, aligned, block)
        return launch(library, source, (outer, 1, 1), 2, (count, count, _divisor(how, count)))
    part = -(-count // parts)
    part += -part % 4096
    parts = -(-count // part)
    if outer > LIMIT_GRID_X or parts > LIMIT_GRID_Y:
        return None
    middle = MIDDLE[how.accumulator]
    first = library.load(_row_source(how, types[0], middle, count, part, False, aligned, block))
    second = library.load(_row_source(how, middle, types[1], parts, parts, how.mean, False, block_of(parts, 4096)))
    size = 8 if how.accumulator[-2:] == "64" else 4
    return Steps(
        outer * parts * size,
        [
            step(*first, (outer, parts, 1), (0, 2), (count, part, 0, *SCRATCH_POINTERS)),
            step(*second, (outer, 1, 1), (2, 1), (parts, parts, _divisor(how, count), *SCRATCH_POINTERS)),
        ],
    )


def pieces(outer: int, count: int, multiprocessors: int) -> int:
    """Into how many pieces a row of `count` is cut. It depends on shape and chip alone, so a sum keeps its order."""
    if count < 1 << 15 or (outer >= 2 * multiprocessors and count < LIMIT_ROW):
        return 1
    return min(-(-4 * multiprocessors // outer), count // 4096)


def _reduce_columns(
    library: Library, how: _Reduction, x: Any, out: Any, outer: int, count: int, inner: int, aligned: bool
) -> Any:
    columns = block_of(inner, 128)
    blocks = -(-inner // columns)
    wanted = -(-4 * library.facts.multiprocessors // (outer * blocks))
    part = count if count < 512 or wanted < 2 else max(128, -(-count // wanted))
    parts = -(-count // part)
    types = POINTERS[x.dtype.name], POINTERS[out.dtype.name]
    if outer > LIMIT_GRID_Y or parts > LIMIT_GRID_Y:
        return None
    if parts == 1:
        source = _column_source(how, *types, count, inner, how.mean, aligned, columns)
        return launch(library, source, (blocks, outer, 1), 2, (count, count, inner, _divisor(how, count)))
    first = library.load(_column_source(how, types[0], MIDDLE[how.accumulator], part, inner, False, aligned, columns))
    second = library.load(
        _column_source(how, MIDDLE[how.accumulator], types[1], parts, inner, how.mean, False, columns)
    )
    return Steps(
        outer * parts * inner * (8 if how.accumulator[-2:] == "64" else 4),
        [
            step(*first, (blocks, outer, parts), (0, 2), (count, part, inner, 0, *SCRATCH_POINTERS)),
            step(*second, (blocks, outer, 1), (2, 1), (parts, parts, inner, _divisor(how, count), *SCRATCH_POINTERS)),
        ],
    )


def _column_source(
    how: _Reduction, x: str, out: str, part: int, inner: int, mean: bool, aligned: bool, columns: int
) -> TritonKernel:
    divisor = "fp64" if how.accumulator == "float64" else "fp32"
    arguments = {"p_x": x, "p_out": out, "count": "i64", "part": "i64", "inner": "i64", "divisor": divisor}
    constants = {
        "OP": how.op, "ACCUMULATOR": Kind(how.accumulator), "IDENTITY": how.identity, "ROWS": block_of(part, 2048 // columns),
        "COLUMNS": columns, "MEAN": mean,
    }  # fmt: skip
    arguments |= dict.fromkeys(constants, "constexpr")
    return compiled(
        "rows", "reduce_columns", arguments, constants, divisible(aligned, ["p_x", "p_out"], inner=inner), 4
    )


ROUTES = {
    "softmax": select_softmax, "rms_norm": select_rms_norm, "layer_norm": select_layer_norm,
    **dict.fromkeys(("sum", "mean", "prod", "max", "min"), select_reduction),
}  # fmt: skip
