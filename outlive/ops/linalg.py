"""Linear algebra over stacks of matrices, by LAPACK. Factorizations take float32 and float64, complex64 where noted.

A matrix that has no answer (singular, not positive definite) is an error that belongs to the result: it raises when
that is read.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from outlive.graph.array import apply, apply_many, array
from outlive.graph.primitive import Primitive
from outlive.ops.common import Dtype, as_array, broadcast_shapes, dtypes, layout, promote
from outlive.ops.creation import eye, tril, triu, zeros, zeros_like
from outlive.ops.elementwise import divide, maximum, multiply, where
from outlive.ops.matmul import matmul
from outlive.ops.reduce import max as amax
from outlive.ops.reduce import sum as asum
from outlive.ops.shape import batch_first, batch_size, broadcast_to, expand_dims, squeeze, swapaxes
from outlive.ops.slicing import axis_range
from outlive.ops.unary import astype, conjugate, negative
from outlive.runtime.layout import Layout

REAL = (dtypes.float32, dtypes.float64)


def _matrices(op: str, a: Any, square_only: bool = False, complex_too: bool = False) -> array:
    a = as_array(a)
    if a.dtype not in REAL and not (complex_too and a.dtype is dtypes.complex64):
        allowed = "float32, float64 or complex64" if complex_too else "float32 or float64"
        raise ValueError(f"[linalg.{op}] Matrices are {allowed} here; got {a.dtype.name}. Convert with astype.")
    return _checked_matrices(op, a, square_only)


def _checked_matrices(op: str, a: array, square_only: bool) -> array:
    if a.ndim < 2:
        raise ValueError(f"[linalg.{op}] Expected a matrix or a stack of them; got shape {a.shape}.")
    if square_only and a.shape[-1] != a.shape[-2]:
        raise ValueError(f"[linalg.{op}] Expected square matrices; got shape {a.shape}.")
    return a


def adjoint(a: array) -> array:
    """Conjugate transposes of matrices."""
    return conjugate(swapaxes(a, -1, -2))


class MatrixOp(Primitive):
    """Base: an op over the last two axes; leading axes are a stack, so a batch axis joins them."""

    __slots__ = ()
    donates = False

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        if type(layout) is not tuple:
            return super().encode(encoder, inputs, layout)
        outs = tuple([encoder.output(part, donate=False) for part in layout])
        encoder.dispatch(self, inputs, outs)
        return outs

    def results(self, *operands: Layout) -> tuple[Layout, ...]:
        """The layouts of the outputs; by default one like the last operand."""
        return (operands[-1].dense,)

    def workspace(self, reads: Any, writes: Any) -> int:
        # LAPACK works on copies of its operands, in column order, beside its own scratch of a few columns' blocks
        return 16 * 8 * sum(part.size for part in (*reads, *writes)) + (1 << 16)

    def vmap(self, inputs: Any, axes: Any) -> Any:
        size = batch_size(inputs, axes)
        outs = _applied(self, *[batch_first(a, axis, size) for a, axis in zip(inputs, axes, strict=True)])
        return outs, [0] * len(outs)


def _applied(op: MatrixOp, *operands: array, stream: Any = None) -> tuple[array, ...]:
    results = op.results(*[a._node.layout for a in operands])
    if len(results) == 1:
        return (apply(op, operands, results[0], stream),)
    return apply_many(op, operands, results, stream)


class Inverse(MatrixOp):
    __slots__ = ()
    name = "linalg.inv"

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        writes[0][...] = xp.linalg.inv(reads[0])

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        turned = adjoint(outputs[0])
        return [negative(matmul(matmul(turned, cotangents[0]), turned))]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        out = inv(primals[0])
        return [negative(matmul(matmul(out, tangents[0]), out))]


class Solve(MatrixOp):
    """x of a x = b for matrices b (..., n, k) with the stack of a."""

    __slots__ = ()
    name = "linalg.solve"

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        writes[0][...] = xp.linalg.solve(reads[0], reads[1])

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        back = _applied(self, adjoint(primals[0]), cotangents[0])[0]
        parts = {1: back}
        if 0 in argnums:
            parts[0] = negative(matmul(back, adjoint(outputs[0])))
        return [parts[i] for i in argnums]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        a, b = primals
        given = dict(zip(argnums, tangents, strict=True))
        terms = [given[1]] if 1 in given else []
        if 0 in given:
            terms.append(negative(matmul(given[0], _applied(self, a, b)[0])))
        return [_applied(self, a, terms[0] if len(terms) == 1 else terms[0] + terms[1])[0]]


class Cholesky(MatrixOp):
    __slots__ = ("upper",)
    name = "linalg.cholesky"
    upper: bool

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        lower = xp.linalg.cholesky(xp.swapaxes(reads[0], -1, -2) if self.upper else reads[0])
        writes[0][...] = xp.swapaxes(lower, -1, -2) if self.upper else lower

    def _lower(self, factor: array) -> array:
        return swapaxes(factor, -1, -2) if self.upper else factor

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        # Murray, "Differentiation of the Cholesky decomposition", 2016: the symmetric part of L^-T phi(L^T ct) L^-1
        lower = self._lower(outputs[0])
        inner = _half_diagonal(matmul(swapaxes(lower, -1, -2), self._lower(cotangents[0])))
        back = tri_inv(lower)
        whole = matmul(matmul(swapaxes(back, -1, -2), inner), back)
        return [(whole + swapaxes(whole, -1, -2)) * 0.5]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        # the same paper: L' = L phi(L^-1 A' L^-T)
        lower = self._lower(cholesky(primals[0], self.upper))
        back, moved = tri_inv(lower), (tangents[0] + swapaxes(tangents[0], -1, -2)) * 0.5
        inner = _half_diagonal(matmul(matmul(back, moved), swapaxes(back, -1, -2)))
        return [self._lower(matmul(lower, inner))]


def _half_diagonal(a: array) -> array:
    """The lower triangle, its diagonal halved."""
    return tril(a) - multiply(eye(a.shape[-1], dtype=a.dtype), a) * 0.5


class Factorization(MatrixOp):
    """Base: `compute` gives the results of one operand in the order of `results`."""

    __slots__ = ()

    def compute(self, xp: Any, a: Any) -> Sequence[Any]:
        raise NotImplementedError

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        for out, result in zip(writes, self.compute(xp, reads[0]), strict=True):
            out[...] = result


def real_type(dtype: Dtype) -> Dtype:
    """The type of the absolute values of numbers of `dtype`."""
    return dtypes.float32 if dtype is dtypes.complex64 else dtype


def _of(source: Layout, *last: int, dtype: Dtype | None = None) -> Layout:
    """A layout with the stack of `source` and other last axes."""
    return layout((*source.shape[:-2], *last), dtype or source.dtype)


class QR(Factorization):
    __slots__ = ()
    name = "linalg.qr"

    def results(self, *operands: Layout) -> tuple[Layout, ...]:
        rows, columns = operands[0].shape[-2:]
        inner = min(rows, columns)
        return _of(operands[0], rows, inner), _of(operands[0], inner, columns)

    def compute(self, xp: Any, a: Any) -> Sequence[Any]:
        return tuple(xp.linalg.qr(a))


class SVD(Factorization):
    __slots__ = ()
    name = "linalg.svd"

    def results(self, *operands: Layout) -> tuple[Layout, ...]:
        a = operands[0]
        rows, columns = a.shape[-2:]
        values = _of(a, min(rows, columns), dtype=real_type(a.dtype))  # type: ignore[arg-type]
        return _of(a, rows, rows), values, _of(a, columns, columns)

    def compute(self, xp: Any, a: Any) -> Sequence[Any]:
        return tuple(xp.linalg.svd(a, full_matrices=True))


class SingularValues(Factorization):
    __slots__ = ()
    name = "linalg.svd"

    def results(self, *operands: Layout) -> tuple[Layout, ...]:
        a = operands[0]
        return (_of(a, min(a.shape[-2:]), dtype=real_type(a.dtype)),)  # type: ignore[arg-type]

    def compute(self, xp: Any, a: Any) -> Sequence[Any]:
        return (xp.linalg.svd(a, compute_uv=False),)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        u, vt = _thin(primals[0])
        return [matmul(multiply(u, expand_dims(cotangents[0], -2)), vt)]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        u, vt = _thin(primals[0])
        moved = matmul(matmul(adjoint(u), tangents[0]), adjoint(vt))
        return [_real_part(_diagonal(moved))]


def _thin(a: array) -> tuple[array, array]:
    """The singular vectors that belong to singular values: U (..., m, k) and V^H (..., k, n)."""
    u, s, vt = svd(a)
    k = s.shape[-1]
    return axis_range(u, u.ndim - 1, 0, k), axis_range(vt, vt.ndim - 2, 0, k)


def _diagonal(a: array) -> array:
    from outlive.ops.creation import diagonal

    return diagonal(a, 0, -2, -1)


def _real_part(a: array) -> array:
    from outlive.ops.unary import real

    return real(a)


class Eigh(Factorization):
    __slots__ = ("triangle",)
    name = "linalg.eigh"
    triangle: str

    def results(self, *operands: Layout) -> tuple[Layout, ...]:
        a = operands[0]
        return _of(a, a.shape[-1], dtype=real_type(a.dtype)), a.dense  # type: ignore[arg-type]

    def compute(self, xp: Any, a: Any) -> Sequence[Any]:
        return tuple(xp.linalg.eigh(a, UPLO=self.triangle))

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        # Giles, "An extended collection of matrix derivative results", 2008: V (diag(ct w) + F * (V^H ct V)) V^H
        values, vectors = outputs
        inner = multiply(_gaps(values), matmul(adjoint(vectors), cotangents[1]))
        inner = inner + multiply(eye(values.shape[-1], dtype=values.dtype), expand_dims(cotangents[0], -2))
        whole = matmul(matmul(vectors, inner), adjoint(vectors))
        return [(whole + adjoint(whole)) * 0.5]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        values, vectors = eigh(primals[0], self.triangle)
        moved = (tangents[0] + adjoint(tangents[0])) * 0.5
        inner = matmul(matmul(adjoint(vectors), moved), vectors)
        return [_real_part(_diagonal(inner)), matmul(vectors, multiply(_gaps(values), inner))]


def _gaps(values: array) -> array:
    """1 / (w[j] - w[i]) for i != j, 0 on the diagonal and between equal eigenvalues."""
    gaps = expand_dims(values, -2) - expand_dims(values, -1)
    apart = gaps != 0
    return where(apart, divide(1.0, where(apart, gaps, 1.0)), 0.0)


class EigenvaluesHermitian(Factorization):
    __slots__ = ("triangle",)
    name = "linalg.eigvalsh"
    triangle: str

    def results(self, *operands: Layout) -> tuple[Layout, ...]:
        a = operands[0]
        return (_of(a, a.shape[-1], dtype=real_type(a.dtype)),)  # type: ignore[arg-type]

    def compute(self, xp: Any, a: Any) -> Sequence[Any]:
        return (xp.linalg.eigvalsh(a, UPLO=self.triangle),)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        vectors = eigh(primals[0], self.triangle)[1]
        return [matmul(multiply(vectors, expand_dims(cotangents[0], -2)), adjoint(vectors))]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        return [Eigh.make(self.triangle).jvp(primals, tangents, argnums)[0]]


class Eig(Factorization):
    __slots__ = ()
    name = "linalg.eig"

    def results(self, *operands: Layout) -> tuple[Layout, ...]:
        n = operands[0].shape[-1]
        return _of(operands[0], n, dtype=dtypes.complex64), _of(operands[0], n, n, dtype=dtypes.complex64)

    def compute(self, xp: Any, a: Any) -> Sequence[Any]:
        return tuple(xp.linalg.eig(a))


class Eigenvalues(Factorization):
    __slots__ = ()
    name = "linalg.eigvals"

    def results(self, *operands: Layout) -> tuple[Layout, ...]:
        return (_of(operands[0], operands[0].shape[-1], dtype=dtypes.complex64),)

    def compute(self, xp: Any, a: Any) -> Sequence[Any]:
        return (xp.linalg.eigvals(a),)


class LU(Factorization):
    __slots__ = ()
    name = "linalg.lu"

    def results(self, *operands: Layout) -> tuple[Layout, ...]:
        rows, columns = operands[0].shape[-2:]
        inner = min(rows, columns)
        order = _of(operands[0], rows, dtype=dtypes.uint32)
        return order, _of(operands[0], rows, inner), _of(operands[0], inner, columns)

    def compute(self, xp: Any, a: Any) -> Sequence[Any]:
        from scipy.linalg import lu as factor

        rows, columns = a.shape[-2:]
        if not a.size:
            inner = min(rows, columns)
            return np.arange(rows), np.eye(rows, inner), np.eye(inner, columns)
        order, lower, upper = factor(a, p_indices=True)
        return order, lower, upper


class LUFactor(Factorization):
    __slots__ = ()
    name = "linalg.lu_factor"

    def results(self, *operands: Layout) -> tuple[Layout, ...]:
        return operands[0].dense, _of(operands[0], min(operands[0].shape[-2:]), dtype=dtypes.uint32)

    def compute(self, xp: Any, a: Any) -> Sequence[Any]:
        from scipy.linalg import lu_factor as factor

        rows, columns = a.shape[-2:]
        flat = a.reshape(math.prod(a.shape[:-2]), rows, columns)
        packed, pivots = np.empty_like(flat), np.empty((len(flat), min(rows, columns)), np.uint32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a singular factor is a result here
            for i, one in enumerate(flat):
                packed[i], pivots[i] = factor(one)
        return packed.reshape(a.shape), pivots.reshape(*a.shape[:-2], pivots.shape[-1])


class SignedLogDeterminant(Factorization):
    __slots__ = ()
    name = "linalg.slogdet"

    def results(self, *operands: Layout) -> tuple[Layout, ...]:
        return _of(operands[0]), _of(operands[0])

    def compute(self, xp: Any, a: Any) -> Sequence[Any]:
        return tuple(xp.linalg.slogdet(a))

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return [multiply(_as_matrices(cotangents[1]), _inverse_transposed(primals[0]))]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        moved = asum(multiply(_inverse_transposed(primals[0]), tangents[0]), (-2, -1))
        return [zeros_like(moved), moved]


class Determinant(Factorization):
    __slots__ = ()
    name = "linalg.det"

    def results(self, *operands: Layout) -> tuple[Layout, ...]:
        return (_of(operands[0]),)

    def compute(self, xp: Any, a: Any) -> Sequence[Any]:
        return (xp.linalg.det(a),)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return [multiply(_as_matrices(cotangents[0] * outputs[0]), _inverse_transposed(primals[0]))]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        moved = asum(multiply(_inverse_transposed(primals[0]), tangents[0]), (-2, -1))
        return [det(primals[0]) * moved]


def _as_matrices(a: array) -> array:
    return expand_dims(a, (-2, -1))


def _inverse_transposed(a: array) -> array:
    """Transposed inverses; half types through float32."""
    return astype(swapaxes(inv(astype(a, dtypes.float32) if a.dtype.half else a), -1, -2), a.dtype)


def inv(a: array, *, stream: Any = None) -> array:
    """Inverses of square matrices (..., n, n). A singular one raises when the result is read.

    Raises ValueError for other shapes or types.

    >>> mx.linalg.inv(mx.array([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return _applied(Inverse.make(), _matrices("inv", a, square_only=True), stream=stream)[0]


def tri_inv(a: array, upper: bool = False, *, stream: Any = None) -> array:
    """Inverses of lower (or `upper`) triangular matrices (..., n, n); the other triangle is not read.

    A singular one raises when the result is read. Raises ValueError for other shapes or types.

    >>> mx.linalg.tri_inv(mx.array([[1.0, 0.0], [2.0, 1.0]])).tolist()
    [[1.0, 0.0], [-2.0, 1.0]]
    """
    triangle = triu if upper else tril
    return triangle(inv(triangle(_matrices("tri_inv", a, square_only=True))), stream=stream)


def cholesky(a: array, upper: bool = False, *, stream: Any = None) -> array:
    """Lower triangular L with L L^T = a (or upper U with U^T U = a) of symmetric positive definite a (..., n, n).

    One triangle is read. A matrix that is not positive definite raises when the result is read. Raises ValueError for
    other shapes or types.

    >>> mx.linalg.cholesky(mx.array([[4.0, 0.0], [0.0, 9.0]])).tolist()
    [[2.0, 0.0], [0.0, 3.0]]
    """
    a = _matrices("cholesky", a, square_only=True)
    return _applied(Cholesky.make(bool(upper)), a, stream=stream)[0]


def cholesky_inv(a: array, upper: bool = False, *, stream: Any = None) -> array:
    """The inverse of A from its Cholesky factor `a`: L with L L^T = A (or `upper` U with U^T U = A).

    `a`: triangular matrices (..., n, n). A singular one raises when the result is read. Raises ValueError for other shapes
    or types.

    >>> mx.linalg.cholesky_inv(mx.array([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.25, 0.0], [0.0, 0.0625]]
    """
    back = tri_inv(_matrices("cholesky_inv", a, square_only=True), upper)
    turned = swapaxes(back, -1, -2)
    return matmul(back, turned, stream=stream) if upper else matmul(turned, back, stream=stream)


def qr(a: array, *, stream: Any = None) -> tuple[array, array]:
    """Q (..., m, k) with orthonormal columns and upper triangular R (..., k, n) with Q R = a, k = min(m, n).

    Raises ValueError for other shapes or types.

    >>> a = mx.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> q, r = mx.linalg.qr(a)
    >>> q.shape, r.shape, mx.allclose(q @ r, a, atol=1e-5)
    ((3, 2), (2, 2), array(True, dtype=bool))
    """
    q, r = _applied(QR.make(), _matrices("qr", a), stream=stream)
    return q, r


def svd(a: array, compute_uv: bool = True, *, stream: Any = None) -> Any:
    """U (..., m, m), the singular values (..., min(m, n)) falling, and V^H (..., n, n).

    The values alone with `compute_uv=False`; only those have derivatives. complex64 too. Raises ValueError for other
    shapes or types.

    >>> u, s, vt = mx.linalg.svd(mx.array([[0.0, 2.0], [3.0, 0.0], [0.0, 0.0]]))
    >>> u.shape, s, vt.shape
    ((3, 3), array([3, 2], dtype=float32), (2, 2))
    """
    a = _matrices("svd", a, complex_too=True)
    made = _applied((SVD if compute_uv else SingularValues).make(), a, stream=stream)
    return made if compute_uv else made[0]


def _triangle(op: str, uplo: str) -> str:
    if uplo.upper() not in ("L", "U"):
        raise ValueError(f"[linalg.{op}] UPLO is 'L' or 'U'; got {uplo!r}.")
    return uplo.upper()


def eigh(a: array, UPLO: str = "L", *, stream: Any = None) -> tuple[array, array]:
    """Eigenvalues (..., n), rising, and eigenvectors (columns) of symmetric or Hermitian matrices; one triangle is
    read.

    complex64 too. Raises ValueError for other shapes, types and triangles.

    >>> values, vectors = mx.linalg.eigh(mx.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> mx.round(values, decimals=4), vectors.shape
    (array([1, 3], dtype=float32), (2, 2))
    """
    a = _matrices("eigh", a, square_only=True, complex_too=True)
    values, vectors = _applied(Eigh.make(_triangle("eigh", UPLO)), a, stream=stream)
    return values, vectors


def eigvalsh(a: array, UPLO: str = "L", *, stream: Any = None) -> array:
    """Eigenvalues (..., n), rising, of symmetric or Hermitian matrices; see `eigh`.

    >>> mx.round(mx.linalg.eigvalsh(mx.array([[2.0, 1.0], [1.0, 2.0]])), decimals=4)
    array([1, 3], dtype=float32)
    """
    a = _matrices("eigvalsh", a, square_only=True, complex_too=True)
    return _applied(EigenvaluesHermitian.make(_triangle("eigvalsh", UPLO)), a, stream=stream)[0]


def eig(a: array, *, stream: Any = None) -> tuple[array, array]:
    """Eigenvalues (..., n) and eigenvectors (columns) of square matrices, complex64. Raises ValueError for others.

    >>> values, vectors = mx.linalg.eig(mx.array([[2.0, 0.0], [0.0, 3.0]]))
    >>> values
    array([2+0j, 3+0j], dtype=complex64)
    """
    values, vectors = _applied(Eig.make(), _matrices("eig", a, square_only=True, complex_too=True), stream=stream)
    return values, vectors


def eigvals(a: array, *, stream: Any = None) -> array:
    """Eigenvalues (..., n) of square matrices, complex64. Raises ValueError for others.

    >>> mx.linalg.eigvals(mx.array([[0.0, -1.0], [1.0, 0.0]])).shape
    (2,)
    """
    return _applied(Eigenvalues.make(), _matrices("eigvals", a, square_only=True, complex_too=True), stream=stream)[0]


def lu(a: array, *, stream: Any = None) -> tuple[array, array, array]:
    """Row order p (..., m) as uint32, unit lower triangular L (..., m, k) and upper triangular U (..., k, n).

    L[p] U = a, with k = min(m, n). Raises ValueError for other shapes or types.

    >>> p, lower, upper = mx.linalg.lu(mx.array([[0.0, 2.0], [1.0, 0.0]]))
    >>> p, upper.tolist()
    (array([1, 0], dtype=uint32), [[1.0, 0.0], [0.0, 2.0]])
    """
    p, lower, upper = _applied(LU.make(), _matrices("lu", a), stream=stream)
    return p, lower, upper


def lu_factor(a: array, *, stream: Any = None) -> tuple[array, array]:
    """L and U packed in one matrix, and the pivots (..., min(m, n)) as uint32: row i was swapped with row pivots[i].

    Raises ValueError for other shapes or types.

    >>> packed, pivots = mx.linalg.lu_factor(mx.array([[0.0, 2.0], [1.0, 0.0]]))
    >>> packed.tolist(), pivots
    ([[1.0, 0.0], [0.0, 2.0]], array([1, 1], dtype=uint32))
    """
    packed, pivots = _applied(LUFactor.make(), _matrices("lu_factor", a), stream=stream)
    return packed, pivots


def _for_determinant(op: str, a: Any) -> array:
    a = as_array(a)
    if a.dtype is dtypes.complex64:
        raise ValueError(f"[linalg.{op}] Not defined for complex64 here; got shape {a.shape}.")
    return _checked_matrices(op, a if a.dtype.inexact else astype(a, dtypes.float32), square_only=True)


def slogdet(a: array, *, stream: Any = None) -> tuple[array, array]:
    """Sign and logarithm of the absolute value of the determinant, each of shape (...); 0 and -inf of a singular
    matrix.

    Integers are taken as float32. Raises ValueError for matrices that are not square or complex.

    >>> mx.linalg.slogdet(mx.array([[1.0, 0.0], [0.0, -1.0]]))
    (array(-1, dtype=float32), array(0, dtype=float32))
    """
    sign, logarithm = _applied(SignedLogDeterminant.make(), _for_determinant("slogdet", a), stream=stream)
    return sign, logarithm


def det(a: array, *, stream: Any = None) -> array:
    """Determinants of square matrices, of shape (...). Integers are taken as float32.

    Raises ValueError for matrices that are not square or complex.

    >>> mx.linalg.det(mx.array([[2.0, 0.0], [0.0, 3.0]]))
    array(6, dtype=float32)
    """
    return _applied(Determinant.make(), _for_determinant("det", a), stream=stream)[0]


def solve(a: array, b: array, *, stream: Any = None) -> array:
    """x with a x = b for square a (..., n, n) and b (n,), (..., n) in the stack of a, or else (..., n, k).

    A singular matrix raises when the result is read. Raises ValueError for shapes that do not fit and other types.

    >>> mx.linalg.solve(mx.array([[2.0, 0.0], [0.0, 4.0]]), mx.array([2.0, 2.0]))
    array([1, 0.5], dtype=float32)
    """
    return _solved("solve", _matrices("solve", a, square_only=True), b, stream)


def solve_triangular(a: array, b: array, *, upper: bool = False, stream: Any = None) -> array:
    """x with a x = b for lower (or `upper`) triangular a; the other triangle is not read. See `solve`.

    >>> mx.linalg.solve_triangular(mx.array([[1.0, 0.0], [1.0, 1.0]]), mx.array([[1.0], [3.0]])).tolist()
    [[1.0], [2.0]]
    """
    a = _matrices("solve_triangular", a, square_only=True)
    return _solved("solve_triangular", (triu if upper else tril)(a), b, stream)


def _solved(op: str, a: array, b: Any, stream: Any) -> array:
    b = as_array(b)
    common = promote(a.dtype, b.dtype)
    if common not in REAL:
        raise ValueError(f"[linalg.{op}] Right-hand sides are float32 or float64; got {b.dtype.name}.")
    vectors = b.ndim == 1 or b.shape == a.shape[:-1]
    columns = expand_dims(b, -1) if vectors else b
    if columns.ndim < 2 or columns.shape[-2] != a.shape[-1]:
        raise ValueError(f"[linalg.{op}] Matrices of shape {a.shape} do not go with right-hand sides of {b.shape}.")
    lead = broadcast_shapes(f"linalg.{op}", a.shape[:-2], columns.shape[:-2])
    a = astype(broadcast_to(a, (*lead, *a.shape[-2:])), common)
    columns = astype(broadcast_to(columns, (*lead, *columns.shape[-2:])), common)
    out = _applied(Solve.make(), a, columns, stream=stream)[0]
    return squeeze(out, -1) if vectors else out


def pinv(a: array, *, stream: Any = None) -> array:
    """Moore-Penrose inverses (..., n, m) of matrices (..., m, n).

    Singular values up to eps max(m, n) times the largest count as 0. Raises ValueError for other shapes or types.

    >>> mx.linalg.pinv(mx.ones((3, 2))).shape
    (2, 3)
    """
    a = _matrices("pinv", a)
    u, values, vt = svd(a)
    k = values.shape[-1]
    if not k:
        return zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)
    cutoff = amax(values, -1, keepdims=True) * float(np.finfo(a.dtype.storage).eps * max(a.shape[-2:]))
    weights = where(values > cutoff, divide(1.0, maximum(values, cutoff)), 0.0)
    left = swapaxes(axis_range(vt, vt.ndim - 2, 0, k), -1, -2)
    right = swapaxes(axis_range(u, u.ndim - 1, 0, k), -1, -2)
    return matmul(multiply(left, expand_dims(weights, -2)), right, stream=stream)


__all__ = [
    "cholesky", "cholesky_inv", "det", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lu", "lu_factor", "pinv", "qr",
    "slogdet", "solve", "solve_triangular", "svd", "tri_inv",
]  # fmt: skip
