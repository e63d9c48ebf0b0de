"""Elementwise routes: unary, binary, select, casts, copies and fills, dense or of any strides, as generated CUDA C."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from outlive.backends.cpu.kernels.layouts import broadcast_strides, merge, row_major
from outlive.backends.cpu.reference import stored
from outlive.backends.cuda.kernels.build import CudaC
from outlive.backends.cuda.kernels.cuda_c import (
    TILE,
    TYPES,
    Type,
    cast,
    dense_kernel,
    fill_kernel,
    lanes,
    strided_kernel,
    transposing_kernel,
)
from outlive.backends.cuda.launches import NativeLaunch

if TYPE_CHECKING:
    from outlive.backends.cuda.kernels import Library

THREADS = 256
LIMIT_STRIDE_WORDS = 56
"""Words for lengths and strides that one launch may carry beside its pointers (the launcher takes 64 and the pointers).
"""

LIMIT_BLOCKS = (1 << 31) - 1
LIMIT_GRID_Y, LIMIT_GRID_Z = 65535, 64

FLOATS, NUMBERS, INTEGERS, BOOLS, ANY = "f", "fiu", "iu", "b", "fiub"


class Function(NamedTuple):
    """An expression over x0, x1 in the compute type; `{f}` is the suffix of float functions, `{T}` the compute type."""

    kinds: str
    text: str
    compares: bool = False


def _function(name: str) -> Function:
    return Function(FLOATS, name + "{f}(x0)")


UNARY: dict[str, Function] = {
    "negative": Function(NUMBERS, "({T})-x0"),
    "square": Function(NUMBERS, "({T})(x0 * x0)"),
    "reciprocal": Function(FLOATS, "({T})1 / x0"),
    "sign": Function(NUMBERS, "sign_of<{T}>(x0)"),
    "sigmoid": Function(FLOATS, "x0 >= 0 ? ({T})1 / (({T})1 + exp{f}(-x0)) : exp{f}(x0) / (({T})1 + exp{f}(x0))"),
    "round": Function(FLOATS, "rint{f}(x0)"),
    "isfinite": Function(FLOATS, "fabs{f}(x0) < ({T})(1.0 / 0.0)", compares=True),
    "isposinf": Function(FLOATS, "x0 == ({T})(1.0 / 0.0)", compares=True),
    "isneginf": Function(FLOATS, "x0 == -({T})(1.0 / 0.0)", compares=True),
    "logical_not": Function(ANY, "!x0", compares=True),
    "bitwise_invert": Function(INTEGERS, "({T})~x0"),
    "isnan": Function(FLOATS, "x0 != x0", compares=True),
    "isinf": Function(FLOATS, "fabs{f}(x0) == ({T})(1.0 / 0.0)", compares=True),
    "rsqrt": Function(FLOATS, "({T})1 / sqrt{f}(x0)"),
    **{
        name: _function(c_name)
        for name, c_name in (
            *[(n, n) for n in "exp expm1 log log2 log10 log1p sqrt sin cos tan sinh cosh tanh erf floor ceil".split()],
            *[("arc" + n, "a" + n) for n in "sin cos tan sinh cosh tanh".split()],
            ("erfinv", "erfinv"),
        )
    },
}

BINARY: dict[str, Function] = {
    "add": Function(NUMBERS, "({T})(x0 + x1)"),
    "subtract": Function(NUMBERS, "({T})(x0 - x1)"),
    "multiply": Function(NUMBERS, "({T})(x0 * x1)"),
    "divide": Function(FLOATS, "x0 / x1"),
    "maximum": Function(NUMBERS, "larger<{T}>(x0, x1)"),
    "minimum": Function(NUMBERS, "smaller<{T}>(x0, x1)"),
    "remainder": Function(NUMBERS, "modulus<{T}>(x0, x1)"),
    "floor_divide": Function(FLOATS, "floor{f}(x0 / x1)"),
    "power": Function(FLOATS, "pow{f}(x0, x1)"),
    "arctan2": Function(FLOATS, "atan2{f}(x0, x1)"),
    "equal": Function(ANY, "x0 == x1", compares=True),
    "not_equal": Function(ANY, "x0 != x1", compares=True),
    "less": Function(ANY, "x0 < x1", compares=True),
    "less_equal": Function(ANY, "x0 <= x1", compares=True),
    "greater": Function(ANY, "x0 > x1", compares=True),
    "greater_equal": Function(ANY, "x0 >= x1", compares=True),
    "logical_and": Function(ANY, "(x0 != 0) && (x1 != 0)", compares=True),
    "logical_or": Function(ANY, "(x0 != 0) || (x1 != 0)", compares=True),
    "bitwise_and": Function(INTEGERS, "({T})(x0 & x1)"),
    "bitwise_or": Function(INTEGERS, "({T})(x0 | x1)"),
    "bitwise_xor": Function(INTEGERS, "({T})(x0 ^ x1)"),
}

CASTS = frozenset({"astype", "copy", "contiguous"})
SELECTS = frozenset({"where", "select"})
MOVE_TYPES = {1: TYPES["uint8"], 2: TYPES["uint16"], 4: TYPES["uint32"], 8: TYPES["uint64"]}


def find(library: Library, kernel: Any, reads: Any, writes: Any) -> NativeLaunch | None:
    """The launch of an elementwise call; None where it is served otherwise."""
    if len(writes) != 1:
        return None
    name = kernel.name
    if name == "fill":
        return _fill(library, kernel.value, writes[0])
    types: list[Type] = []
    for operand in (*reads, *writes):
        kind = _type(operand, name)
        if kind is None:
            return None
        types.append(kind)
    expression = expression_of(name, types[:-1], types[-1], kernel)
    if expression is None:
        return None
    body = f"      const {types[-1].compute} r0 = {expression};\n"
    return generated(library, name, body, reads, writes, types)


def _type(operand: Any, name: str) -> Type | None:
    """The operand's type in CUDA C. What is only moved is moved as bits, which also serves complex numbers."""
    dtype = operand.layout.dtype
    if name in ("copy", "contiguous"):
        return MOVE_TYPES.get(dtype.itemsize)
    return TYPES.get(dtype.name)


def expression_of(name: str, reads: list[Type], write: Type, kernel: Any) -> str | None:
    """The value of one element over x0, x1, x2; None where there is no such kernel."""
    if name in CASTS and len(reads) == 1:
        return "x0" if reads[0] is write else cast(reads[0], write, "x0")
    if name in SELECTS and len(reads) == 3 and reads[0].kind == "b" and reads[1] is reads[2] is write:
        return "x0 ? x1 : x2"
    if name == "abs" and len(reads) == 1 and reads[0] is write:
        return {
            "f": "fabs" + ("" if write.compute == "double" else "f") + "(x0)",
            "i": f"({write.compute})(x0 < 0 ? -x0 : x0)",
        }.get(write.kind, "x0" if write.kind == "u" else None)
    table = {1: UNARY, 2: BINARY}.get(len(reads))
    function = None if table is None else table.get(name)
    if (
        function is None
        or kernel.parameters()
        or reads[0].kind not in function.kinds
        or any(t is not reads[0] for t in reads)
    ):
        return None
    if write is not (TYPES["bool"] if function.compares else reads[0]):
        return None
    return function.text.format(T=reads[0].compute, f="f" if reads[0].compute == "float" else "")


def generated(
    library: Library, name: str, body: str, reads: Any, writes: Any, types: list[Type]
) -> NativeLaunch | None:
    """The launch of a generated kernel over reads that broadcast to the writes' one shape; None where there is none."""
    target = writes[0].layout
    strides = [broadcast_strides(o.layout, target.shape) for o in reads]
    if any(s is None for s in strides):
        return None
    dims, steps = merge(target.shape, [*strides, *[tuple(o.layout.strides) for o in writes]])
    inputs = len(reads)
    dense = [not dims or (len(dims) == 1 and s[0] == 1) for s in steps]
    scalars = [all(x == 0 for x in s) and not d for s, d in zip(steps[:inputs], dense, strict=False)]
    sources, targets = types[:inputs], types[inputs:]
    if all(dense[inputs:]) and all(d or s for d, s in zip(dense, scalars, strict=False)):
        symbol = _symbol(name, types, "".join("s" if s else "v" for s in scalars), body)
        text = dense_kernel(symbol, sources, scalars, targets, body)
        grid, words = -(-target.size // (THREADS * lanes(sources, scalars, targets))), (target.size,)
    elif inputs == 1 and (turned := _transposed(library, name, body, dims, steps, types)) is not None:
        return turned
    elif len(dims) * (len(types) + 1) <= LIMIT_STRIDE_WORDS:
        wide = target.size >= 1 << 32
        modes, width = inner_pattern([s[-1] for s in steps], dims[-1], types, inputs)
        symbol = _symbol(name, types, f"n{len(dims)}{'w' if wide else ''}_{modes}{width}", body)
        text = strided_kernel(symbol, sources, targets, modes, len(dims), wide, width, body)
        grid = -(-target.size // (THREADS * width))
        words = (target.size, *dims, *[x for s in steps for x in s])
    else:
        return None
    if grid > LIMIT_BLOCKS:
        return None
    return NativeLaunch(library.function(CudaC(symbol, text)), (grid, 1, 1), THREADS, 0, len(types), words)


def _transposed(
    library: Library, name: str, body: str, dims: list[int], steps: list[list[int]], types: list[Type]
) -> NativeLaunch | None:
    """The launch through tiles, where the read's neighbours lie along the last axis but one and the write is dense."""
    source, target = steps
    if (
        len(dims) not in (2, 3)
        or source[-2] != 1
        or target != list(row_major(tuple(dims)))
        or min(dims[-2:]) < TILE // 2
    ):
        return None
    batches, (rows, columns) = (dims[0] if len(dims) == 3 else 1), dims[-2:]
    grid = (-(-columns // TILE), -(-rows // TILE), min(batches, LIMIT_GRID_Z))
    if grid[1] > LIMIT_GRID_Y:
        return None
    symbol = _symbol(name, types, "t", body)
    text = transposing_kernel(symbol, types[0], types[1], body)
    words = (batches, rows, columns, source[0] if len(dims) == 3 else 0, source[-1])
    return NativeLaunch(library.function(CudaC(symbol, text)), grid, THREADS, 0, 2, words)


def inner_pattern(strides: list[int], length: int, types: list[Type], inputs: int) -> tuple[str, int]:
    """How operands lie along the last axis (see `strided_kernel`), and how many neighbours a thread takes."""
    modes = "".join("c" if s == 1 else "s" if s == 0 and o < inputs else "g" for o, s in enumerate(strides))
    if "c" not in modes[inputs:]:
        return modes, 1  # the writes are scattered anyway
    width = min(8, 16 // min(t.size for t, mode in zip(types, modes, strict=True) if mode == "c"))
    while length % width:
        width //= 2
    return modes, width


def _symbol(name: str, types: list[Type], form: str, body: str) -> str:
    """A name unique in the library: op, types, form, and a digest of what is computed."""
    kinds = "_".join(t.memory for t in types[:4])
    return f"outlive_{name}_{kinds}_{form}_{hashlib.sha256(repr((types, body)).encode()).hexdigest()[:8]}"


def _fill(library: Library, value: Any, target: Any) -> NativeLaunch | None:
    layout = target.layout
    size = layout.dtype.itemsize
    if not layout.contiguous or size not in MOVE_TYPES:
        return None
    with np.errstate(all="ignore"):
        bits = np.asarray(stored(np.asarray(value, np.float32), layout.dtype) if layout.dtype.half else value)
    pattern = int.from_bytes(np.asarray(bits).astype(layout.dtype.storage).tobytes(), "little", signed=size == 8)
    symbol = f"outlive_fill_{size}"
    grid = -(-layout.size // (THREADS * 16 // size))
    if grid > LIMIT_BLOCKS:
        return None
    return NativeLaunch(
        library.function(CudaC(symbol, fill_kernel(symbol, size))), (grid, 1, 1), THREADS, 0, 1, (pattern, layout.size)
    )
