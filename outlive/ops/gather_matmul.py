"""Products of chosen matrices of stacks, of blocks under masks, and of segments of the summed axis."""

from __future__ import annotations

from typing import Any

from outlive.graph.array import apply, array
from outlive.graph.primitive import Primitive
from outlive.ops.common import as_array, broadcast_shapes, dtypes, layout
from outlive.ops.elementwise import add, multiply, where
from outlive.ops.gather import scatter_zeros
from outlive.ops.join import repeat
from outlive.ops.matmul import cast, inexact_type, matmul, product_shape
from outlive.ops.quantized_matmul import arange_like, batch_indices, checked_places
from outlive.ops.shape import broadcast_to, reshape, swapaxes
from outlive.ops.slicing import Region, one_by_one, take_region


class GatherMM(Primitive):
    """Reads a (..., M, K), b (..., K, N), and indices of their matrices in flattened leading axes; `sorted`: b's
    ascend.
    """

    __slots__ = ("sorted",)
    name = "gather_mm"
    donates = False
    sorted: bool

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        a, b, left, right = reads
        out = writes[0]
        if not out.size:
            return
        a, b, flat = [m.reshape(-1, *m.shape[-2:]) for m in (a, b, out)]
        left, right = checked_places(xp, left, a.shape[0]), checked_places(xp, right, b.shape[0])
        for chosen in xp.unique(right).tolist():
            rows = xp.nonzero(right == chosen)[0]
            part = a[left[rows]]
            made = xp.matmul(part.reshape(-1, part.shape[-1]), b[chosen])
            flat[rows] = made.reshape(part.shape[0], part.shape[1], -1)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        a, b, left, right = primals
        cotangent = cotangents[0]
        places = reshape(arange_like(right), right.shape)
        made: list[Any] = []
        for i in argnums:
            if i > 1:
                made.append(None)
                continue
            of = a if i == 0 else b
            if i == 0:
                terms = _gathered(cotangent, swapaxes(b, -1, -2), places, right, self.sorted, None)
            else:
                terms = _gathered(swapaxes(a, -1, -2), cotangent, left, places, True, None)
            flat = reshape(of, (-1, *of.shape[-2:]))
            made.append(reshape(scatter_zeros(flat, terms, [left if i == 0 else right], (0,), 0), of.shape))
        return made

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        a, b, left, right = primals
        terms = [
            _gathered(t, b, left, right, self.sorted, None)
            if i == 0
            else _gathered(a, t, left, right, self.sorted, None)
            for i, t in zip(argnums, tangents, strict=True)
            if i < 2
        ]
        return [terms[0] if len(terms) == 1 else add(*terms)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        return one_by_one(lambda a, b, left, right: _gathered(a, b, left, right, self.sorted, None), inputs, axes)


def _gathered(a: array, b: array, left: array, right: array, ascending: bool, stream: Any) -> array:
    shape = broadcast_shapes("gather_mm", left.shape, right.shape)
    left, right = broadcast_to(left, shape, stream=stream), broadcast_to(right, shape, stream=stream)
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"[gather_mm] Shapes {a.shape} and {b.shape} do not fit: the last axis of the first must equal the second to "
            "last of the second."
        )
    return apply(
        GatherMM.make(ascending), (a, b, left, right), layout((*shape, a.shape[-2], b.shape[-1]), a.dtype), stream
    )


def gather_mm(
    a: Any,
    b: Any,
    /,
    lhs_indices: Any = None,
    rhs_indices: Any = None,
    *,
    sorted_indices: bool = False,
    stream: Any = None,
) -> array:
    """Products of chosen matrices of `a` (..., M, K) with chosen matrices of `b` (..., K, N).

    `lhs_indices` and `rhs_indices` (integers that broadcast to a shape S; by default all matrices in order) count
    matrices in the flattened leading axes; the result has shape (*S, M, N). Vectors act as in `matmul`.
    `sorted_indices` says that `rhs_indices` ascend: a hint that never changes the result. Raises ValueError where
    shapes or types do not fit; an index out of range is an error of the result.

    >>> experts = mx.stack([mx.eye(2), 10 * mx.eye(2)])
    >>> mx.gather_mm(mx.array([[1.0, 2.0]]), experts, rhs_indices=mx.array([1, 0])).tolist()
    [[[10.0, 20.0]], [[1.0, 2.0]]]
    """
    a, b = as_array(a), as_array(b)
    if lhs_indices is None and rhs_indices is None:
        return matmul(a, b, stream=stream)
    kind = inexact_type("gather_mm", a, b)
    a, b = cast(a, kind), cast(b, kind)
    if not a.ndim or not b.ndim:
        raise ValueError(f"[gather_mm] Needs arrays with at least one axis; got shapes {a.shape} and {b.shape}.")
    row, column = a.ndim == 1, b.ndim == 1
    a = reshape(a, (1, a.shape[0]), stream=stream) if row else a
    b = reshape(b, (b.shape[0], 1), stream=stream) if column else b
    left = batch_indices("gather_mm", a.shape[:-2], lhs_indices)
    right = batch_indices("gather_mm", b.shape[:-2], rhs_indices)
    made = _gathered(a, b, left, right, bool(sorted_indices), stream)
    shape = made.shape
    return reshape(made, (*shape[:-2], *(() if row else shape[-2:-1]), *(() if column else shape[-1:])), stream=stream)


def _masked(a: array, mask: Any, block_size: int, which: str, stream: Any) -> array:
    """`a` with each block of its last two axes under its element of `mask`."""
    mask = as_array(mask)
    rows, columns = a.shape[-2:]
    wanted = (-(-rows // block_size), -(-columns // block_size))
    if mask.ndim < 2 or mask.shape[-2:] != wanted:
        raise ValueError(
            f"[block_masked_mm] Mask {which} of shape {mask.shape} does not fit a matrix of {rows} by {columns} in blocks "
            f"of {block_size}: its last axes must be {wanted}."
        )
    wide = repeat(repeat(mask, block_size, -2, stream=stream), block_size, -1, stream=stream)
    ndim = wide.ndim
    region = Region(tuple(range(ndim)), (*wide.shape[:-2], rows, columns), (0,) * ndim, (1,) * ndim)
    wide = take_region(wide, region, stream)
    if mask.dtype is dtypes.bool_:
        return where(wide, a, 0, stream=stream)
    return multiply(a, cast(wide, a.dtype), stream=stream)


def block_masked_mm(
    a: Any,
    b: Any,
    /,
    block_size: int = 64,
    mask_out: Any = None,
    mask_lhs: Any = None,
    mask_rhs: Any = None,
    *,
    stream: Any = None,
) -> array:
    """`a @ b` with blocks of `block_size` by `block_size` of the operands and of the result left out (boolean masks) or
    weighted.

    A mask holds an element a block, the last ones of which may be cut by the matrix. Raises ValueError where shapes or
    types do not fit.

    >>> ones, mask = mx.ones((64, 64)), mx.array([[True, False], [False, False]])
    >>> mx.block_masked_mm(ones, ones, block_size=32, mask_out=mask).sum()
    array(65536, dtype=float32)
    """
    a, b = as_array(a), as_array(b)
    if a.ndim < 2 or b.ndim < 2:
        raise ValueError(f"[block_masked_mm] Needs at least 2 dimensions; got shapes {a.shape} and {b.shape}.")
    if block_size < 1:
        raise ValueError(f"[block_masked_mm] The block size must be positive; got {block_size}.")
    kind = inexact_type("block_masked_mm", a, b)
    a, b = cast(a, kind), cast(b, kind)
    product_shape("block_masked_mm", a, b)
    if mask_lhs is not None:
        a = _masked(a, mask_lhs, block_size, "mask_lhs", stream)
    if mask_rhs is not None:
        b = _masked(b, mask_rhs, block_size, "mask_rhs", stream)
    made = matmul(a, b, stream=stream)
    return made if mask_out is None else _masked(made, mask_out, block_size, "mask_out", stream)


class SegmentedMM(Primitive):
    """Reads a (M, K), b (K, N) and segments (..., 2) of the summed axis; writes (..., M, N)."""

    __slots__ = ()
    name = "segmented_mm"
    donates = False

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        a, b, segments = reads
        out = writes[0].reshape(-1, *writes[0].shape[-2:])
        for at, (start, stop) in enumerate(segments.reshape(-1, 2).tolist()):
            if not 0 <= start <= a.shape[1] or not 0 <= stop <= a.shape[1]:
                raise IndexError(f"segment {start} to {stop} is out of range for an axis of length {a.shape[1]}")
            out[at] = xp.matmul(a[:, start:stop], b[start:stop]) if stop > start else 0


def segmented_mm(a: Any, b: Any, /, segments: Any, *, stream: Any = None) -> array:
    """Products of `a` (M, K) and `b` (K, N) over parts of the summed axis: one for each pair (start, end) of `segments`
    (..., 2).

    The result has shape (..., M, N). Raises ValueError where shapes or types do not fit; a segment out of range is an
    error of the result.

    >>> a, b = mx.ones((1, 4)), mx.ones((4, 1))
    >>> mx.segmented_mm(a, b, mx.array([[0, 1], [1, 4]], mx.uint32)).tolist()
    [[[1.0]], [[3.0]]]
    """
    a, b = as_array(a), as_array(b)
    segments = as_array(segments)
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError(f"[segmented_mm] Needs two matrices; got shapes {a.shape} and {b.shape}.")
    if not segments.ndim or segments.shape[-1] != 2:
        raise ValueError(f"[segmented_mm] Segments are pairs, of shape (..., 2); got {segments.shape}.")
    if segments.dtype.category not in (dtypes.signedinteger, dtypes.unsignedinteger):
        raise ValueError(f"[segmented_mm] Segments must be integers; got {segments.dtype.name}.")
    kind = inexact_type("segmented_mm", a, b)
    shape = product_shape("segmented_mm", a, b)
    result = layout((*segments.shape[:-1], *shape), kind)
    return apply(SegmentedMM.make(), (cast(a, kind), cast(b, kind), segments), result, stream)


__all__ = ["block_masked_mm", "gather_mm", "segmented_mm"]
