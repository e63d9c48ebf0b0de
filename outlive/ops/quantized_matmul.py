"""Products with quantized matrices. Weights are dequantized to float32 panel by panel; sums are float32, rounded once."""

from __future__ import annotations

import itertools
from typing import Any

from outlive.graph.array import apply, array
from outlive.graph.primitive import Primitive
from outlive.ops import reduce
from outlive.ops.common import Dtype, Plans, as_array, broadcast_shapes, dtypes, layout, promote
from outlive.ops.creation import arange
from outlive.ops.elementwise import multiply
from outlive.ops.gather import checked_indices, scatter_zeros
from outlive.ops.matmul import cast, folded, matmul, stacked
from outlive.ops.quantize import (
    BLOCK_BYTES_EACH,
    BLOCK_ELEMENTS,
    NVFP4_RANGE,
    Scheme,
    _global,
    check_quantized,
    code_values,
    decode,
    dequantize,
    quantize,
    scheme,
)
from outlive.ops.shape import batch_in_front, batch_size, broadcast_to, matrix_transpose, reshape, sum_to, swapaxes
from outlive.ops.slicing import one_by_one


def panel_product(
    xp: Any, x: Any, words: Any, scales: Any, biases: Any, plan: Scheme, transpose: bool, out: Any, ratio: Any = None
) -> None:
    """out = x @ w (or w transposed) for one matrix w (rows, n) of codes, a panel of rows at a time."""
    n = plan.elements(words.shape[-1])
    step = max(1, BLOCK_ELEMENTS // max(n, 1))
    if not transpose:
        out[...] = 0
    for start in range(0, words.shape[0], step):
        rows = slice(start, start + step)
        part = decode(xp, words[rows], scales[rows], None if biases is None else biases[rows], plan, ratio)
        part = part.astype(out.dtype)
        if transpose:
            out[..., rows] = xp.matmul(x, part.T)
        else:
            out += xp.matmul(x[..., rows], part)


def panel_bytes(words: Any, plan: Scheme) -> int:
    """Upper bound in bytes of what one panel of weights takes."""
    n = plan.elements(words.shape[-1])
    return BLOCK_BYTES_EACH * min(max(BLOCK_ELEMENTS, n), n * words.shape[-2])


class QuantizedMatmul(Primitive):
    """Reads x (..., M, K), words, scales and, in affine mode, biases; writes (..., M, N).

    `transpose`: the words hold w (N, K), else w (K, N); groups lie along the last axis.
    """

    __slots__ = ("transpose", "group_size", "bits", "mode")
    name = "quantized_matmul"
    donates = False
    transpose: bool
    group_size: int
    bits: int
    mode: str

    def plan(self) -> Scheme:
        return Scheme(self.mode, self.group_size, self.bits)

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        out = encoder.output(layout, False)
        x, *weights = inputs
        if weights[0].layout.ndim == 2 and x.layout.ndim > 2:
            rows, target = folded(encoder, x), folded(encoder, out)
            if rows is not None and target is not None:
                encoder.dispatch(self, (rows, *weights), (target,))
                return out
        batch = layout.shape[:-2]
        encoder.dispatch(self, tuple([stacked(encoder, i, batch) for i in inputs]), (out,))
        return out

    def workspace(self, reads: Any, writes: Any) -> int:
        return super().workspace(reads, writes) + panel_bytes(reads[1], self.plan())

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        x, words, scales = reads[:3]
        biases = reads[3] if len(reads) > 3 else None
        out, plan = writes[0], self.plan()
        batch = out.shape[:-2]
        if not out.size:
            return
        for at in _places(batch):
            bias = None if biases is None else biases[at]
            panel_product(xp, x[at], words[at], scales[at], bias, plan, self.transpose, out[at])

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        x, words, scales, *biases = primals
        made: list[Any] = []
        dense: array | None = None
        for i in argnums:
            if i == 0:
                back = QuantizedMatmul.make(not self.transpose, *self.parameters()[1:])
                made.append(sum_to(_product(back, cotangents[0], words, scales, *biases), x.shape))
            elif i == 1 or self.mode != "affine":
                raise ValueError("[quantized_matmul] Only x, and in affine mode scales and biases, have derivatives.")
            else:
                if dense is None:
                    dense = self._weight_cotangent(x, cotangents[0], words)
                made.append(_group_sums(dense, words, scales, self.plan(), i == 2).astype(primals[i].dtype))
        return made

    def _weight_cotangent(self, x: array, cotangent: array, words: array) -> array:
        left, right = (cotangent, x) if self.transpose else (x, cotangent)
        if words.ndim == 2 and x.ndim > 2:
            left, right = reshape(left, (-1, left.shape[-1])), reshape(right, (-1, right.shape[-1]))
        made = matmul(swapaxes(left, -1, -2), right).astype(dtypes.float32)
        return sum_to(made, (*words.shape[:-1], made.shape[-1]))

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        if tuple(argnums) != (0,):
            raise ValueError("[quantized_matmul] There is a forward derivative for x alone.")
        return [_product(self, tangents[0], *primals[1:])]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        size = batch_size(inputs, axes)
        ndim = max(a.ndim - (axis is not None) for a, axis in zip(inputs, axes, strict=True))
        if all(axis is None for axis in axes[1:]):
            return [_product(self, batch_in_front(inputs[0], axes[0], size, ndim), *inputs[1:])], [0]
        return [_product(self, *[batch_in_front(a, axis, size, ndim) for a, axis in zip(inputs, axes, strict=True)])], [
            0
        ]


def _places(shape: tuple[int, ...]) -> Any:
    """All index tuples of a small batch shape."""
    return itertools.product(*[range(n) for n in shape])


def _group_sums(dense: array, words: array, scales: array, plan: Scheme, of_codes: bool) -> array:
    """The cotangent of scales (`of_codes`) or biases from that of the dequantized weights."""
    groups = reshape(dense, (*scales.shape, plan.group_size))
    return reduce.sum(multiply(groups, code_values(words, scales, plan)) if of_codes else groups, -1)


def _product(op: QuantizedMatmul, x: array, words: array, scales: array, *biases: array, stream: Any = None) -> array:
    plan = op.plan()
    n = plan.elements(words.shape[-1])
    rows = words.shape[-2]
    inner, outer = (n, rows) if op.transpose else (rows, n)
    if x.shape[-1] != inner:
        raise ValueError(
            f"[quantized_matmul] The last axis of x {x.shape} must be {inner}: the words {words.shape} hold a matrix of {rows} "
            f"by {n}{', transposed' if op.transpose else ''}."
        )
    batch = broadcast_shapes("quantized_matmul", x.shape[:-2], words.shape[:-2])
    result = layout((*batch, x.shape[-2], outer), x.dtype)
    return apply(op, (x, words, scales, *biases), result, stream)


def _operands(
    op: str, x: Any, w: Any, scales: Any, biases: Any, plan: Scheme
) -> tuple[array, tuple[array, ...], Dtype]:
    """(x in the result's type, weights, that type)."""
    x, w, scales = as_array(x), as_array(w), as_array(scales)
    biases = None if biases is None else as_array(biases)
    if w.ndim < 2:
        raise ValueError(f"[{op}] The words need at least 2 dimensions; got shape {w.shape}.")
    check_quantized(op, w, scales, biases, plan)
    kind = x.dtype
    if biases is not None:
        kind = promote(promote(kind, scales.dtype), biases.dtype)
    if kind.category is not dtypes.floating:
        raise ValueError(f"[{op}] Needs a real floating-point x; got {x.dtype.name}.")
    return cast(x, kind), (w, scales) if biases is None else (w, scales, biases), kind


def quantized_matmul(
    x: Any,
    w: Any,
    /,
    scales: Any,
    biases: Any = None,
    transpose: bool = True,
    group_size: int | None = None,
    bits: int | None = None,
    mode: str = "affine",
    *,
    stream: Any = None,
) -> array:
    """The product of `x` (..., M, K) with the matrix that `quantize` made: transposed, if `transpose`.

    `w` holds (N, K) if `transpose`, else (K, N), with leading axes that broadcast against `x`'s; a vector x acts as a
    row. The result has the common type of x, scales and biases (x's own in other modes than affine). Raises ValueError
    where shapes, types and mode do not fit.

    >>> packed, scales, biases = mx.quantize(mx.ones((2, 32)), group_size=32, bits=4)
    >>> mx.quantized_matmul(mx.ones((1, 32)), packed, scales, biases, group_size=32, bits=4).tolist()
    [[32.0, 32.0]]
    """
    key = None
    if type(x) is array and type(w) is array and type(scales) is array and (biases is None or type(biases) is array):
        inputs = (x, w, scales) if biases is None else (x, w, scales, biases)
        key = (*[a._node.layout for a in inputs], transpose, group_size, bits, mode)
        known = _products.get(key)
        if known is not None:
            return apply(known[0], inputs, known[1], stream)
    made = _checked_product(x, w, scales, biases, transpose, group_size, bits, mode, stream)
    node = made._node
    if key is not None and type(node.primitive) is QuantizedMatmul and node.inputs[0] is x._node:
        _products.keep(key, (node.primitive, node.layout))  # nothing had to be cast or reshaped
    return made


_products = Plans()


def _checked_product(
    x: Any,
    w: Any,
    scales: Any,
    biases: Any,
    transpose: bool,
    group_size: int | None,
    bits: int | None,
    mode: str,
    stream: Any,
) -> array:
    plan = scheme("quantized_matmul", mode, group_size, bits)
    x, weights, _ = _operands("quantized_matmul", x, w, scales, biases, plan)
    op = QuantizedMatmul.make(bool(transpose), plan.group_size, plan.bits, plan.mode)
    if x.ndim >= 2:
        return _product(op, x, *weights, stream=stream)
    if not x.ndim:
        raise ValueError("[quantized_matmul] x needs at least one axis.")
    made = _product(op, reshape(x, (1, x.shape[0]), stream=stream), *weights, stream=stream)
    return reshape(made, (*made.shape[:-2], made.shape[-1]), stream=stream)


class GatherQMM(Primitive):
    """Reads x (..., M, K), words, scales, biases in affine mode, a global scale if `scaled`, then indices of x's and of
    w's matrices.

    The indices count matrices in flattened leading axes. `sorted` promises that w's indices ascend.
    """

    __slots__ = ("transpose", "group_size", "bits", "mode", "scaled", "sorted")
    name = "gather_qmm"
    donates = False
    transpose: bool
    group_size: int
    bits: int
    mode: str
    scaled: bool
    sorted: bool

    def plan(self) -> Scheme:
        return Scheme(self.mode, self.group_size, self.bits)

    def workspace(self, reads: Any, writes: Any) -> int:
        return super().workspace(reads, writes) + panel_bytes(reads[1], self.plan())

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        x, words, scales = reads[:3]
        plan = self.plan()
        biases = reads[3] if plan.affine else None
        ratio = reads[-3].astype(xp.float32).reshape(()) / xp.float32(NVFP4_RANGE) if self.scaled else None
        out = writes[0]
        if not out.size:
            return
        x, words, scales, flat = [a.reshape(-1, *a.shape[-2:]) for a in (x, words, scales, out)]
        biases = None if biases is None else biases.reshape(-1, *biases.shape[-2:])
        left = checked_places(xp, reads[-2], x.shape[0])
        right = checked_places(xp, reads[-1], words.shape[0])
        for expert in xp.unique(right).tolist():
            rows = xp.nonzero(right == expert)[0]
            part = x[left[rows]]
            made = xp.empty((part.shape[0] * part.shape[1], out.shape[-1]), out.dtype)
            bias = None if biases is None else biases[expert]
            together = part.reshape(-1, part.shape[-1])
            panel_product(xp, together, words[expert], scales[expert], bias, plan, self.transpose, made, ratio)
            flat[rows] = made.reshape(part.shape[0], part.shape[1], -1)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        if tuple(argnums) != (0,):
            raise ValueError("[gather_qmm] There is a derivative for x alone.")

        x, *weights, left, right = primals
        back = GatherQMM.make(not self.transpose, *self.parameters()[1:])
        places = reshape(arange_like(right), right.shape)
        terms = _gathered(back, cotangents[0], tuple(weights), places, right, None)
        flat = reshape(x, (-1, *x.shape[-2:]))
        return [reshape(scatter_zeros(flat, terms, [left], (0,), 0), x.shape)]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        if tuple(argnums) != (0,):
            raise ValueError("[gather_qmm] There is a forward derivative for x alone.")
        _, *weights, left, right = primals
        return [_gathered(self, tangents[0], tuple(weights), left, right, None)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        return one_by_one(lambda x, *rest: _gathered(self, x, tuple(rest[:-2]), rest[-2], rest[-1], None), inputs, axes)


def arange_like(a: array) -> array:
    """0, 1, 2, ... as many as `a` has elements, in its type."""
    return arange(a.size, dtype=a.dtype)


def checked_places(xp: Any, indices: Any, count: int) -> Any:
    """Flattened indices, negative ones counted from the end; raises IndexError for one out of range."""
    flat = indices.reshape(-1).astype(xp.int64)
    flat = xp.where(flat < 0, flat + count, flat)
    if flat.size and (int(flat.min()) < 0 or int(flat.max()) >= count):
        raise IndexError(f"an index is out of range for {count} matrices")
    return flat


def batch_indices(op: str, batch: tuple[int, ...], given: Any) -> array:
    """Indices of matrices in flattened leading axes; all of them, in order, where none are given."""
    if given is not None:
        return checked_indices(op, given)
    count = 1
    for n in batch:
        count *= n
    return reshape(arange(count, dtype=dtypes.uint32), batch)


def _gathered(op: GatherQMM, x: array, weights: tuple[array, ...], left: array, right: array, stream: Any) -> array:
    plan = op.plan()
    words = weights[0]
    n, rows = plan.elements(words.shape[-1]), words.shape[-2]
    inner, outer = (n, rows) if op.transpose else (rows, n)
    if x.shape[-1] != inner:
        raise ValueError(
            f"[gather_qmm] The last axis of x {x.shape} must be {inner}: the words {words.shape} hold matrices of {rows} by "
            f"{n}{', transposed' if op.transpose else ''}."
        )
    shape = broadcast_shapes("gather_qmm", left.shape, right.shape)
    left, right = broadcast_to(left, shape, stream=stream), broadcast_to(right, shape, stream=stream)
    result = layout((*shape, x.shape[-2], outer), x.dtype)
    return apply(op, (x, *weights, left, right), result, stream)


def gather_qmm(
    x: Any,
    w: Any,
    /,
    scales: Any,
    biases: Any = None,
    lhs_indices: Any = None,
    rhs_indices: Any = None,
    transpose: bool = True,
    group_size: int | None = None,
    bits: int | None = None,
    mode: str = "affine",
    global_scale: Any = None,
    *,
    sorted_indices: bool = False,
    stream: Any = None,
) -> array:
    """Products of chosen matrices of `x` (..., M, K) with chosen matrices of a stack of quantized ones.

    `lhs_indices` and `rhs_indices` (integers that broadcast to a shape S; by default all matrices in order) count
    matrices in the flattened leading axes; the result has shape (*S, M, N). `sorted_indices` says that `rhs_indices`
    ascend: a hint that never changes the result. Raises ValueError where shapes, types and mode do not fit; an index
    out of range is an error of the result.

    >>> experts = mx.quantize(mx.stack([mx.ones((1, 32)), 2 * mx.ones((1, 32))]), group_size=32, bits=4)
    >>> mx.gather_qmm(mx.ones((1, 32)), *experts, rhs_indices=mx.array([1, 0]), group_size=32, bits=4).tolist()
    [[[64.0]], [[32.0]]]
    """
    plan = scheme("gather_qmm", mode, group_size, bits)
    x, weights, _ = _operands("gather_qmm", x, w, scales, biases, plan)
    if x.ndim < 2:
        raise ValueError(f"[gather_qmm] x needs at least 2 dimensions; got shape {x.shape}.")
    scale = _global("gather_qmm", plan, global_scale)
    left = batch_indices("gather_qmm", x.shape[:-2], lhs_indices)
    right = batch_indices("gather_qmm", weights[0].shape[:-2], rhs_indices)
    op = GatherQMM.make(bool(transpose), plan.group_size, plan.bits, plan.mode, scale is not None, bool(sorted_indices))
    extra = () if scale is None else (scale,)
    return _gathered(op, x, (*weights, *extra), left, right, stream)


def _rounded_through(x: array, plan: Scheme, scale: Any, stream: Any) -> array:
    """`x` quantized in groups along its last axis and back, as float32."""
    lead = x.shape
    rows = reshape(x, (-1, lead[-1]), stream=stream)
    codes, scales = quantize(rows, plan.group_size, plan.bits, plan.mode, global_scale=scale, stream=stream)
    made = dequantize(codes, scales, None, plan.group_size, plan.bits, plan.mode, scale, dtypes.float32, stream=stream)
    return reshape(made, lead, stream=stream)


def _micro(op: str, mode: str, group_size: int | None, bits: int | None) -> Scheme:
    plan = scheme(op, mode, group_size, bits)
    if plan.affine:
        raise ValueError(
            f"[{op}] Both operands are quantized, which mode 'affine' does not serve; use 'nvfp4', 'mxfp4' or 'mxfp8'."
        )
    return plan


def _micro_weights(op: str, w: Any, scales: Any, plan: Scheme, scale: Any, stream: Any) -> array:
    """The weights as float32: dequantized, or rounded through the format where they come unquantized."""
    w = as_array(w)
    if scales is None:
        return _rounded_through(w, plan, scale, stream)
    check_quantized(op, w, as_array(scales), None, plan)
    return dequantize(w, scales, None, plan.group_size, plan.bits, plan.mode, scale, dtypes.float32, stream=stream)


def qqmm(
    x: Any,
    w: Any,
    scales: Any = None,
    group_size: int | None = None,
    bits: int | None = None,
    mode: str = "nvfp4",
    global_scale_x: Any = None,
    global_scale_w: Any = None,
    *,
    stream: Any = None,
) -> array:
    """`x @ w.T` with both operands in a microscaling format: `x` is quantized on the way, `w` too if it comes without
    `scales`.

    Shapes x (..., M, K), w (N, K); products of the quantized values are exact and summed in float32. Raises ValueError
    for mode "affine", and where shapes and types do not fit.

    >>> mx.qqmm(mx.ones((1, 32)), mx.ones((2, 32)), mode="mxfp8").tolist()
    [[32.0, 32.0]]
    """
    plan = _micro("qqmm", mode, group_size, bits)
    x = as_array(x)
    weights = _micro_weights("qqmm", w, scales, plan, global_scale_w, stream)
    seen = _rounded_through(x, plan, global_scale_x, stream)
    return cast(matmul(seen, matrix_transpose(weights, stream=stream), stream=stream), x.dtype)


def gather_qqmm(
    x: Any,
    w: Any,
    /,
    scales: Any = None,
    lhs_indices: Any = None,
    rhs_indices: Any = None,
    group_size: int | None = None,
    bits: int | None = None,
    mode: str = "nvfp4",
    global_scale_x: Any = None,
    global_scale_w: Any = None,
    *,
    sorted_indices: bool = False,
    stream: Any = None,
) -> array:
    """`qqmm` of chosen matrices of `x` with chosen matrices of a stack; indices as in `gather_qmm`.

    >>> experts = mx.quantize(mx.stack([mx.ones((1, 32)), 2 * mx.ones((1, 32))]), mode="mxfp8")
    >>> mx.gather_qqmm(mx.ones((1, 32)), *experts, rhs_indices=mx.array([1, 0]), mode="mxfp8").tolist()
    [[[64.0]], [[32.0]]]
    """
    from outlive.ops.gather_matmul import gather_mm

    plan = _micro("gather_qqmm", mode, group_size, bits)
    x = as_array(x)
    weights = _micro_weights("gather_qqmm", w, scales, plan, global_scale_w, stream)
    seen = _rounded_through(x, plan, global_scale_x, stream)
    turned = matrix_transpose(weights, stream=stream)
    made = gather_mm(seen, turned, lhs_indices, rhs_indices, sorted_indices=sorted_indices, stream=stream)
    return cast(made, x.dtype)


__all__ = ["gather_qmm", "gather_qqmm", "qqmm", "quantized_matmul"]
