"""Matrix products and what is made of them.

Sums of half-precision products are accumulated in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.graph.array import apply, array
from outlive.graph.primitive import Primitive
from outlive.ops import reduce
from outlive.ops.common import (
    Dtype,
    Plans,
    as_array,
    broadcast_layout,
    broadcast_shapes,
    dtypes,
    layout,
    promote,
    strided_layout,
)
from outlive.ops.elementwise import add, multiply
from outlive.ops.shape import (
    batch_in_front,
    batch_size,
    checked_axis,
    flatten,
    reshape,
    sum_to,
    swapaxes,
    transpose,
    view_strides,
)
from outlive.ops.slicing import with_zeros
from outlive.ops.unary import conjugate


def folded(encoder: Any, operand: Any) -> Any | None:
    """A stack of matrices seen as one matrix of all their rows, or None where strides cannot say it."""
    source = operand.layout
    shape = (source.size // max(source.shape[-1], 1), source.shape[-1])
    strides = view_strides(source, shape) if source.size else None
    return None if strides is None else encoder.reshaped(operand, strided_layout(shape, strides, source.dtype))


def stacked(encoder: Any, operand: Any, batch: tuple[int, ...]) -> Any:
    """A stack of matrices seen under the common batch shape."""
    source = operand.layout
    if source.shape[:-2] == batch:
        return operand
    return encoder.reshaped(operand, broadcast_layout(source, (*batch, *source.shape[-2:])))


class Matmul(Primitive):
    """Products of matrices in the last two axes, the others broadcast."""

    __slots__ = ()
    name = "matmul"
    donates = False

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        out = encoder.output(layout, False)
        a, b = inputs
        if b.layout.ndim == 2 and a.layout.ndim > 2:
            rows, target = folded(encoder, a), folded(encoder, out)
            if rows is not None and target is not None:
                encoder.dispatch(self, (rows, b), (target,))
                return out
        batch = layout.shape[:-2]
        encoder.dispatch(self, (stacked(encoder, a, batch), stacked(encoder, b, batch)), (out,))
        return out

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        xp.matmul(reads[0], reads[1], out=writes[0])

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        a, b = (conjugate(p) for p in primals)
        cotangent = cotangents[0]
        made = []
        for i in argnums:
            if i == 0:
                made.append(sum_to(matmul(cotangent, swapaxes(b, -1, -2)), a.shape))
            elif b.ndim == 2 and a.ndim > 2:
                rows, outer = reshape(a, (-1, a.shape[-1])), reshape(cotangent, (-1, cotangent.shape[-1]))
                made.append(matmul(transpose(rows), outer))
            else:
                made.append(sum_to(matmul(swapaxes(a, -1, -2), cotangent), b.shape))
        return made

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        a, b = primals
        given = dict(zip(argnums, tangents, strict=True))
        terms = [matmul(t, b) if i == 0 else matmul(a, t) for i, t in given.items()]
        return [terms[0] if len(terms) == 1 else add(*terms)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        size = batch_size(inputs, axes)
        ndim = max(a.ndim - (axis is not None) for a, axis in zip(inputs, axes, strict=True))
        made = []
        for a, axis in zip(inputs, axes, strict=True):
            if axis is None:
                made.append(a)
                continue
            made.append(batch_in_front(a, axis, size, ndim))
        return [matmul(*made)], [0]


class AddMM(Primitive):
    """beta * c + alpha * (a @ b), rounded once."""

    __slots__ = ("alpha", "beta")
    name = "addmm"
    donates = False
    alpha: float
    beta: float

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        out = encoder.output(layout, False)
        c, a, b = inputs
        batch = layout.shape[:-2]
        c = encoder.reshaped(c, broadcast_layout(c.layout, layout.shape))
        encoder.dispatch(self, (c, stacked(encoder, a, batch), stacked(encoder, b, batch)), (out,))
        return out

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        c, a, b = reads
        out = writes[0]
        xp.matmul(a, b, out=out)
        if self.alpha != 1:
            xp.multiply(out, out.dtype.type(self.alpha), out=out)
        if self.beta:
            xp.add(out, c if self.beta == 1 else c * out.dtype.type(self.beta), out=out)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        c, a, b = (conjugate(p) for p in primals)
        cotangent = cotangents[0]
        made = []
        for i in argnums:
            if i == 0:
                made.append(sum_to(multiply(cotangent, self.beta), c.shape))
            elif i == 1:
                made.append(sum_to(multiply(matmul(cotangent, swapaxes(b, -1, -2)), self.alpha), a.shape))
            else:
                made.append(sum_to(multiply(matmul(swapaxes(a, -1, -2), cotangent), self.alpha), b.shape))
        return made

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        _, a, b = primals
        dc, da, db = with_zeros(primals, tangents, argnums)
        return [add(addmm(dc, da, b, self.alpha, self.beta), addmm(dc, a, db, self.alpha, 0.0))]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        size = batch_size(inputs, axes)
        ndim = max(a.ndim - (axis is not None) for a, axis in zip(inputs, axes, strict=True))
        c, a, b = [batch_in_front(i, axis, size, ndim) for i, axis in zip(inputs, axes, strict=True)]
        return [addmm(c, a, b, self.alpha, self.beta)], [0]


def inexact_type(op: str, *arrays: array) -> Dtype:
    """The common type of `arrays`; raises ValueError where it is no float."""
    kind = arrays[0].dtype
    for a in arrays[1:]:
        kind = promote(kind, a.dtype)
    if not kind.inexact:
        listed = ", ".join(a.dtype.name for a in arrays)
        raise ValueError(f"[{op}] Needs floating-point arrays; got {listed}. Convert one with astype(mx.float32).")
    return kind


def cast(a: array, dtype: Dtype) -> array:
    """`a` in `dtype`."""
    return a if a.dtype is dtype else a.astype(dtype)


def product_shape(op: str, a: array, b: array) -> tuple[int, ...]:
    """Shape of a @ b for operands with two axes or more; raises ValueError where they do not fit."""
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"[{op}] Shapes {a.shape} and {b.shape} do not fit: the last axis of the first ({a.shape[-1]}) must equal "
            f"the second to last of the second ({b.shape[-2]})."
        )
    batch = a.shape[:-2]
    if batch != b.shape[:-2]:
        batch = broadcast_shapes(op, batch, b.shape[:-2])
    return (*batch, a.shape[-2], b.shape[-1])


def matmul(a: Any, b: Any, /, *, stream: Any = None) -> array:
    """The matrix product of the last two axes; the others broadcast.

    A vector acts as a row on the left, as a column on the right.

    Raises ValueError where the shapes do not fit, for arrays without axes, and for types that are not floating-point.

    >>> a = mx.array([[1.0, 2.0], [3.0, 4.0]])
    >>> mx.matmul(a, mx.array([1.0, 1.0]))
    array([3, 7], dtype=float32)
    >>> (mx.zeros((5, 2, 3)) @ mx.zeros((3, 4))).shape
    (5, 2, 4)
    """
    if type(a) is not array or type(b) is not array:
        a, b = _matrix("matmul", a), _matrix("matmul", b)
    kind = a.dtype
    if kind is not b.dtype or not kind.inexact:
        kind = inexact_type("matmul", a, b)
        a, b = cast(a, kind), cast(b, kind)
    key = (a._node.layout, b._node.layout)
    result = _products.get(key)
    if result is None:
        if a.ndim < 2 or b.ndim < 2:
            return _vector_product(a, b, stream)
        result = _products.keep(key, layout(product_shape("matmul", a, b), kind))
    return apply(_MATMUL, (a, b), result, stream)


_products = Plans()


_MATMUL = Matmul.make()


def _matrix(op: str, a: Any) -> array:
    if isinstance(a, (bool, int, float, complex)):
        raise TypeError(f"[{op}] Needs arrays; got the number {a}. Use * for products with numbers.")
    return as_array(a)


def _vector_product(a: array, b: array, stream: Any) -> array:
    if not a.ndim or not b.ndim:
        raise ValueError(f"[matmul] Needs arrays with at least one axis; got shapes {a.shape} and {b.shape}.")
    row, column = a.ndim == 1, b.ndim == 1
    left = reshape(a, (1, a.shape[0]), stream=stream) if row else a
    right = reshape(b, (b.shape[0], 1), stream=stream) if column else b
    made = matmul(left, right, stream=stream)
    shape = made.shape
    kept = (*shape[:-2], *(() if row else shape[-2:-1]), *(() if column else shape[-1:]))
    return reshape(made, kept, stream=stream)


def addmm(c: Any, a: Any, b: Any, /, alpha: float = 1.0, beta: float = 1.0, *, stream: Any = None) -> array:
    """`beta * c + alpha * (a @ b)`, rounded once; `c` broadcasts to the product's shape.

    Raises ValueError where the shapes do not fit, and for types that are not real floating-point ones.

    >>> mx.addmm(mx.array([1.0, 2.0]), mx.eye(2), mx.ones((2, 2)), alpha=10.0).tolist()
    [[11.0, 12.0], [11.0, 12.0]]
    """
    c, a, b = as_array(c), _matrix("addmm", a), _matrix("addmm", b)
    kind = inexact_type("addmm", c, a, b)
    if kind is dtypes.complex64:
        raise ValueError("[addmm] Needs real floating-point arrays; use matmul and add for complex ones.")
    c, a, b = cast(c, kind), cast(a, kind), cast(b, kind)
    if a.ndim < 2 or b.ndim < 2:
        return _vector_addmm(c, a, b, alpha, beta, stream)
    shape = product_shape("addmm", a, b)
    if broadcast_shapes("addmm", c.shape, shape) != shape:
        raise ValueError(f"[addmm] An addend of shape {c.shape} does not fit a product of shape {shape}.")
    return apply(AddMM.make(float(alpha), float(beta)), (c, a, b), layout(shape, kind), stream)


def _vector_addmm(c: array, a: array, b: array, alpha: float, beta: float, stream: Any) -> array:
    product = matmul(a, b, stream=stream)
    if broadcast_shapes("addmm", c.shape, product.shape) != product.shape:
        raise ValueError(f"[addmm] An addend of shape {c.shape} does not fit a product of shape {product.shape}.")
    return add(multiply(c, beta, stream=stream), multiply(product, alpha, stream=stream), stream=stream)


def inner(a: Any, b: Any, /, *, stream: Any = None) -> array:
    """Sums of products along the last axes of both: shape `a.shape[:-1] + b.shape[:-1]`.

    An array without axes multiplies.

    Raises ValueError where the last axes differ, and for types that are not floating-point.

    >>> mx.inner(mx.array([1.0, 2.0]), mx.array([3.0, 4.0]))
    array(11, dtype=float32)
    """
    a, b = as_array(a), as_array(b)
    if not a.ndim or not b.ndim:
        return multiply(a, b, stream=stream)
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(f"[inner] The last axes of shapes {a.shape} and {b.shape} differ.")
    return tensordot(a, b, [[a.ndim - 1], [b.ndim - 1]], stream=stream)


def outer(a: Any, b: Any, /, *, stream: Any = None) -> array:
    """All products of an element of `a` with one of `b`, both flattened: shape (a.size, b.size), in their
    promoted type.

    >>> mx.outer(mx.array([1, 2]), mx.array([3, 4])).tolist()
    [[3, 4], [6, 8]]
    """
    a, b = as_array(a), as_array(b)
    return multiply(reshape(a, (a.size, 1), stream=stream), flatten(b, stream=stream), stream=stream)


def tensordot(a: Any, b: Any, /, axes: int | Sequence[Sequence[int]] = 2, *, stream: Any = None) -> array:
    """Sums of products over axes of `a` and `b`: the last `axes` of `a` with the first of `b`, or the axes listed for
    each.

    The result has the other axes of `a`, then those of `b`. Raises ValueError where the axes do not fit, IndexError for
    one out of range.

    >>> mx.tensordot(mx.ones((2, 3, 4)), mx.ones((4, 3, 5)), axes=[[1, 2], [1, 0]]).shape
    (2, 5)
    """
    a, b = as_array(a), as_array(b)
    if isinstance(axes, int):
        if axes < 0 or axes > min(a.ndim, b.ndim):
            raise ValueError(f"[tensordot] {axes} axes cannot be summed over for shapes {a.shape} and {b.shape}.")
        first, second = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        first = [checked_axis("tensordot", i, a.ndim) for i in axes[0]]
        second = [checked_axis("tensordot", i, b.ndim) for i in axes[1]]
    if len(first) != len(second):
        raise ValueError(f"[tensordot] As many axes are needed for each array; got {len(first)} and {len(second)}.")
    if [a.shape[i] for i in first] != [b.shape[i] for i in second]:
        raise ValueError(
            f"[tensordot] Axes {first} of shape {a.shape} and {second} of shape {b.shape} differ in length."
        )
    kept_a = [i for i in range(a.ndim) if i not in first]
    kept_b = [i for i in range(b.ndim) if i not in second]
    rows = [a.shape[i] for i in kept_a]
    columns = [b.shape[i] for i in kept_b]
    count = 1
    for i in first:
        count *= a.shape[i]
    left = reshape(transpose(a, [*kept_a, *first], stream=stream), (_product(rows), count), stream=stream)
    right = reshape(transpose(b, [*second, *kept_b], stream=stream), (count, _product(columns)), stream=stream)
    return reshape(matmul(left, right, stream=stream), (*rows, *columns), stream=stream)


def _product(lengths: Sequence[int]) -> int:
    made = 1
    for n in lengths:
        made *= n
    return made


def kron(a: Any, b: Any, *, stream: Any = None) -> array:
    """The Kronecker product: every element of `a` times the whole of `b`, in their promoted type.

    The shorter shape gets leading ones; each length of the result is the product of the two.

    >>> mx.kron(mx.array([1, 10]), mx.array([1, 2, 3]))
    array([1, 2, 3, 10, 20, 30], dtype=int32)
    """
    a, b = as_array(a), as_array(b)
    ndim = max(a.ndim, b.ndim)
    first = (1,) * (ndim - a.ndim) + a.shape
    second = (1,) * (ndim - b.ndim) + b.shape
    left = reshape(a, tuple([n for pair in zip(first, (1,) * ndim, strict=True) for n in pair]), stream=stream)
    right = reshape(b, tuple([n for pair in zip((1,) * ndim, second, strict=True) for n in pair]), stream=stream)
    shape = tuple([n * m for n, m in zip(first, second, strict=True)])
    return reshape(multiply(left, right, stream=stream), shape, stream=stream)


def vecdot(a: Any, b: Any, /, *, axis: int = -1, stream: Any = None) -> array:
    """Sums of conj(a) * b along `axis`; the other axes broadcast.

    Raises ValueError where the axis is missing or its lengths differ.

    >>> mx.vecdot(mx.array([[1.0, 2.0], [3.0, 4.0]]), mx.array([1.0, 1.0]))
    array([3, 7], dtype=float32)
    """
    a, b = as_array(a), as_array(b)
    if axis >= 0 or -axis > min(a.ndim, b.ndim):
        if not 0 <= axis < min(a.ndim, b.ndim) or a.ndim != b.ndim:
            raise ValueError(f"[vecdot] Axis {axis} is out of range for shapes {a.shape} and {b.shape}.")
        axis -= a.ndim
    if a.shape[axis] != b.shape[axis]:
        raise ValueError(f"[vecdot] Axis {axis} of shapes {a.shape} and {b.shape} differs in length.")
    if a.dtype is dtypes.complex64:
        a = conjugate(a, stream=stream)
    return reduce.sum(multiply(a, b, stream=stream), axis, stream=stream)


__all__ = ["addmm", "inner", "kron", "matmul", "outer", "tensordot", "vecdot"]
