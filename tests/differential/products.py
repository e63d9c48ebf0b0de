"""Products: matrices, contractions, convolutions, quantized weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import outlive.core as mx
from tests.differential.registry import OPS, Case, Draw, array, one_of, quiet, shape, whole, wide
from tests.reference.strategies import FLOATS
from tests.reference.wire import Array, Call, Program

SIDES = (1, 2, 3, 7, 8, 16, 17, 33)


def _operand(draw: Draw, dtype: str, of: tuple[int, ...]) -> Array:
    return array(draw, dtype, of, special=False, low=-2, high=2)


def _of_product(call: Call, function: Any, *operands: Array) -> Case:
    """The truth of a product, and the sum of its terms' magnitudes."""
    values = [wide(a) for a in operands]
    return Case(call, truth=quiet(function, *values), magnitude=quiet(function, *[np.abs(v) for v in values]))


def _side(draw: Draw) -> int:
    return draw(st.sampled_from(SIDES))


@OPS.add("matmul", examples=60)
def _matmul(draw: Draw, name: str) -> Case:
    dtype = one_of(draw, *FLOATS)
    m, k, n = (_side(draw) for _ in range(3))
    batch = one_of(draw, ((), ()), ((2,), ()), ((2, 1), (3,)), ((), (3,)), ((0,), ()))
    kind = one_of(draw, "matrices", "row", "column", "vectors", "unequal")
    a, b = (*batch[0], m, k), (*batch[1], k + (kind == "unequal" and k > 1), n)
    if kind in ("row", "vectors"):
        a = (k,)
    if kind in ("column", "vectors"):
        b = (k,)
    x, y = _operand(draw, dtype, a), _operand(draw, dtype, b)
    return _of_product(Call(name, (x, y)), np.matmul, x, y)


@OPS.add("addmm")
def _addmm(draw: Draw, name: str) -> Case:
    dtype = one_of(draw, *FLOATS)
    m, k, n = (_side(draw) for _ in range(3))
    c, x, y = (
        _operand(draw, dtype, one_of(draw, (m, n), (n,), (1, n))),
        _operand(draw, dtype, (m, k)),
        _operand(draw, dtype, (k, n)),
    )
    alpha, beta = one_of(draw, 1.0, 0.5), one_of(draw, 1.0, 2.0)
    return _of_product(Call(name, (c, x, y, alpha, beta)), lambda c, x, y: beta * c + alpha * (x @ y), c, x, y)


@OPS.add("inner outer vecdot kron")
def _vectors(draw: Draw, name: str) -> Case:
    dtype = one_of(draw, *FLOATS)
    n = _side(draw)
    first, second = {"outer": ((n,), (_side(draw),)), "kron": ((2, 3), (3, 2))}.get(name, ((3, n), (3, n)))
    x, y = _operand(draw, dtype, first), _operand(draw, dtype, second)
    function = {"inner": np.inner, "outer": np.outer, "kron": np.kron}.get(name, lambda x, y: (x * y).sum(-1))
    return _of_product(Call(name, (x, y)), function, x, y)


@OPS.add("tensordot")
def _tensordot(draw: Draw, name: str) -> Case:
    x, y = _operand(draw, "float32", (2, 3, 5)), _operand(draw, "float32", (5, 3, 4))
    axes = one_of(draw, 1, 0, [[1, 2], [1, 0]], [[2], [0]], [[0], [0]])
    return _of_product(Call(name, (x, y, axes)), lambda x, y: np.tensordot(x, y, axes), x, y)


@OPS.add("einsum", examples=30)
def _einsum(draw: Draw, name: str) -> Case:
    text, *sizes = one_of(
        draw, ("ij,jk->ik", (3, 4), (4, 5)), ("ij,jk", (3, 4), (4, 5)), ("bij,bjk->bki", (2, 3, 4), (2, 4, 5)), ("ii->i", (4, 4)),
        ("ij->ji", (3, 4)), ("i,j->ij", (3,), (4,)), ("ij,ij->", (3, 4), (3, 4)), ("ij,jk,kl->il", (3, 4), (4, 5), (5, 2)),
        ("ii", (4, 4)), ("ij->", (3, 4)), ("ijk,k->ij", (2, 3, 4), (4,)),
    )  # fmt: skip
    operands = [_operand(draw, "float32", of) for of in sizes]
    return _of_product(Call(name, (text, *operands)), lambda *values: np.einsum(text, *values), *operands)


@OPS.add("einsum_path", examples=5)
def _einsum_path(draw: Draw, name: str) -> Case:
    # Which order is best is free; what it is told as is compared.
    text = "a, b = mx.ones((3, 4)), mx.ones((4, 5))\npath, said = mx.einsum_path('ij,jk->ik', a, b)\nout = [path, isinstance(said, str)]"
    return Case(Program(text))


@OPS.add("convolve")
def _convolve(draw: Draw, name: str) -> Case:
    x, y = _operand(draw, "float32", (_side(draw),)), _operand(draw, "float32", (_side(draw),))
    mode = one_of(draw, "full", "valid", "same")
    return _of_product(Call(name, (x, y, mode)), lambda x, y: np.convolve(x, y, mode), x, y)


def _spatial(draw: Draw, dims: int) -> dict[str, Any]:
    def each(low: int, high: int) -> Any:
        return whole(draw, low, high) if draw(st.booleans()) else tuple(whole(draw, low, high) for _ in range(dims))

    return {"stride": each(1, 3), "padding": each(0, 2), "dilation": each(1, 2)}


def _conv(draw: Draw, name: str, dims: int) -> Case:
    groups = one_of(draw, 1, 2) if dims < 3 else 1  # the reference groups no further
    channels, outputs = groups * whole(draw, 1, 4), groups * whole(draw, 1, 3)
    sides = tuple(whole(draw, 5, 8) for _ in range(dims))
    window = tuple(whole(draw, 1, 3) for _ in range(dims))
    x = _operand(draw, one_of(draw, "float32", "float16"), (whole(draw, 1, 2), *sides, channels))
    w = _operand(draw, x.dtype, (outputs, *window, channels // groups))
    options = {**_spatial(draw, dims), "groups": groups}
    if name.startswith("conv_transpose"):
        options["padding"] = whole(draw, 0, min(window) - 1)  # beyond the window the reference cuts too much
    if dims == 1:
        options = {key: value if isinstance(value, int) else value[0] for key, value in options.items()}
    # Twice the largest sum of magnitudes: the reference adds hundreds of terms one after the other.
    magnitude = np.float64(8.0 * channels * np.prod(window))
    return Case(Call(name, (x, w), options), magnitude=magnitude, tolerance="conv2d")


@OPS.add("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d", examples=40)
def _convolutions(draw: Draw, name: str) -> Case:
    return _conv(draw, name, int(name[-2]))


@OPS.add("conv_general", examples=40)
def _conv_general(draw: Draw, name: str) -> Case:
    x, w = (
        _operand(draw, "float32", (2, 7, 8, 3)),
        _operand(draw, "float32", (4, whole(draw, 1, 3), whole(draw, 1, 3), 3)),
    )
    padding = one_of(draw, 1, (1, 2), ([1, 0], [0, 2]))
    options = {
        "stride": one_of(draw, 1, (2, 1)), "padding": padding, "kernel_dilation": one_of(draw, 1, (1, 2)),
        "input_dilation": one_of(draw, 1, (2, 1)), "flip": draw(st.booleans()),
    }  # fmt: skip
    return Case(Call(name, (x, w), options), magnitude=np.float64(216.0), tolerance="conv2d")


@OPS.add("hadamard_transform")
def _hadamard(draw: Draw, name: str) -> Case:
    a = _operand(draw, one_of(draw, *FLOATS), (whole(draw, 1, 3), one_of(draw, 1, 2, 8, 12, 20, 28, 64, 7)))
    options = {} if draw(st.booleans()) else {"scale": 0.5}
    return Case(Call(name, (a,), options), tolerance="sum", magnitude=np.float64(2.0 * a.resolved().shape[-1]))


_MODES = (
    ("affine", 2),
    ("affine", 3),
    ("affine", 4),
    ("affine", 5),
    ("affine", 6),
    ("affine", 8),
    ("mxfp4", 4),
    ("mxfp8", 8),
    ("nvfp4", 4),
)


def _mode(draw: Draw) -> tuple[str, int, int]:
    mode, bits = draw(st.sampled_from(_MODES))
    return mode, bits, {"affine": one_of(draw, 64, 32, 128), "nvfp4": 16}.get(mode, 32)


def _width(draw: Draw, group: int) -> int:
    """A row of whole groups; the reference takes groups of sixteen in pairs alone."""
    return max(group, 32) * whole(draw, 1, 3)


@OPS.add("quantize", examples=60)
def _quantize(draw: Draw, name: str) -> Case:
    mode, bits, group = _mode(draw)
    w = _operand(draw, one_of(draw, *FLOATS), (whole(draw, 1, 5), _width(draw, group)))
    return Case(Call(name, (w, group, bits), {"mode": mode}))


_ROUND_TRIP = """
packed = mx.quantize(w, group, bits, mode=mode)
out = mx.dequantize(*packed, group_size=group, bits=bits, mode=mode)
"""


@OPS.add("dequantize", examples=60)
def _dequantize(draw: Draw, name: str) -> Case:
    mode, bits, group = _mode(draw)
    # In half types the reference rounds the product before it adds the bias.
    w = _operand(draw, "float32", (whole(draw, 1, 5), _width(draw, group)))
    inputs = {"w": w, "group": group, "bits": bits, "mode": mode}
    return Case(Program(_ROUND_TRIP, inputs), tolerance="sum", magnitude=np.float64(4.0))


def _unpacked(w: Array, group: int, bits: int, mode: str) -> np.ndarray:
    """The values that quantized weights stand for, from `dequantize`, which has an entry of its own."""
    made = mx.dequantize(
        *mx.quantize(mx.array(w.resolved()), group, bits, mode=mode), group_size=group, bits=bits, mode=mode
    )
    return np.array(made).astype(np.float64)


def _of_unpacked(text: str, inputs: dict[str, Any], name: str, x: np.ndarray, w: np.ndarray) -> Case:
    return Case(Program(text, inputs), truth=x @ w, magnitude=np.abs(x) @ np.abs(w), tolerance=name)


_QUANTIZED = """
packed = mx.quantize(w, group, bits, mode=mode)
out = mx.quantized_matmul(x, *packed, transpose=transpose, group_size=group, bits=bits, mode=mode)
"""


@OPS.add("quantized_matmul", examples=100)
def _quantized_matmul(draw: Draw, name: str) -> Case:
    mode, bits, group = _mode(draw)
    transpose = draw(st.booleans())
    k, n = _width(draw, group), (one_of(draw, 8, 32, 40) if transpose else _width(draw, group))
    w = _operand(draw, "float32", (n, k) if transpose else (k, n))
    x = _operand(draw, "float32", (*one_of(draw, (), (2,)), whole(draw, 1, 9), k))
    inputs = {"w": w, "x": x, "group": group, "bits": bits, "mode": mode, "transpose": transpose}
    values = _unpacked(w, group, bits, mode)
    return _of_unpacked(_QUANTIZED, inputs, name, wide(x), values.T if transpose else values)


_GATHER_QMM = """
packed = mx.quantize(w, group, bits, mode=mode)
out = mx.gather_qmm(x, *packed, rhs_indices=rows, transpose=True, group_size=group, bits=bits, mode=mode, sorted_indices=ordered)
"""


@OPS.add("gather_qmm", examples=40)
def _gather_qmm(draw: Draw, name: str) -> Case:
    mode, bits, group = _mode(draw)
    k, experts, tokens = _width(draw, group), whole(draw, 1, 4), whole(draw, 1, 7)
    rows = np.random.default_rng(whole(draw, 0, 9999)).integers(0, experts, tokens).astype(np.uint32)
    ordered = draw(st.booleans())
    w, x = _operand(draw, "float32", (experts, 8, k)), _operand(draw, "float32", (tokens, 1, k))
    rows = np.sort(rows) if ordered else rows
    inputs = {"w": w, "x": x, "group": group, "bits": bits, "mode": mode, "rows": Array.of(rows), "ordered": ordered}
    values = _unpacked(w, group, bits, mode)[rows]
    return _of_unpacked(_GATHER_QMM, inputs, name, wide(x), values.swapaxes(-1, -2))


_QQMM = """
packed = mx.quantize(w, mode=mode)[:2]
out = mx.qqmm(x, *packed, mode=mode)
"""


@OPS.add("qqmm", examples=30)
def _qqmm(draw: Draw, name: str) -> Case:
    # On CPUs the reference has this product for a single row alone, and the gathered one not at all.
    k = 64 * whole(draw, 1, 2)
    inputs = {
        "w": _operand(draw, "float32", (8, k)),
        "x": _operand(draw, "float32", (1, k)),
        "mode": one_of(draw, "nvfp4", "mxfp8"),
    }
    return Case(Program(_QQMM, inputs), tolerance="quantized_matmul", magnitude=np.float64(6.0 * k))


@OPS.add("gather_mm", examples=30)
def _gather_mm(draw: Draw, name: str) -> Case:
    experts, tokens, k = whole(draw, 1, 4), whole(draw, 1, 7), _side(draw)
    rows = np.random.default_rng(whole(draw, 0, 9999)).integers(0, experts, tokens).astype(np.uint32)
    x, w = _operand(draw, "float32", (tokens, 1, k)), _operand(draw, "float32", (experts, k, 5))
    return _of_product(Call(name, (x, w), {"rhs_indices": Array.of(rows)}), lambda x, w: x @ w[rows], x, w)


@OPS.add("block_masked_mm", examples=20)
def _block_masked(draw: Draw, name: str) -> Case:
    m, k, n = (one_of(draw, 32, 40, 64) for _ in range(3))
    tiles = [-(-s // 32) for s in (m, k, n)]
    masks = [
        array(draw, "bool", (a, b), views=False)
        for a, b in ((tiles[0], tiles[2]), (tiles[0], tiles[1]), (tiles[1], tiles[2]))
    ]
    x, y = _operand(draw, "float32", (m, k)), _operand(draw, "float32", (k, n))
    return Case(Call(name, (x, y, 32, *masks)), magnitude=np.float64(4.0 * k))


@OPS.add("segmented_mm", examples=20)
def _segmented(draw: Draw, name: str) -> Case:
    x, y = _operand(draw, "float32", (5, 20)), _operand(draw, "float32", (20, 4))
    segments = Array(
        "uint32", np.array(one_of(draw, [[0, 20]], [[0, 7], [7, 20]], [[3, 3], [0, 20], [5, 6]]), np.uint32)
    )
    return Case(Call(name, (x, y, segments)), tolerance="matmul", magnitude=np.float64(80.0))


@OPS.add("to_fp8 from_fp8")
def _fp8(draw: Draw, name: str) -> Case:
    if name == "to_fp8":
        a = array(draw, one_of(draw, *FLOATS), shape(draw), special=False, low=-500, high=500)
        return Case(Call(name, (a,)))
    return Case(Program("out = mx.from_fp8(a, mx.float32)", {"a": array(draw, "uint8", shape(draw), low=0, high=255)}))
