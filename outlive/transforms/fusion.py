"""Fusion: the steps of a plan gathered into groups of elementwise work, each of which becomes one generated kernel.

A group computes over one shape, and may end in one reduction of a result. It rounds every intermediate result to its
own type, as separate kernels would, so fusing never changes a bit. The groups are the same for all devices that can
fuse the same ops; a device's generator says which ops these are, and its route of the op "fused" makes the kernels.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from outlive.backends.cpu.reference import raised, stored
from outlive.graph.primitive import Primitive
from outlive.runtime.layout import Layout
from outlive.transforms.plan import Plan, Step

GENERATORS = {"cpu": "outlive.backends.cpu.kernels.fused", "gpu": "outlive.backends.cuda.kernels.fused"}
"""The module that generates kernels for a kind of device; its `serves` and `ends` say what it fuses."""

LIMIT_MEMBERS = 256
"""Ops in one group: the time to compile a kernel grows with them."""

LIMIT_OPERANDS = 24
"""Inputs and outputs of one group: each takes a register for its address."""

LIMIT_MEMBERS_BEFORE_END = 32
"""Ops in a group that ends in a reduction, whose loop is unrolled."""

Serves = Callable[[Primitive, Sequence[Layout], Layout], bool]


def nothing(primitive: Primitive, reads: Sequence[Layout], write: Layout) -> bool:
    """Serves no op."""
    return False


class Fused(Primitive):
    """Elementwise ops as one op with an output for each member of `results`.

    `types`: of the inputs. `members`: each a primitive and what it reads: input k of the group as k, the result of
    member j as -1 - j. `layouts`: of the members' results. `ends`: the last member is a reduction.
    """

    __slots__ = ("types", "members", "layouts", "results", "ends")
    name = "fused"
    moves_bits = True  # the reference kernel converts for each member by itself
    types: tuple[Any, ...]
    members: tuple[tuple[Primitive, tuple[int, ...]], ...]
    layouts: tuple[Layout, ...]
    results: tuple[int, ...]
    ends: bool

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        # a row's result must not lie where another row is still to be read
        last = len(self.members) - 1 if self.ends else -1
        outs = tuple([encoder.output(self.layouts[r], r != last) for r in self.results])
        encoder.dispatch(self, inputs, outs)
        return outs if type(layout) is tuple else outs[0]

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        made: list[Any] = []
        for (primitive, refs), layout in zip(self.members, self.layouts, strict=True):
            values = [(reads[r], self.types[r]) if r >= 0 else (made[-1 - r], self.layouts[-1 - r].dtype) for r in refs]
            made.append(_member_reference(xp, primitive, values, layout))
        for write, result in zip(writes, self.results, strict=True):
            write[...] = made[result]

    def served(self, device: Any, inputs: Sequence[Any], operand: Callable[[Layout], Any]) -> bool:
        """Whether `device` has a kernel for these operands; `operand` makes one of a layout."""
        return device.select(self, inputs, tuple([operand(self.layouts[r]) for r in self.results])) is not None

    def by_members(self, inputs: Sequence[Any], encode: Callable[[Primitive, tuple[Any, ...], Layout], Any]) -> Any:
        """The same, each member by itself through `encode(primitive, inputs, layout)`."""
        made: list[Any] = []
        for (primitive, refs), layout in zip(self.members, self.layouts, strict=True):
            made.append(encode(primitive, tuple([inputs[r] if r >= 0 else made[-1 - r] for r in refs]), layout))
        return tuple([made[r] for r in self.results]) if len(self.results) > 1 else made[self.results[0]]


def _member_reference(xp: Any, primitive: Primitive, values: Sequence[tuple[Any, Any]], layout: Any) -> Any:
    """A member's result in storage form, rounded once to its type."""
    half = layout.dtype.half and not primitive.moves_bits
    out = xp.empty(layout.shape, xp.float32 if half else layout.dtype.storage)
    reads = tuple([v if primitive.moves_bits else raised(v, dtype) for v, dtype in values])
    primitive.reference(xp, reads, (out,))
    return stored(out, layout.dtype, xp) if half else out


class _Group:
    """Steps that may become one. `taint`: groups that it must come after, as bits; `bits`: its own.

    `consumed`: a step outside reads from it already, so what comes after that step is known and may not grow. `end`:
    the step among the members that reduces a result.
    """

    __slots__ = ("bits", "consumed", "end", "members", "shape", "taint")

    def __init__(self, shape: tuple[int, ...], bit: int) -> None:
        self.shape = shape
        self.bits = bit
        self.taint = 0
        self.members: list[int] = []
        self.consumed = False
        self.end: int | None = None

    @property
    def limit(self) -> int:
        return LIMIT_MEMBERS if self.end is None else LIMIT_MEMBERS_BEFORE_END


class _Grouping:
    """Assigns each step to a group, so that no group depends on itself by way of others."""

    def __init__(self, plan: Plan, serves: Serves, ends: Serves) -> None:
        self.plan = plan
        self.serves = serves
        self.ends = ends
        self.group_of_step: dict[int, _Group] = {}
        self.maker: dict[int, int] = {}  # value -> step
        self.after: dict[int, int] = {}  # value made outside of groups -> groups before it, as bits
        self.next_bit = 1

    def run(self) -> None:
        for at, step in enumerate(self.plan.steps):
            layouts = [self.plan.layouts[i] for i in step.inputs]
            if len(step.outputs) == 1 and self.serves(step.primitive, layouts, step.layout):
                self._place(at, step)
            elif not self._place_end(at, step, layouts):
                taint = 0
                for value in step.inputs:
                    taint |= self._consume(value)
                for value in step.outputs:
                    self.after[value] = taint
            for value in step.outputs:
                self.maker[value] = at

    def _group_of(self, value: int) -> _Group | None:
        """The group that holds `value` as a result of its elementwise work; a reduced result is outside of it."""
        maker = self.maker.get(value, -1)
        group = self.group_of_step.get(maker)
        return None if group is not None and group.end == maker else group

    def _taint(self, value: int) -> int:
        """The groups that must be over before `value` exists, for a reader outside of its group."""
        group = self.group_of_step.get(self.maker.get(value, -1))
        return self.after.get(value, 0) if group is None else group.taint | group.bits

    def _consume(self, value: int) -> int:
        group = self.group_of_step.get(self.maker.get(value, -1))
        if group is not None:
            group.consumed = True
        return self._taint(value)

    def _place_end(self, at: int, step: Step, layouts: Sequence[Layout]) -> bool:
        """Let a reduction end the group of what it reads; whether it does."""
        group = self._group_of(step.inputs[0]) if len(step.inputs) == len(step.outputs) == 1 else None
        if group is None or group.end is not None or len(group.members) >= LIMIT_MEMBERS_BEFORE_END:
            return False
        if not self.ends(step.primitive, layouts, step.layout):
            return False
        group.members.append(at)
        group.end = at
        self.group_of_step[at] = group
        return True

    def _place(self, at: int, step: Step) -> None:
        group = _Group(step.layout.shape, self.next_bit)
        self.next_bit <<= 1
        group.members.append(at)
        for value in step.inputs:
            other = self._group_of(value)
            if other is not None and other is not group and self._may_merge(group, other, step):
                self._merge(group, other)
        for value in step.inputs:
            if self._group_of(value) is not group:
                group.taint |= self._consume(value)
        self.group_of_step[at] = group

    def _may_merge(self, group: _Group, other: _Group, step: Step) -> bool:
        if other.shape != group.shape or (group.end is not None and other.end is not None):
            return False
        if len(group.members) + len(other.members) > min(group.limit, other.limit):
            return False
        taint, bits = group.taint | other.taint, group.bits | other.bits
        for value in step.inputs:
            if self._group_of(value) not in (group, other):
                taint |= self._taint(value)
        if taint & bits:
            return False
        return not any(g.consumed and taint & ~g.taint for g in (group, other))

    def _merge(self, group: _Group, other: _Group) -> None:
        group.members = sorted({*group.members, *other.members})
        group.taint |= other.taint
        group.bits |= other.bits
        group.consumed |= other.consumed
        group.end = other.end if group.end is None else group.end
        for member in other.members:
            self.group_of_step[member] = group


def _fused_step(plan: Plan, members: Sequence[int], outside: set[int], end: int | None) -> Step:
    """The steps `members` as one, the reduction `end` last; `outside`: values that other steps or the caller need."""
    inputs: dict[int, int] = {}
    made: dict[int, int] = {}
    parts, layouts, results = [], [], []
    for number, at in enumerate(members):
        step = plan.steps[at]
        refs = tuple([-1 - made[v] if v in made else inputs.setdefault(v, len(inputs)) for v in step.inputs])
        parts.append((step.primitive, refs))
        layouts.append(step.layout)
        made[step.outputs[0]] = number
        if step.outputs[0] in outside:
            results.append(number)
    types = tuple([plan.layouts[v].dtype for v in inputs])
    primitive = Fused.make(types, tuple(parts), tuple(layouts), tuple(results), members[-1] == end)
    outputs = tuple([plan.steps[members[r]].outputs[0] for r in results])
    seen: Any = tuple([layouts[r] for r in results])
    last = plan.steps[members[-1]]
    return Step(primitive, tuple(inputs), outputs, seen if len(seen) > 1 else seen[0], last.stream, last.origin)


def _ordered(steps: Sequence[Step], places: Sequence[int]) -> tuple[Step, ...]:
    """Steps after those that they read from, otherwise by `places`."""
    maker = {value: k for k, step in enumerate(steps) for value in step.outputs}
    readers: list[list[int]] = [[] for _ in steps]
    waiting = [0] * len(steps)
    for k, step in enumerate(steps):
        for source in {maker[v] for v in step.inputs if v in maker}:
            readers[source].append(k)
            waiting[k] += 1
    ready = [(places[k], k) for k in range(len(steps)) if not waiting[k]]
    heapq.heapify(ready)
    out = []
    while ready:
        _, k = heapq.heappop(ready)
        out.append(steps[k])
        for reader in readers[k]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, (places[reader], reader))
    if len(out) != len(steps):
        raise RuntimeError("[compile] Fusion made a group that depends on itself; run with OUTLIVE_DISABLE_FUSION=1.")
    return tuple(out)


def _pieces(plan: Plan, members: Sequence[int], outside_of: Callable[[set[int]], set[int]]) -> list[Sequence[int]]:
    """A group cut in halves until each piece has few enough operands."""
    values = {plan.steps[m].outputs[0] for m in members}
    reads = {v for m in members for v in plan.steps[m].inputs} - values
    if len(members) == 1 or len(reads) + len(outside_of({*members}) & values) <= LIMIT_OPERANDS:
        return [members]
    half = len(members) // 2
    return _pieces(plan, members[:half], outside_of) + _pieces(plan, members[half:], outside_of)


def fuse(plan: Plan, serves: Serves, ends: Serves = nothing) -> Plan:
    """The plan with its elementwise steps in groups.

    `serves(primitive, input layouts, layout)` says which ops may be in a group, `ends` which reductions may end one.
    """
    grouping = _Grouping(plan, serves, ends)
    grouping.run()
    readers: dict[int, set[int]] = {}
    for at, step in enumerate(plan.steps):
        for value in step.inputs:
            readers.setdefault(value, set()).add(at)
    kept = {*plan.outputs}

    def outside_of(members: set[int]) -> set[int]:
        made = [plan.steps[m].outputs[0] for m in members]
        return {v for v in made if v in kept or not readers.get(v, set()) <= members}

    steps: list[Step] = []
    places: list[int] = []
    seen: set[int] = set()
    for at, step in enumerate(plan.steps):
        group = grouping.group_of_step.get(at)
        if group is None or len(group.members) == 1:
            steps.append(step)
            places.append(at)
        elif id(group) not in seen:
            seen.add(id(group))
            ordered = sorted(group.members, key=lambda m: (m == group.end, m))
            for members in _pieces(plan, ordered, outside_of):
                one = plan.steps[members[0]]
                whole = len(members) > 1
                steps.append(_fused_step(plan, members, outside_of({*members}), group.end) if whole else one)
                places.append(max(members))
    return plan._replace(steps=_ordered(steps, places))


def enabled() -> bool:
    """Whether plans are fused: unless OUTLIVE_DISABLE_FUSION is set."""
    return not os.environ.get("OUTLIVE_DISABLE_FUSION")


def fused_for_device(plan: Plan) -> Plan:
    """The plan as the device of its stream can fuse it."""
    if plan.stream is None or not enabled():
        return plan
    generator = GENERATORS.get(plan.stream.device.name)
    if generator is None:
        return plan
    module = import_module(generator)
    return fuse(plan, module.serves, module.ends)


__all__ = ["Fused", "fuse", "fused_for_device"]
