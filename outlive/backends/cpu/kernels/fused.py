"""Fused elementwise kernels, generated for a group of ops: each value is computed once and stays in registers.

A group may end in a reduction over its last axes: it is computed row by row, where the reduction loads its elements.
Every member uses the function that its own kernel uses, and every result is rounded to its own type, so the bits are
those of the separate kernels. Values of half precision are held as they lie in memory.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from typing import Any

from outlive.backends.cpu.abi import CpuKernel, Selection
from outlive.backends.cpu.features import features
from outlive.backends.cpu.kernels import elementwise, library, reduce
from outlive.backends.cpu.kernels.emit import BOOL, F16, HALF, I8, I16, LANES, STORAGES, Emitter, Storage, Value
from outlive.backends.cpu.kernels.layouts import Pattern, broadcast_strides, pattern

_CAST, _WHERE = "astype", ("where", "select")


def _half(storage: Storage) -> bool:
    return storage.is_float and storage.bytes == 2


def _held(storage: Storage) -> Storage:
    """How a value of a type is held between ops."""
    return STORAGES["uint16"] if _half(storage) else storage


def _widened(k: Emitter, value: Value, storage: Storage) -> Value:
    if not _half(storage):
        return value
    return k.widen(value.bitcast(HALF) if storage is F16 else value, storage)


def _narrowed(k: Emitter, value: Value, storage: Storage) -> Value:
    if storage is BOOL:
        return value.convert(I8, signed=False)
    if not _half(storage):
        return value
    raw = k.narrow(value, storage)
    return raw.bitcast(I16) if storage is F16 else raw


def serves(primitive: Any, reads: Sequence[Any], write: Any) -> bool:
    """Whether a fused kernel may hold `primitive` for operands of these layouts: its own compiled kernel serves
    them.
    """
    if not features().vector:
        return False
    if any(o.dtype.name not in STORAGES for o in (*reads, write)):
        return False
    sources, target = [STORAGES[r.dtype.name] for r in reads], STORAGES[write.dtype.name]
    if primitive.name == _CAST:
        return elementwise._castable(sources[0], target)
    if primitive.name in _WHERE:
        return len(sources) == 3 and sources[0] is BOOL and sources[1] is sources[2] is target
    entry = (elementwise.UNARY if len(reads) == 1 else elementwise.BINARY if len(reads) == 2 else {}).get(
        primitive.name
    )
    if entry is None or any(s is not sources[0] for s in sources):
        return False
    return elementwise._serves(entry[0], sources[0]) and target in (sources[0], BOOL)


_END_SERIAL_ELEMENTS = 1 << 16


def ends(primitive: Any, reads: Sequence[Any], write: Any) -> bool:
    """Whether a fused kernel may end in this reduction: over the last axes, in rows enough to be shared."""
    if not features().vector or primitive.name not in ("sum", "max", "min"):
        return False
    read = reads[0]
    storage, split = STORAGES.get(read.dtype.name), reduce._split(read.shape, primitive.axes)
    if storage is None or storage is BOOL or write.dtype is not read.dtype or split is None or split[2] != 1:
        return False
    outer, count, _ = split
    return count > 0 and (outer >= 8 or read.size <= _END_SERIAL_ELEMENTS)


def _member(k: Emitter, op: str, sources: Sequence[Storage], target: Storage, values: Sequence[Value]) -> Value:
    """One op on held values."""
    if op in _WHERE:
        return k.select(values[0].differs(0), values[1], values[2])
    wide = [_widened(k, v, s) for v, s in zip(values, sources, strict=True)]
    if op == _CAST:
        return _narrowed(k, elementwise.cast(k, sources[0], target, wide[0]), target)
    entry = elementwise.UNARY[op] if len(wide) == 1 else elementwise.BINARY[op]
    return _narrowed(k, entry[2](k, sources[0], *wide), target)


class _Body:
    """What a group computes, in words that name its kernel: ops, types and references."""

    def __init__(self, primitive: Any, reads: Sequence[Any]) -> None:
        self.reads = [STORAGES[r.layout.dtype.name] for r in reads]
        self.made = [STORAGES[layout.dtype.name] for layout in primitive.layouts]
        self.members = [(p.name, refs) for p, refs in primitive.members]
        self.results = primitive.results
        self.ends = primitive.ends
        self.dear = any(elementwise.UNARY.get(op, ("", False))[1] or op == "power" for op, _ in self.members)

    def storage(self, ref: int) -> Storage:
        return self.reads[ref] if ref >= 0 else self.made[-1 - ref]

    def name(self, modes: str, outer: bool) -> str:
        words = (
            [s.name for s in self.reads],
            [(op, refs, s.name) for (op, refs), s in zip(self.members, self.made, strict=True)],
            self.results,
            self.ends,
            modes,
            outer,
        )
        return "fused_" + hashlib.sha256(repr(words).encode()).hexdigest()[:32]

    def values(self, k: Emitter, loaded: Sequence[Value]) -> list[Value]:
        """What the elementwise members make of values of the inputs."""
        made: list[Value] = []
        for (op, refs), target in zip(self.members[: len(self.members) - self.ends], self.made, strict=False):
            sources = [self.storage(r) for r in refs]
            made.append(_member(k, op, sources, target, [loaded[r] if r >= 0 else made[-1 - r] for r in refs]))
        return made

    @property
    def stored(self) -> tuple[int, ...]:
        """The elementwise results that leave the group."""
        return self.results[:-1] if self.ends else self.results


def _emit(k: Emitter, body: _Body, modes: str, outer: bool) -> None:
    """The loops around one group; operands are the inputs, then the results."""
    count_reads, operands = len(body.reads), len(modes)
    storages = tuple(_held(s) for s in (*body.reads, *(body.made[r] for r in body.results)))
    pointers = [k.pointer(i) for i in range(operands)]
    count = k.integer(operands)
    inner = [k.integer(operands + 1 + i) for i in range(operands)]
    scalars: dict[int, Value] = {}

    def step(bases: list[Value], i: Value, mask: Value | None) -> None:
        loaded = []
        for n in range(count_reads):
            if modes[n] == "s":
                loaded.append(scalars[n])
            elif modes[n] == "c":
                loaded.append(k.load(bases[n], i, storages[n], LANES, mask))
            else:
                loaded.append(k.gather(bases[n], i * inner[n], inner[n], storages[n], mask))
        made = body.values(k, loaded)
        for n, result in enumerate(body.results, count_reads):
            k.store(bases[n], i, made[result], storages[n], mask)

    def span(bases: list[Value], low: Value, high: Value) -> None:
        for n in range(count_reads):
            if modes[n] == "s":
                scalars[n] = k.splat(k.load(bases[n], 0, storages[n]), LANES)
        whole = low + (high - low) // LANES * LANES
        with k.loop(low, whole, LANES) as i:
            step(bases, i, None)
        with k.when(whole < high):
            step(bases, whole, k.first_lanes(high - whole))

    if outer:
        elementwise._emit_odometer(k, pointers, count, storages, span)
        return
    low, high = k.share(count, 64)
    with k.when(low < high):
        span(pointers, low, high)


def _emit_rows(k: Emitter, body: _Body, modes: str) -> None:
    """The reduction's loop over rows, which computes the group where it loads an element."""
    count_reads = len(body.reads)
    storages = [_held(s) for s in (*body.reads, *(body.made[r] for r in body.stored))]
    operands = len(storages) + 1
    pointers = [k.pointer(i) for i in range(operands)]
    outer, count = k.integer(operands), k.integer(operands + 1)
    rows = [k.integer(operands + 2 + 2 * n) for n in range(count_reads)]
    inner = [k.integer(operands + 3 + 2 * n) for n in range(count_reads)]
    op, (source,) = body.members[-1]
    storage = body.storage(source)
    fold = reduce._Fold(k, op, storage)
    low, high = k.share(outer)
    with k.loop(low, high) as row:
        steps = [*rows, *[count] * len(body.stored)]
        bases = [k.address(p, row * by, s.bytes) for p, by, s in zip(pointers, steps, storages, strict=False)]
        scalars = {n: k.splat(k.load(bases[n], 0, storages[n]), LANES) for n in range(count_reads) if modes[n] == "s"}

        def load(i: Value, mask: Value | None) -> Value:
            loaded = []
            for n in range(count_reads):
                if modes[n] == "s":
                    loaded.append(scalars[n])
                elif modes[n] == "c":
                    loaded.append(k.load(bases[n], i, storages[n], LANES, mask))
                else:
                    loaded.append(k.gather(bases[n], i * inner[n], inner[n], storages[n], mask))
            made = body.values(k, loaded)
            for n, result in enumerate(body.stored, count_reads):
                k.store(bases[n], i, made[result], storages[n], mask)
            return _widened(k, loaded[source] if source >= 0 else made[-1 - source], storage)

        if fold.wide:
            total = reduce.row_sum(k, count, load)
        else:
            total = reduce.fold_lanes(k, reduce.row_fold(k, count, load, fold.neutral, fold.combine), fold.combine)
        k.store(pointers[-1], row, fold.finish(total, count), storage)


def _joined(dims: Sequence[int], strides: Sequence[int]) -> int | None:
    """The one stride that walks these axes in order; None where there is none."""
    kept = [(n, s) for n, s in zip(dims, strides, strict=True) if n != 1]
    if any(a != b * n for (_, a), (n, b) in itertools.pairwise(kept)):
        return None
    return kept[-1][1] if kept else 0


def _select_rows(body: _Body, reads: list, writes: list, primitive: Any) -> Selection | None:
    reduction, (source,) = primitive.members[-1]
    seen = reads[source].layout if source >= 0 else primitive.layouts[-1 - source]
    split = reduce._split(seen.shape, reduction.axes)
    if split is None or split[2] != 1 or not all(w.layout.contiguous for w in writes):
        return None
    outer, count, _ = split
    first = min(a % len(seen.shape) for a in reduction.axes) if reduction.axes is not None else 0
    words, modes = [outer, count], ""
    for read in reads:
        strides = broadcast_strides(read.layout, seen.shape)
        if strides is None:
            return None
        by_row, by_element = (_joined(seen.shape[a], strides[a]) for a in (slice(0, first), slice(first, None)))
        if by_row is None or by_element is None:
            return None
        words += [by_row, by_element]
        modes += {0: "s", 1: "c"}.get(by_element, "g")
    kernel = library.compiled(body.name(modes, True), lambda k: _emit_rows(k, body, modes), f"{reduction.name}_rows")
    return kernel, min(seen.size // elementwise._PART_ELEMENTS_DEAR, outer), tuple(words)


def _kernel(body: _Body, p: Pattern) -> CpuKernel:
    outer = bool(p.dims)
    return library.compiled(body.name(p.modes, outer), lambda k: _emit(k, body, p.modes, outer), "elementwise")


def _select(reads: list, writes: list, params: object) -> Selection | None:
    body = _Body(params, reads)
    if body.ends:
        return _select_rows(body, reads, writes, params)
    p = pattern([o.layout for o in (*reads, *writes[:-1])], writes[-1].layout)
    if p is None or not all(w.layout.contiguous for w in writes):
        return None
    dear = body.dear or "g" in p.modes or len(body.members) > 8
    grain = elementwise._PART_ELEMENTS_DEAR if dear else elementwise._PART_ELEMENTS_CHEAP
    return _kernel(body, p), writes[-1].layout.size // grain, p.words


ROUTES = {"fused": _select}
