"""Einstein summation: operands are contracted pairwise on a path that NumPy finds, each pair by one matrix product."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from outlive.graph.array import array
from outlive.ops import reduce
from outlive.ops.common import as_array, layout, promote
from outlive.ops.elementwise import multiply
from outlive.ops.matmul import cast, matmul
from outlive.ops.shape import as_strided, broadcast_to, reshape, transpose

LIMIT_OPTIMAL = 5
"""Up to so many operands the best path is searched exhaustively; beyond, greedily."""


def _parsed(subscripts: str, arrays: Sequence[array]) -> tuple[list[str], str]:
    """Labels of each operand and of the result, one letter an axis, ellipses written out as labels of their own."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(arrays):
        raise ValueError(f"[einsum] {subscripts!r} names {len(terms)} operands; {len(arrays)} were given.")
    free = [c for c in string.ascii_letters if c not in text]
    widths = [a.ndim - len(t.replace("...", "")) for t, a in zip(terms, arrays, strict=True) if "..." in t]
    wide = free[: max(widths, default=0)]
    labels = []
    for term, a in zip(terms, arrays, strict=True):
        count = a.ndim - len(term.replace("...", ""))
        full = term.replace("...", "".join(wide[len(wide) - count :]) if count > 0 else "")
        if len(full) != a.ndim or not (full.isascii() and (full.isalpha() or not full)):
            raise ValueError(f"[einsum] Subscripts {term!r} do not fit an operand of shape {a.shape}.")
        labels.append(full)
    if arrow:
        result = right.replace("...", "".join(wide))
    else:
        joined = "".join(labels)
        result = "".join(wide) + "".join(c for c in sorted(set(joined)) if joined.count(c) == 1 and c not in wide)
    used = set("".join(labels))
    if len(set(result)) != len(result) or not set(result) <= used:
        raise ValueError(f"[einsum] The result {right!r} must name labels of the operands, each once.")
    return labels, result


def _sizes(labels: Sequence[str], arrays: Sequence[array]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for term, a in zip(labels, arrays, strict=True):
        for label, n in zip(term, a.shape, strict=True):
            known = sizes.get(label, 1)
            if n != known and 1 not in (n, known):
                raise ValueError(
                    f"[einsum] Label {label!r} has length {known} in one operand and {n} in shape {a.shape}."
                )
            sizes[label] = known if n == 1 else n
    return sizes


def _path(labels: Sequence[str], result: str, sizes: dict[str, int]) -> tuple[list[tuple[int, ...]], str]:
    # NumPy looks at shapes alone: one element stands for an operand of any size
    dummies = [np.broadcast_to(np.empty((), np.int8), tuple(sizes[c] for c in term)) for term in labels]
    how = "optimal" if len(labels) <= LIMIT_OPTIMAL else "greedy"
    steps, report = np.einsum_path(",".join(labels) + "->" + result, *dummies, optimize=how)
    return [tuple(step) for step in steps[1:]], report


def _diagonal(a: array, term: str, stream: Any) -> tuple[array, str]:
    """The operand with each label once: repeated ones walk the diagonal."""
    if len(set(term)) == len(term):
        return a, term
    labels = "".join(dict.fromkeys(term))
    widest = {c: max(n for label, n in zip(term, a.shape, strict=True) if label == c) for c in labels}
    a = broadcast_to(a, tuple(widest[c] for c in term), stream=stream)
    dense = layout(a.shape, a.dtype).strides
    strides = [sum(s for label, s in zip(term, dense, strict=True) if label == c) for c in labels]
    return as_strided(a, tuple(widest[c] for c in labels), strides, stream=stream), labels


def _summed(a: array, term: str, kept: set[str], stream: Any) -> tuple[array, str]:
    """The operand summed over labels that nobody else needs."""
    axes = [i for i, c in enumerate(term) if c not in kept]
    if not axes:
        return a, term
    kind = a.dtype
    return cast(reduce.sum(a, axes, stream=stream), kind), "".join(c for c in term if c in kept)


def _arranged(a: array, term: str, wanted: Sequence[str], stream: Any) -> array:
    """The operand with its axes in the order `wanted`; labels that it lacks become axes of length 1."""
    present = [c for c in wanted if c in term]
    a = transpose(a, [term.index(c) for c in present], stream=stream)
    sizes = iter(a.shape)
    return reshape(a, tuple(next(sizes) if c in term else 1 for c in wanted), stream=stream)


def _pair(a: array, first: str, b: array, second: str, kept: set[str], stream: Any) -> tuple[array, str]:
    """The contraction of two operands; `kept` are the labels that the rest or the result needs."""
    both = [c for c in first if c in second]
    contracted = [c for c in both if c not in kept]
    batch = [c for c in both if c in kept]
    rows = [c for c in first if c not in second]
    columns = [c for c in second if c not in first]
    labels = "".join([*batch, *rows, *columns])
    if not contracted or not a.dtype.inexact:
        order = [*batch, *rows, *columns, *contracted]
        made = multiply(_arranged(a, first, order, stream), _arranged(b, second, order, stream), stream=stream)
        if contracted:
            made = cast(reduce.sum(made, list(range(len(labels), len(order))), stream=stream), made.dtype)
        return made, labels
    sizes = dict(zip(first, a.shape, strict=True))
    for c, n in zip(second, b.shape, strict=True):
        sizes[c] = max(n, sizes.get(c, 1)) if sizes.get(c, 1) else 0
    lengths = [_count(sizes, part) for part in (rows, contracted, columns)]
    outer = tuple(sizes[c] for c in batch)
    left = _matrix(a, first, (batch, rows, contracted), sizes, (*outer, lengths[0], lengths[1]), stream)
    right = _matrix(b, second, (batch, contracted, columns), sizes, (*outer, lengths[1], lengths[2]), stream)
    made = matmul(left, right, stream=stream)
    return reshape(made, (*outer, *[sizes[c] for c in (*rows, *columns)]), stream=stream), labels


def _matrix(
    a: array, term: str, parts: tuple[list[str], ...], sizes: dict[str, int], shape: tuple[int, ...], stream: Any
) -> array:
    order = [c for part in parts for c in part]
    wide = broadcast_to(_arranged(a, term, order, stream), tuple(sizes[c] for c in order), stream=stream)
    return reshape(wide, shape, stream=stream)


def _count(sizes: dict[str, int], labels: Sequence[str]) -> int:
    made = 1
    for c in labels:
        made *= sizes[c]
    return made


def einsum(subscripts: str, *operands: Any, stream: Any = None) -> array:
    """The sum of products that `subscripts` says, as in "ij,jk->ik"; "..." stands for axes that broadcast.

    A label that the result lacks is summed over. Without "->" the result has the labels that occur once, in
    alphabetical order. Raises ValueError where labels and shapes do not fit.

    >>> a, b = mx.array([[1.0, 2.0], [3.0, 4.0]]), mx.array([1.0, 10.0])
    >>> mx.einsum("ij,j->i", a, b), mx.einsum("ii", a)
    (array([21, 43], dtype=float32), array(5, dtype=float32))
    """
    arrays = [as_array(a) for a in operands]
    labels, result = _parsed(subscripts, arrays)
    sizes = _sizes(labels, arrays)
    kind = arrays[0].dtype
    for a in arrays[1:]:
        kind = promote(kind, a.dtype)
    work = [_diagonal(cast(a, kind), term, stream) for a, term in zip(arrays, labels, strict=True)]
    for step in _path(labels, result, sizes)[0]:
        taken = [work.pop(i) for i in sorted(step, reverse=True)][::-1]
        needed = set(result).union(*[term for _, term in work])
        work.append(_contracted(taken, needed, stream))
    made, term = _summed(*work[0], set(result), stream)
    made = _arranged(made, term, list(result), stream)
    return broadcast_to(made, tuple(sizes[c] for c in result), stream=stream)


def _contracted(taken: list[tuple[array, str]], needed: set[str], stream: Any) -> tuple[array, str]:
    """Operands of one step of the path, put together pair by pair."""
    made, term = taken[0]
    for i, (other, second) in enumerate(taken[1:], 1):
        later = needed.union(*[t for _, t in taken[i + 1 :]])
        made, term = _summed(made, term, later | set(second), stream)
        other, second = _summed(other, second, later | set(term), stream)
        made, term = _pair(made, term, other, second, later, stream)
    return made, term


def einsum_path(subscripts: str, *operands: Any) -> tuple[list[tuple[int, ...]], str]:
    """The order in which `einsum` contracts its operands, and a report of its cost. Raises ValueError as `einsum` does.

    >>> path, report = mx.einsum_path("ij,jk,kl->il", mx.ones((2, 9)), mx.ones((9, 9)), mx.ones((9, 2)))
    >>> path
    [(0, 1), (0, 1)]
    """
    arrays = [as_array(a) for a in operands]
    labels, result = _parsed(subscripts, arrays)
    return _path(labels, result, _sizes(labels, arrays))


__all__ = ["einsum", "einsum_path"]
