"""Scaled dot-product attention with online softmax in float32, over blocks of 64 keys that begin at key 0.

Few queries (order class `attention_rows`): a score is 16 lane sums over the width, added pairwise; each query is
on its own, so its bits do not depend on how many come with it. Many queries (`attention_tiles`): keys are
transposed in scratch memory, a score is summed along the width in order, and tiles of 8 queries share every load.
In both the output is scaled down when a block raises the maximum and summed key by key. Masked keys add nothing,
whatever their values. A query to which a boolean or causal mask leaves no key attends to all alike; where added
masks make every score -inf it is NaN, as the formula says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from outlive.backends.cpu.abi import Selection, float_word
from outlive.backends.cpu.features import features
from outlive.backends.cpu.kernels import library, math
from outlive.backends.cpu.kernels.emit import (
    BOOL,
    F32,
    FLOAT,
    LANES,
    STORAGES,
    Emitter,
    Storage,
    Value,
    transposed,
    vector,
)

KEYS = 64
_TILE_ROWS = 8
_TILES_PER_ITEM = 4
_FEW_QUERIES = 16
_PART_WORK = 1 << 15
_WIDTHS = tuple(range(16, 257, 16))


@dataclass(frozen=True)
class Form:
    """What a kernel is compiled for. mask: 'none', 'causal' (aligned to the last key), or a mask's storage name."""

    storage: Storage
    width: int
    mask: str
    many: bool

    @property
    def name(self) -> str:
        return f"attention_{'tiles' if self.many else 'rows'}_{self.storage.name}_{self.width}_{self.mask}"


class Call:
    """Pointers, sizes and strides of one call."""

    def __init__(self, k: Emitter, form: Form) -> None:
        arguments = iter(range(64))
        masked = form.mask in STORAGES
        self.q, self.keys, self.values = (k.pointer(next(arguments)) for _ in range(3))
        self.mask = k.pointer(next(arguments)) if masked else None
        self.out = k.pointer(next(arguments))
        self.batch, self.heads, self.repeat, self.queries, self.length = (k.integer(next(arguments)) for _ in range(5))
        self.q_strides, self.k_strides, self.v_strides, self.out_strides = (
            [k.integer(next(arguments)) for _ in range(3)] for _ in range(4)
        )
        self.scale = k.number(next(arguments))
        self.mask_strides = [k.integer(next(arguments)) for _ in range(3)] if masked else []
        self.k, self.form = k, form

    def place(self, base: Value, strides: list[Value], storage: Storage, *index: Value) -> Value:
        offset = index[0] * strides[0]
        for n, i in enumerate(index[1:], 1):
            offset = offset + i * strides[n]
        return self.k.address(base, offset, storage.bytes)

    def seen(self, query: Value) -> Value:
        """How many keys, from the first, a query may see."""
        if self.form.mask != "causal":
            return self.length
        return self.k.minimum(self.length - self.queries + query + 1, self.length)

    def masked(self, scores: Value, b: Value, h: Value, query: Value, key: Value) -> Value:
        """Scores of LANES keys from `key` on, scaled, -inf where the query may not look."""
        k, form = self.k, self.form
        visible = k.first_lanes(self.seen(query) - key)
        scores = scores * self.scale
        if self.mask is not None:
            storage = STORAGES[form.mask]
            row = self.place(self.mask, self.mask_strides, storage, b, h, query)
            present = k.load(row, key, storage, LANES, visible)
            if storage is BOOL:
                visible = visible & present.differs(0)
            else:
                scores = scores + present
        return k.select(visible, scores, float("-inf"))


def _pair_sums(k: Emitter, vectors: list[Value]) -> Value:
    """Lane j of the result is the sum of the lanes of vector j, neighbours first."""
    evens, odds = list(range(0, 2 * LANES, 2)), list(range(1, 2 * LANES, 2))
    while len(vectors) > 1:
        vectors = [a.shuffle(evens, b) + a.shuffle(odds, b) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
    return vectors[0]


class Softmax:
    """Running maximum, sum and output of a few rows in scratch memory, and the scores of the current block."""

    def __init__(self, k: Emitter, rows: int, width: int) -> None:
        self.k, self.width = k, width
        self.output = k.scratch(k.constant(rows * width * 4))
        self.scores = k.scratch(k.constant(rows * KEYS * 4))
        self.state = k.scratch(k.constant(rows * 8))

    def clear(self, row: Value) -> None:
        k, zero = self.k, self.k.constant(0.0, vector(FLOAT, LANES))
        k.store(self.state, row * 2, k.constant(float("-inf"), FLOAT), F32)
        k.store(self.state, row * 2 + 1, k.constant(0.0, FLOAT), F32)
        for n in range(0, self.width, LANES):
            k.store(self.output, row * self.width + n, zero, F32)

    def absorb(self, row: Value) -> None:
        """Turns a row's scores into powers, and scales what it has so far to the new maximum."""
        k = self.k
        scores = [k.load(self.scores, row * KEYS + n, F32, LANES) for n in range(0, KEYS, LANES)]
        best = scores[0]
        for other in scores[1:]:
            best = k.float_maximum(best, other)
        best = k.reduce(best, "float_maximum")
        before = k.load(self.state, row * 2, F32)
        highest = k.float_maximum(before, best)
        base = k.select(highest.equals(float("-inf")), 0.0, highest)
        powers = [math.exp(k, s - base) for s in scores]
        for n, p in enumerate(powers):
            k.store(self.scores, row * KEYS + n * LANES, p, F32)
        shrink = math.exp(k, k.splat(before - base, LANES))
        block = k.reduce((powers[0] + powers[1]) + (powers[2] + powers[3]))
        total = k.fma(k.load(self.state, row * 2 + 1, F32), shrink.lane(0), block)
        k.store(self.state, row * 2, highest, F32)
        k.store(self.state, row * 2 + 1, total, F32)
        with k.when(highest.differs(before)):
            for n in range(0, self.width, LANES):
                k.store(
                    self.output,
                    row * self.width + n,
                    k.load(self.output, row * self.width + n, F32, LANES) * shrink,
                    F32,
                )

    def finish(self, row: Value, target: Value, storage: Storage) -> None:
        """Writes a row's result; 0/0, so NaN, where every score was -inf."""
        k = self.k
        factor = k.splat(k.load(self.state, row * 2 + 1, F32), LANES)
        for n in range(0, self.width, LANES):
            k.store(target, n, k.load(self.output, row * self.width + n, F32, LANES) / factor, storage)


def _shape() -> tuple[int, int]:
    """Rows and vectors of keys whose scores fill the machine's registers; 16 registers hold half of what 32 wider
    ones do.
    """
    return (_TILE_ROWS, 2) if features().avx512 else (4, 1)


def _add_values(
    k: Emitter,
    soft: Softmax,
    form: Form,
    rows: list[Value],
    values: Value,
    stride: Value,
    count: Value,
    storage: Storage,
    checked: bool,
) -> None:
    """output += power * value over the block's keys, for rows held in registers. checked: skip keys whose power is
    zero, so that what a masked key holds cannot leak.
    """
    step = min(form.width, 64 if len(rows) == 1 else LANES * _shape()[1])
    for first in range(0, form.width, step):
        columns = list(range(first, min(first + step, form.width), LANES))
        totals = [[k.variable(k.load(soft.output, r * form.width + c, F32, LANES)) for c in columns] for r in rows]
        with k.loop(0, count) as j:
            loaded = [k.load(values, j * stride + c, storage, LANES) for c in columns]
            for row, sums in zip(rows, totals, strict=True):
                power = k.splat(k.load(soft.scores, row * KEYS + j, F32), LANES)
                nothing = power.equals(0.0)
                for value, total in zip(loaded, sums, strict=True):
                    value = k.select(nothing, 0.0, value) if checked else value
                    total.set(k.fma(power, value, total.get()))
        for row, sums in zip(rows, totals, strict=True):
            for column, total in zip(columns, sums, strict=True):
                k.store(soft.output, row * form.width + column, total.get(), F32)


def _values_block(
    k: Emitter,
    soft: Softmax,
    form: Form,
    rows: list[Value],
    values: Value,
    stride: Value,
    count: Value,
    storage: Storage,
    edge: Value,
) -> None:
    with k.branch(edge) as (yes, no):
        with yes:
            _add_values(k, soft, form, rows, values, stride, count, storage, True)
        with no:
            _add_values(k, soft, form, rows, values, stride, count, storage, False)


def _attend_to_all(k: Emitter, c: Call, soft: Softmax, row: Value, b: Value, group: Value) -> None:
    """Where a boolean or causal mask leaves a query no key, it attends to all keys alike."""
    form = c.form
    if form.mask not in ("causal", "bool"):
        return
    with k.when(k.load(soft.state, row * 2 + 1, F32).equals(0.0)):
        k.store(soft.state, row * 2 + 1, c.length.convert(FLOAT), F32)
        with k.loop(0, c.length) as key:
            place = c.place(c.values, c.v_strides, form.storage, b, group, key)
            for n in range(0, form.width, LANES):
                total = k.load(soft.output, row * form.width + n, F32, LANES)
                k.store(soft.output, row * form.width + n, total + k.load(place, n, form.storage, LANES), F32)


# -- few queries ----------------------------------------------------------------------------------------------------
def _row_scores(
    k: Emitter, c: Call, b: Value, h: Value, query: Value, group: Value, first: Value, soft: Softmax
) -> None:
    """Scores of one query with the block of keys that begins at `first`."""
    form = c.form
    q = c.place(c.q, c.q_strides, form.storage, b, h, query)
    parts = [k.load(q, n, form.storage, LANES) for n in range(0, form.width, LANES)]
    with k.loop(0, KEYS, LANES) as offset:
        start = first + offset
        scores = k.variable(k.constant(float("-inf"), vector(FLOAT, LANES)))
        with k.when(start < c.seen(query)):
            sums = []
            for lane in range(LANES):
                key = k.minimum(start + lane, c.length - 1)
                place = c.place(c.keys, c.k_strides, form.storage, b, group, key)
                total = parts[0] * k.load(place, 0, form.storage, LANES)
                for n, part in enumerate(parts[1:], 1):
                    total = k.fma(part, k.load(place, n * LANES, form.storage, LANES), total)
                sums.append(total)
            scores.set(c.masked(_pair_sums(k, sums), b, h, query, start))
        k.store(soft.scores, offset, scores.get(), F32)


def _write_rows(k: Emitter, form: Form) -> None:
    c = Call(k, form)
    soft = Softmax(k, 1, form.width)
    zero = k.constant(0)
    low, high = k.share(c.batch * c.heads * c.queries)
    with k.loop(low, high) as item:
        query, head = item % c.queries, item // c.queries
        b, h = head // c.heads, head % c.heads
        group = h // c.repeat
        soft.clear(zero)
        with k.loop(0, c.seen(query), KEYS) as first:
            _row_scores(k, c, b, h, query, group, first, soft)
            soft.absorb(zero)
            count = k.minimum(c.seen(query) - first, KEYS)
            values = c.place(c.values, c.v_strides, form.storage, b, group, first)
            _add_values(k, soft, form, [zero], values, c.v_strides[2], count, form.storage, c.mask is not None)
        _attend_to_all(k, c, soft, zero, b, group)
        soft.finish(zero, c.place(c.out, c.out_strides, form.storage, b, h, query), form.storage)


# -- many queries ---------------------------------------------------------------------------------------------------
def _transpose_keys(k: Emitter, c: Call, b: Value, group: Value, first: Value, count: Value, target: Value) -> None:
    """The block's keys as [width][KEYS] float32; zeros beyond `count`."""
    form = c.form
    zero = k.constant(0.0, vector(FLOAT, LANES))
    with k.loop(0, KEYS, LANES) as offset, k.loop(0, form.width, LANES) as column:
        rows = []
        for lane in range(LANES):
            inside = offset + lane < count
            key = k.select(inside, first + offset + lane, first)
            place = c.place(c.keys, c.k_strides, form.storage, b, group, key)
            rows.append(k.select(k.splat(inside, LANES), k.load(place, column, form.storage, LANES), zero))
        for n, values in enumerate(transposed(rows)):
            k.store(target, (column + n) * KEYS + offset, values, F32)


def _tile_scores(k: Emitter, c: Call, q: Value, keys: Value, row: Value, soft: Softmax) -> None:
    """Raw scores of a few prepared queries from `row` on with the block's transposed keys."""
    width = c.form.width
    height, vectors = _shape()
    with k.loop(0, KEYS, vectors * LANES) as offset:
        zero = k.constant(0.0, vector(FLOAT, LANES))
        totals = [[k.variable(zero) for _ in range(vectors)] for _ in range(height)]
        with k.loop(0, width) as d:
            columns = [k.load(keys, d * KEYS + offset + n * LANES, F32, LANES) for n in range(vectors)]
            for r, sums in enumerate(totals):
                value = k.splat(k.load(q, (row + r) * width + d, F32), LANES)
                for column, total in zip(columns, sums, strict=True):
                    total.set(k.fma(value, column, total.get()))
        for r, sums in enumerate(totals):
            for n, total in enumerate(sums):
                k.store(soft.scores, (row + r) * KEYS + offset + n * LANES, total.get(), F32)


def _write_tiles(k: Emitter, form: Form) -> None:
    c = Call(k, form)
    rows = _TILE_ROWS * _TILES_PER_ITEM
    width = form.width
    soft = Softmax(k, rows, width)
    q, keys, values = (k.scratch(k.constant(n * width * 4)) for n in (rows, KEYS, KEYS))
    blocks = (c.queries + (rows - 1)) // rows
    low, high = k.share(c.batch * c.heads * blocks)
    with k.loop(low, high) as item:
        head, start = item // blocks, (blocks - 1 - item % blocks) * rows
        b, h = head // c.heads, head % c.heads
        group = h // c.repeat
        last = c.queries - 1
        with k.loop(0, rows) as r:
            soft.clear(r)
            place = c.place(c.q, c.q_strides, form.storage, b, h, k.minimum(start + r, last))
            for n in range(0, width, LANES):
                k.store(q, r * width + n, k.load(place, n, form.storage, LANES), F32)
        most = c.seen(k.minimum(start + rows - 1, last))
        with k.loop(0, most, KEYS) as first:
            count = k.minimum(most - first, KEYS)
            _transpose_keys(k, c, b, group, first, count, keys)
            with k.loop(0, count) as j:
                place = c.place(c.values, c.v_strides, form.storage, b, group, first + j)
                for n in range(0, width, LANES):
                    k.store(values, j * width + n, k.load(place, n, form.storage, LANES), F32)
            edge = c.seen(start) < first + count
            edge = k.constant(1, ir.IntType(1)) if c.mask is not None else edge
            height = _shape()[0]
            with k.loop(0, rows, height) as row:
                _tile_scores(k, c, q, keys, row, soft)
                with k.loop(row, row + height) as r:
                    with k.loop(0, KEYS, LANES) as offset:
                        raw = k.load(soft.scores, r * KEYS + offset, F32, LANES)
                        k.store(
                            soft.scores,
                            r * KEYS + offset,
                            c.masked(raw, b, h, k.minimum(start + r, last), first + offset),
                            F32,
                        )
                    soft.absorb(r)
                _values_block(
                    k, soft, form, [row + n for n in range(height)], values, k.constant(width), count, F32, edge
                )
        with k.loop(0, k.minimum(c.queries - start, rows)) as r:
            _attend_to_all(k, c, soft, r, b, group)
            soft.finish(r, c.place(c.out, c.out_strides, form.storage, b, h, start + r), form.storage)


# -- routes ---------------------------------------------------------------------------------------------------------
def _mask_words(mask, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides of a mask over batch, heads and queries when its keys are neighbours, else None."""
    from outlive.backends.cpu.kernels.layouts import broadcast_strides

    strides = broadcast_strides(mask, shape)
    return None if strides is None or (strides[3] != 1 and shape[3] != 1) else strides[:3]


def _select_attention(reads: list, writes: list, params: Any) -> Selection | None:
    present = [r for r in reads if r is not None]
    q, keys, values, out = (r.layout for r in (*reads[:3], writes[0]))
    storage = STORAGES.get(q.dtype.name)
    if storage is None or storage.compute != FLOAT or any(a.dtype.name != storage.name for a in (keys, values, out)):
        return None
    if any(len(a.shape) != 4 or a.strides[3] != 1 for a in (q, keys, values, out)):
        return None
    (batch, heads, queries, width), (_, groups, length, _) = q.shape, keys.shape
    if len(present) != 3 + bool(params.has_mask) or width not in _WIDTHS or values.shape[3] != width or length == 0:
        return None
    mask = "causal" if params.causal else "none"
    mask_words: tuple[int, ...] = ()
    if params.has_mask:
        layout = reads[3].layout
        mask = layout.dtype.name
        strides = _mask_words(layout, (batch, heads, queries, length))
        if strides is None or params.causal or (mask != "bool" and STORAGES[mask].compute != FLOAT):
            return None
        mask_words = strides
    form = Form(storage, width, mask, queries > _FEW_QUERIES)
    kernel = library.compiled(
        form.name,
        lambda k: (_write_tiles if form.many else _write_rows)(k, form),
        "attention_tiles" if form.many else "attention_rows",
    )
    work = batch * heads * queries * length * width
    words = (
        batch,
        heads,
        heads // groups,
        queries,
        length,
        *q.strides[:3],
        *keys.strides[:3],
        *values.strides[:3],
        *out.strides[:3],
        float_word(params.scale),
        *mask_words,
    )
    return kernel, min(work // _PART_WORK, batch * heads * queries), words


ROUTES = {"scaled_dot_product_attention": _select_attention}
