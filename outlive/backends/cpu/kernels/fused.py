"""Fused elementwise kernels, generated for a group of ops: each value is computed once and stays in registers.

Every member uses the function that its own kernel uses, and every result is rounded to its own type, so the bits are
those of the separate kernels. Values of half precision are held as they lie in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from outlive.backends.cpu.abi import CpuKernel, Selection
from outlive.backends.cpu.features import features
from outlive.backends.cpu.kernels import elementwise, library
from outlive.backends.cpu.kernels.emit import BOOL, F16, HALF, I8, I16, LANES, STORAGES, Emitter, Storage, Value
from outlive.backends.cpu.kernels.layouts import Pattern, pattern

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


def serves(primitive, reads: Sequence, write) -> bool:
    """Whether a fused kernel may hold `primitive` for operands of these layouts: its own compiled kernel serves
    them.
    """
    if not features().vector:
        return False
    sources = [STORAGES.get(r.dtype.name) for r in reads]
    target = STORAGES.get(write.dtype.name)
    if target is None or None in sources:
        return False
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

    def __init__(self, primitive, reads: Sequence, writes: Sequence) -> None:
        self.reads = [STORAGES[r.layout.dtype.name] for r in reads]
        self.made = [STORAGES[layout.dtype.name] for layout in primitive.layouts]
        self.members = [(p.name, refs) for p, refs in primitive.members]
        self.results = primitive.results
        self.dear = any(elementwise.UNARY.get(op, ("", False))[1] or op == "power" for op, _ in self.members)

    def storage(self, ref: int) -> Storage:
        return self.reads[ref] if ref >= 0 else self.made[-1 - ref]

    def name(self, modes: str, outer: bool) -> str:
        words = (
            [s.name for s in self.reads],
            [(op, refs, s.name) for (op, refs), s in zip(self.members, self.made, strict=True)],
            self.results,
            modes,
            outer,
        )
        return "fused_" + hashlib.sha256(repr(words).encode()).hexdigest()[:32]

    def values(self, k: Emitter, loaded: Sequence[Value]) -> list[Value]:
        """Results of the group for values of its inputs."""
        made: list[Value] = []
        for (op, refs), target in zip(self.members, self.made, strict=True):
            sources = [self.storage(r) for r in refs]
            made.append(_member(k, op, sources, target, [loaded[r] if r >= 0 else made[-1 - r] for r in refs]))
        return [made[r] for r in self.results]


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
        for n, value in enumerate(body.values(k, loaded), count_reads):
            k.store(bases[n], i, value, storages[n], mask)

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


def _kernel(body: _Body, p: Pattern) -> CpuKernel:
    outer = bool(p.dims)
    return library.compiled(body.name(p.modes, outer), lambda k: _emit(k, body, p.modes, outer), "elementwise")


def _select(reads: list, writes: list, params: object) -> Selection | None:
    body = _Body(params, reads, writes)
    p = pattern([o.layout for o in (*reads, *writes[:-1])], writes[-1].layout)
    if p is None or not all(w.layout.contiguous for w in writes):
        return None
    dear = body.dear or "g" in p.modes or len(body.members) > 8
    grain = elementwise._PART_ELEMENTS_DEAR if dear else elementwise._PART_ELEMENTS_CHEAP
    return _kernel(body, p), writes[-1].layout.size // grain, p.words


ROUTES = {"fused": _select}
