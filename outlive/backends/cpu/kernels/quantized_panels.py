"""Products x @ w^T with weights of any quantized format, made float32 a few columns at a time: the panel.

Order class `q_values`, for any number of rows: each weight is its value rounded once to float32; lane l of 16 sums
fma(w, x) over the elements l, l + 16, l + 32, ... of the depth in order; lanes are added by halves.
"""

from __future__ import annotations

from collections.abc import Callable

from outlive.backends.cpu.features import features
from outlive.backends.cpu.kernels.emit import F32, FLOAT, LANES, Emitter, Storage, Value, row_blocks, vector
from outlive.backends.cpu.kernels.quantized_values import Format, group_values

_FEW_ROWS = 4  # so few rows use each weight where it is decoded; more read it from the panel

Weights = Callable[[int, Value], list[Value]]
"""Column number of the panel and group of the depth -> the group's values."""


class _Product:
    """Pointers and sizes of a product, and its scratch memory."""

    def __init__(self, k: Emitter, f: Format, x: Storage) -> None:
        self.k, self.f, self.x_type = k, f, x
        pointers = [k.pointer(n) for n in range(5 if f.biased else 4)]
        self.x, self.w, self.scales = pointers[:3]
        self.biases = pointers[3] if f.biased else None
        self.out = pointers[-1]
        self.rows, self.columns, self.depth, self.pass_rows = (k.integer(len(pointers) + n) for n in range(4))
        self.groups = self.depth // f.group
        # what the registers hold: sums of rows times columns, beside the operands
        self.height = self.width = 4 if features().avx512 else 2
        self.panel = k.scratch(self.depth * (4 * self.width))
        self.wide = None if x is F32 else k.scratch(self.depth * 4 * self.pass_rows)

    def prepare(self, first: Value, last: Value) -> Value:
        """The rows [first, last) of x as float32: where they are."""
        k, start = self.k, first * self.depth
        if self.wide is None:
            return k.address(self.x, start, 4)
        with k.loop(0, (last - first) * self.depth, LANES) as i:
            k.store(self.wide, i, k.load(self.x, start + i, self.x_type, LANES), F32)
        return self.wide

    def decoded(self, column: Value) -> Weights:
        """Weights from their codes; `column` is the panel's first."""
        return lambda c, group: group_values(
            self.k, self.f, self.w, self.scales, self.biases, (column + c) * self.groups + group
        )

    def from_panel(self, c: int, group: Value) -> list[Value]:
        at = self.depth * c + group * self.f.group
        return [self.k.load(self.panel, at + n, F32, LANES) for n in range(0, self.f.group, LANES)]

    def fill_panel(self, column: Value, width: int) -> None:
        k, weights = self.k, self.decoded(column)
        for c in range(width):
            with k.loop(0, self.groups) as group:
                for n, values in enumerate(weights(c, group)):
                    k.store(self.panel, self.depth * c + group * self.f.group + n * LANES, values, F32)

    def block(self, xs: Value, first: Value, row: Value, height: int, column: Value, width: int, w: Weights) -> None:
        """`height` rows times `width` columns."""
        k = self.k
        zero = k.constant(0.0, vector(FLOAT, LANES))
        totals = [[k.variable(zero) for _ in range(width)] for _ in range(height)]
        with k.loop(0, self.groups) as group:
            panels = [w(c, group) for c in range(width)]
            for n in range(self.f.group // LANES):
                for r, sums in enumerate(totals):
                    at = (row + r - first) * self.depth + group * self.f.group + n * LANES
                    x = k.load(xs, at, F32, LANES)
                    for values, total in zip(panels, sums, strict=True):
                        total.set(k.fma(values[n], x, total.get()))
        for r, sums in enumerate(totals):
            for c, total in enumerate(sums):
                k.store(self.out, (row + r) * self.columns + column + c, k.reduce(total.get()), self.x_type)


def write_panels(k: Emitter, f: Format, x: Storage) -> None:
    p = _Product(k, f, x)
    low, high = k.share(p.columns, p.width)
    with k.loop(0, p.rows, p.pass_rows) as first:
        last = k.minimum(first + p.pass_rows, p.rows)
        xs = p.prepare(first, last)

        def columns(column: Value, width: int, first: Value = first, last: Value = last, xs: Value = xs) -> None:
            def rows(sizes: tuple[int, ...], weights: Weights) -> None:
                row_blocks(k, first, last, sizes, lambda row, n: p.block(xs, first, row, n, column, width, weights))

            with k.branch(last - first <= _FEW_ROWS) as (few, many):
                with few:
                    rows((2, 1), p.decoded(column))
                with many:
                    p.fill_panel(column, width)
                    rows((p.height, 1), p.from_panel)

        row_blocks(k, low, high, (p.width, 1), columns)
