"""Linear algebra over stacks of matrices, by LAPACK. Factorizations run on float32 and float64 (complex where noted).

A matrix that has no answer (singular, not positive definite) is an error that belongs to the result: it raises when that is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from outlive.graph.array import apply, apply_many, array
from outlive.graph.primitive import Primitive
from outlive.ops.common import as_array, dtypes, layout, normal_axis
from outlive.ops.creation import eye, tril, zeros_like
from outlive.ops.elementwise import maximum, where
from outlive.ops.reduce import max as amax
from outlive.ops.reduce import min as amin
from outlive.ops.reduce import sum as asum
from outlive.ops.shape import broadcast_to, expand_dims, moveaxis, reshape, squeeze, swapaxes
from outlive.ops.unary import abs, sqrt, square
from outlive.runtime.layout import Layout

REAL = (dtypes.float32, dtypes.float64)


def _matrices(op: str, a: Any, square_only: bool = False, complex_too: bool = False) -> array:
    a = as_array(a)
    if a.dtype not in REAL and not (complex_too and a.dtype is dtypes.complex64):
        raise ValueError(f"[{op}] Matrices are float32 or float64 here; got {a.dtype.name}. Convert with astype.")
    if a.ndim < 2:
        raise ValueError(f"[{op}] Expected a matrix or a stack of them; got shape {a.shape}.")
    if square_only and a.shape[-1] != a.shape[-2]:
        raise ValueError(f"[{op}] Expected square matrices; got shape {a.shape}.")
    return a


class MatrixOp(Primitive):
    """Base: an op over the last two axes; leading axes are a stack, so a batch axis joins them."""

    __slots__ = ()
    donates = False

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        if type(layout) is tuple:
            outs = tuple(encoder.output(part, donate=False) for part in layout)
            encoder.dispatch(self, inputs, outs)
            return outs
        return super().encode(encoder, inputs, layout)

    def again(self, *inputs: array) -> Sequence[array]:
        """The same op over other operands, through its public function."""
        raise NotImplementedError

    def vmap(self, inputs: Any, axes: Any) -> Any:
        size = next(i.shape[a] for i, a in zip(inputs, axes, strict=True) if a is not None)
        moved = [
            moveaxis(i, a, 0) if a is not None else broadcast_to(expand_dims(i, 0), (size, *i.shape))
            for i, a in zip(inputs, axes, strict=True)
        ]
        outs = self.again(*moved)
        return outs, [0] * len(outs)


class Inverse(MatrixOp):
    __slots__ = ()
    name = "inv"

    def again(self, *inputs: array) -> Sequence[array]:
        return [inv(inputs[0])]

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        writes[0][...] = xp.linalg.inv(reads[0])

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        turned = swapaxes(outputs[0], -1, -2)
        return [-(turned @ cotangents[0] @ turned)]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        out = inv(primals[0])
        return [-(out @ tangents[0] @ out)]


class TriangularInverse(MatrixOp):
    __slots__ = ("upper",)
    name = "tri_inv"
    upper: bool

    def again(self, *inputs: array) -> Sequence[array]:
        return [tri_inv(inputs[0], self.upper)]

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        a = reads[0]
        triangle = xp.triu(a) if self.upper else xp.tril(a)
        writes[0][...] = xp.linalg.inv(triangle)


class Cholesky(MatrixOp):
    __slots__ = ("upper",)
    name = "cholesky"
    upper: bool

    def again(self, *inputs: array) -> Sequence[array]:
        return [cholesky(inputs[0], self.upper)]

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        lower = xp.linalg.cholesky(xp.swapaxes(reads[0], -1, -2) if self.upper else reads[0])
        writes[0][...] = xp.swapaxes(lower, -1, -2) if self.upper else lower

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        # Murray, "Differentiation of the Cholesky decomposition", 2016: S = L^-T phi(L^T ct) L^-1, phi halving the diagonal
        lower = swapaxes(outputs[0], -1, -2) if self.upper else outputs[0]
        ct = swapaxes(cotangents[0], -1, -2) if self.upper else cotangents[0]
        inner = swapaxes(lower, -1, -2) @ ct
        n = inner.shape[-1]
        phi = tril(inner) - eye(n) * inner * 0.5
        back = tri_inv(lower)
        whole = swapaxes(back, -1, -2) @ phi @ back
        return [(whole + swapaxes(whole, -1, -2)) * 0.5]


class Factorization(MatrixOp):
    """A factorization with several results, by a function of NumPy's or SciPy's."""

    __slots__ = ("factor",)
    factor: str

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.factor

    def again(self, *inputs: array) -> Sequence[array]:
        made = _PUBLIC[self.factor](inputs[0])
        return made if isinstance(made, (tuple, list)) else [made]

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        results = _FACTORS[self.factor](xp, reads[0])
        for out, result in zip(writes, results, strict=True):
            out[...] = result


def _lu(xp: Any, a: Any) -> tuple[Any, Any, Any]:
    import numpy as np
    from scipy.linalg import lu as factor

    rows, columns = a.shape[-2:]
    k = min(rows, columns)
    flat = a.reshape(-1, rows, columns)
    order, lower, upper = (
        np.empty((len(flat), rows), np.uint32), np.empty((len(flat), rows, k), a.dtype), np.empty((len(flat), k, columns), a.dtype),
    )  # fmt: skip
    for i, one in enumerate(flat):
        order[i], lower[i], upper[i] = factor(one, p_indices=True)
    lead = a.shape[:-2]
    return order.reshape(*lead, rows), lower.reshape(*lead, rows, k), upper.reshape(*lead, k, columns)


def _lu_factor(xp: Any, a: Any) -> tuple[Any, Any]:
    import warnings

    import numpy as np
    from scipy.linalg import lu_factor as factor

    rows, columns = a.shape[-2:]
    flat = a.reshape(-1, rows, columns)
    packed, pivots = np.empty_like(flat), np.empty((len(flat), min(rows, columns)), np.uint32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a singular factor is a result here
        for i, one in enumerate(flat):
            packed[i], pivots[i] = factor(one)
    return packed.reshape(a.shape), pivots.reshape(*a.shape[:-2], -1)


_FACTORS: dict[str, Callable[[Any, Any], tuple[Any, ...]]] = {
    "qr": lambda xp, a: tuple(xp.linalg.qr(a)),
    "svd": lambda xp, a: tuple(xp.linalg.svd(a, full_matrices=True)),
    "svdvals": lambda xp, a: (xp.linalg.svd(a, compute_uv=False),),
    "eigh_lower": lambda xp, a: tuple(xp.linalg.eigh(a, UPLO="L")),
    "eigh_upper": lambda xp, a: tuple(xp.linalg.eigh(a, UPLO="U")),
    "eigvalsh_lower": lambda xp, a: (xp.linalg.eigvalsh(a, UPLO="L"),),
    "eigvalsh_upper": lambda xp, a: (xp.linalg.eigvalsh(a, UPLO="U"),),
    "eig": lambda xp, a: tuple(xp.linalg.eig(a)),
    "eigvals": lambda xp, a: (xp.linalg.eigvals(a),),
    "lu": _lu,
    "lu_factor": _lu_factor,
    "slogdet": lambda xp, a: tuple(xp.linalg.slogdet(a)),
}


def _factor(name: str, a: array, results: tuple[Layout, ...], stream: Any) -> tuple[array, ...]:
    op = Factorization.make(name)
    if len(results) == 1:
        return (apply(_Single.make(name), (a,), results[0], stream),)
    return apply_many(op, (a,), results, stream)


class _Single(Factorization):
    """A factorization with one result."""

    __slots__ = ("factor",)

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        out = encoder.output(layout, donate=False)
        encoder.dispatch(self, inputs, (out,))
        return out


def inv(a: Any, stream: Any = None) -> array:
    """Inverses of square matrices (..., n, n). A singular one raises when the result is read. Raises ValueError for other shapes or types."""
    a = _matrices("inv", a, square_only=True)
    return apply(Inverse.make(), (a,), a._node.layout, stream)


def tri_inv(a: Any, upper: bool = False, stream: Any = None) -> array:
    """Inverses of triangular matrices (..., n, n); the other triangle is not read."""
    a = _matrices("tri_inv", a, square_only=True)
    return apply(TriangularInverse.make(bool(upper)), (a,), a._node.layout, stream)


def cholesky(a: Any, upper: bool = False, stream: Any = None) -> array:
    """Lower triangular L with L L^T = a (or upper U with U^T U = a) for symmetric positive definite a (..., n, n).

    One that is not positive definite raises when the result is read.
    """
    a = _matrices("cholesky", a, square_only=True)
    return apply(Cholesky.make(bool(upper)), (a,), a._node.layout, stream)


def cholesky_inv(L: Any, upper: bool = False, stream: Any = None) -> array:
    """The inverse of A from its Cholesky factor: A^-1 for A = L L^T (or U^T U)."""
    back = tri_inv(_matrices("cholesky_inv", L, square_only=True), upper, stream)
    turned = swapaxes(back, -1, -2)
    return back @ turned if upper else turned @ back  # type: ignore[no-any-return]


def qr(a: Any, stream: Any = None) -> tuple[array, array]:
    """Q (..., m, k) with orthonormal columns and upper triangular R (..., k, n) with Q R = a, k = min(m, n)."""
    a = _matrices("qr", a)
    *lead, m, n = a.shape
    k = min(m, n)
    q, r = _factor("qr", a, (layout((*lead, m, k), a.dtype), layout((*lead, k, n), a.dtype)), stream)
    return q, r


def svd(a: Any, compute_uv: bool = True, stream: Any = None) -> Any:
    """U (..., m, m), the singular values (..., min(m, n)) falling, and V^T (..., n, n); the values alone with `compute_uv=False`."""
    a = _matrices("svd", a)
    *lead, m, n = a.shape
    values = layout((*lead, min(m, n)), a.dtype)
    if not compute_uv:
        return _factor("svdvals", a, (values,), stream)[0]
    return _factor("svd", a, (layout((*lead, m, m), a.dtype), values, layout((*lead, n, n), a.dtype)), stream)


def _triangle(op: str, uplo: str) -> str:
    if uplo.upper() not in ("L", "U"):
        raise ValueError(f"[{op}] UPLO is 'L' or 'U'; got {uplo!r}.")
    return "lower" if uplo.upper() == "L" else "upper"


def eigh(a: Any, UPLO: str = "L", stream: Any = None) -> tuple[array, array]:
    """Eigenvalues (..., n), rising, and eigenvectors (columns) of symmetric or Hermitian matrices, of which one triangle is read."""
    a = _matrices("eigh", a, square_only=True, complex_too=True)
    real = dtypes.float32 if a.dtype is dtypes.complex64 else a.dtype
    values, vectors = _factor(
        f"eigh_{_triangle('eigh', UPLO)}", a, (layout(a.shape[:-1], real), layout(a.shape, a.dtype)), stream
    )
    return values, vectors


def eigvalsh(a: Any, UPLO: str = "L", stream: Any = None) -> array:
    """Eigenvalues (..., n), rising, of symmetric or Hermitian matrices."""
    a = _matrices("eigvalsh", a, square_only=True, complex_too=True)
    real = dtypes.float32 if a.dtype is dtypes.complex64 else a.dtype
    return _factor(f"eigvalsh_{_triangle('eigvalsh', UPLO)}", a, (layout(a.shape[:-1], real),), stream)[0]


def eig(a: Any, stream: Any = None) -> tuple[array, array]:
    """Eigenvalues (..., n) and eigenvectors (columns) of square matrices, complex64."""
    a = _matrices("eig", a, square_only=True, complex_too=True)
    values, vectors = _factor("eig", a, (layout(a.shape[:-1], dtypes.complex64), layout(a.shape, dtypes.complex64)), stream)
    return values, vectors


def eigvals(a: Any, stream: Any = None) -> array:
    """Eigenvalues (..., n) of square matrices, complex64."""
    a = _matrices("eigvals", a, square_only=True, complex_too=True)
    return _factor("eigvals", a, (layout(a.shape[:-1], dtypes.complex64),), stream)[0]


def lu(a: Any, stream: Any = None) -> tuple[array, array, array]:
    """Row order p (..., m) as uint32, unit lower triangular L and upper triangular U with L[p] U = a."""
    a = _matrices("lu", a)
    *lead, m, n = a.shape
    k = min(m, n)
    p, lower, upper = _factor(
        "lu", a, (layout((*lead, m), dtypes.uint32), layout((*lead, m, k), a.dtype), layout((*lead, k, n), a.dtype)), stream
    )
    return p, lower, upper


def lu_factor(a: Any, stream: Any = None) -> tuple[array, array]:
    """L and U packed in one matrix, and the pivots (..., min(m, n)) as uint32: row i was swapped with row pivots[i]."""
    a = _matrices("lu_factor", a)
    packed, pivots = _factor(
        "lu_factor", a, (a._node.layout, layout((*a.shape[:-2], min(a.shape[-2:])), dtypes.uint32)), stream
    )
    return packed, pivots


def slogdet(a: Any, stream: Any = None) -> tuple[array, array]:
    """Sign and logarithm of the absolute value of the determinant, each of shape (...)."""
    a = _matrices("slogdet", a, square_only=True)
    out = layout(a.shape[:-2], a.dtype)
    sign, logarithm = _factor("slogdet", a, (out, out), stream)
    return sign, logarithm


def det(a: Any, stream: Any = None) -> array:
    """Determinants of square matrices, of shape (...)."""
    from outlive.ops.unary import exp

    sign, logarithm = slogdet(a, stream)
    return sign * exp(logarithm)  # type: ignore[no-any-return]


def solve(a: Any, b: Any, stream: Any = None) -> array:
    """x with a x = b for square a (..., n, n) and b (..., n) or (..., n, k). A singular one raises when the result is read."""
    a, b = _matrices("solve", a, square_only=True), as_array(b)
    if b.ndim == a.ndim - 1 or b.ndim == 1:
        return squeeze(inv(a, stream) @ expand_dims(b, -1), -1)
    return inv(a, stream) @ b  # type: ignore[no-any-return]


def solve_triangular(a: Any, b: Any, *, upper: bool = False, stream: Any = None) -> array:
    """x with a x = b for triangular a (..., n, n) and b (..., n) or (..., n, k); the other triangle is not read."""
    back, b = tri_inv(a, upper, stream), as_array(b)
    if b.ndim == back.ndim - 1 or b.ndim == 1:
        return squeeze(back @ expand_dims(b, -1), -1)
    return back @ b  # type: ignore[no-any-return]


def pinv(a: Any, stream: Any = None) -> array:
    """Moore-Penrose inverses (..., n, m) of matrices (..., m, n), by singular values above eps * max(m, n) * the largest."""
    import numpy as np

    a = _matrices("pinv", a)
    m, n = a.shape[-2:]
    u, s, vt = svd(a, stream=stream)
    k = min(m, n)
    cutoff = amax(s, -1, keepdims=True) * float(np.finfo(a.dtype.storage).eps * max_of(m, n))
    weights = where(s > cutoff, 1 / maximum(s, cutoff), 0.0)
    return swapaxes(vt[..., :k, :], -1, -2) @ (expand_dims(weights, -1) * swapaxes(u[..., :, :k], -1, -2))  # type: ignore[no-any-return,index]


def max_of(a: int, b: int) -> int:
    """The larger of two lengths."""
    return a if a > b else b


def cross(a: Any, b: Any, axis: int = -1, stream: Any = None) -> array:
    """Cross products of vectors of 3 (or 2) elements along `axis`. Raises ValueError for other lengths."""
    a, b = as_array(a), as_array(b)
    a, b = moveaxis(a, axis, -1), moveaxis(b, axis, -1)
    if a.shape[-1] not in (2, 3) or b.shape[-1] not in (2, 3):
        raise ValueError(f"[cross] Vectors have 2 or 3 elements; got shapes {a.shape} and {b.shape}.")
    from outlive.ops.join import concatenate, stack

    a, b = (concatenate([v, zeros_like(v[..., :1])], -1) if v.shape[-1] == 2 else v for v in (a, b))
    x, y, z = ((a[..., i], b[..., i]) for i in range(3))
    parts = [y[0] * z[1] - z[0] * y[1], z[0] * x[1] - x[0] * z[1], x[0] * y[1] - y[0] * x[1]]
    return moveaxis(stack(parts, -1, stream=stream), -1, axis)


Order = int | float | str | None


def norm(a: Any, /, ord: Order = None, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: Any = None) -> array:
    """Norms of vectors (one axis) or matrices (two axes); without `ord` the 2-norm of all elements, or along `axis`.

    Vectors: any number, inf and -inf. Matrices: 'fro', 'nuc', 1, -1, 2, -2, inf, -inf. Integers are taken as float32. Raises ValueError
    for other orders or numbers of axes.
    """
    a = as_array(a)
    a = a if a.dtype.inexact else a.astype(dtypes.float32)  # type: ignore[attr-defined]
    if ord is None:
        return sqrt(asum(square(abs(a)), axis, keepdims, stream=stream))
    axes = list(range(a.ndim)) if axis is None else [axis] if isinstance(axis, int) else list(axis)
    axes = [normal_axis("norm", x, a.ndim) for x in axes]
    if len(axes) == 1:
        return _vector_norm(a, ord, axes[0], keepdims)
    if len(axes) == 2:
        return _matrix_norm(a, ord, axes[0], axes[1], keepdims)
    raise ValueError(f"[norm] A norm of order {ord!r} goes over one or two axes; got {len(axes)} for shape {a.shape}.")


def _vector_norm(a: array, order: Any, axis: int, keepdims: bool) -> array:
    if isinstance(order, str):
        raise ValueError(f"[norm] Order {order!r} is for matrices; a vector takes a number.")
    size = abs(a)
    if order == float("inf"):
        return amax(size, axis, keepdims)
    if order == float("-inf"):
        return amin(size, axis, keepdims)
    if order == 0:
        return asum((size != 0).astype(size.dtype), axis, keepdims)  # type: ignore[attr-defined]
    if order == 1:
        return asum(size, axis, keepdims)
    if order == 2:
        return sqrt(asum(square(size), axis, keepdims))
    return asum(size**order, axis, keepdims) ** (1.0 / order)  # type: ignore[no-any-return,operator]


def _matrix_norm(a: array, order: Any, row: int, column: int, keepdims: bool) -> array:
    if order in ("fro", "f"):
        return sqrt(asum(square(abs(a)), (row, column), keepdims))
    if order in (1, -1, float("inf"), float("-inf")):
        along, over = (row, column) if order in (1, -1) else (column, row)
        sums = asum(abs(a), along, keepdims=True)
        out = (amax if order > 0 else amin)(sums, over, keepdims=True)
    elif order in ("nuc", 2, -2):
        turned = moveaxis(moveaxis(a, row, -1), column - (row < column), -1)
        values = svd(turned, compute_uv=False)
        made = asum(values, -1) if order == "nuc" else (amax if order == 2 else amin)(values, -1)
        return expand_dims(made, sorted((row, column))) if keepdims else made
    else:
        raise ValueError(f"[norm] No matrix norm has order {order!r}; use 'fro', 'nuc', 1, -1, 2, -2, inf or -inf.")
    return out if keepdims else reshape(out, tuple(n for i, n in enumerate(out.shape) if i not in (row, column)))


_PUBLIC: dict[str, Callable[..., Any]] = {
    "qr": qr, "svd": svd, "svdvals": lambda a: svd(a, False), "eigh_lower": eigh, "eigh_upper": lambda a: eigh(a, "U"),
    "eigvalsh_lower": eigvalsh, "eigvalsh_upper": lambda a: eigvalsh(a, "U"), "eig": eig, "eigvals": eigvals, "lu": lu,
    "lu_factor": lu_factor, "slogdet": slogdet,
}  # fmt: skip

__all__ = [
    "cholesky", "cholesky_inv", "cross", "det", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lu", "lu_factor", "norm", "pinv", "qr", "slogdet",
    "solve", "solve_triangular", "svd", "tri_inv",
]  # fmt: skip
