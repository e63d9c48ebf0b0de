"""Numba kernels for the tests of the checker: a right one, and one for each way to be wrong."""

from __future__ import annotations

import numba


@numba.njit
def double(x, out):
    for i in range(x.size):
        out[i] = 2 * x[i]


@numba.njit
def reads_beyond(x, out):
    for i in range(x.size):
        out[i] = x[i] + x[i + 1]


@numba.njit
def reads_before(x, out):
    for i in range(x.size):
        out[i] = x[i] + x[i - 3 * x.size - 1]


@numba.njit
def writes_beyond(x, out):
    for i in range(x.size + 1):
        out[i] = 1.0


@numba.njit
def forgets_one(x, out):
    for i in range(x.size - 1):
        out[i] = 2 * x[i]


@numba.njit
def never_ends(x, out):
    i = 0
    while x[0] == x[0]:
        i += 1
    out[0] = i
