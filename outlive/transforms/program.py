"""`Program`: a plan captured as dispatches over buffers whose places are known: arguments, outputs, and one arena for
all between them.

Capturing runs every op's `encode` once against an encoder that only notes what it is asked for. Replaying binds
operands and records the dispatches: no node, no encode, no choice of kernels, one allocation for all temporaries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from operator import itemgetter
from typing import Any, NamedTuple

from outlive.graph.primitive import Primitive
from outlive.runtime.buffer import Operand
from outlive.runtime.builtin import BYTE, COPY, Fill, Workspaced
from outlive.runtime.encoder import CommandEncoder
from outlive.runtime.layout import Layout, layout, strided_layout
from outlive.transforms.fusion import Fused
from outlive.transforms.plan import Plan, Step

ALIGNMENT = 256

Picker = Callable[[tuple[Operand, ...]], tuple[Operand, ...]]


class Slot:
    """A buffer to be: an argument's (`argument` is its number) or one that the program makes, alive from step `first`
    to `last`.
    """

    __slots__ = ("argument", "escapes", "first", "last", "layout", "living", "offset", "writable")

    def __init__(self, seen: Layout, first: int, argument: int = -1, writable: bool = False) -> None:
        self.layout = seen
        self.argument = argument
        self.first = self.last = first
        self.living = 0
        self.writable = writable
        self.escapes = False
        self.offset = 0

    @property
    def size(self) -> int:
        """Bytes, as far as they are known: an argument's buffer may be larger than what is seen of it."""
        return self.layout.nbytes


class Planned:
    """What `Operand` is to a real encoder: a slot under a layout; `offset` in bytes."""

    __slots__ = ("buffer", "layout", "offset")

    def __init__(self, slot: Slot, seen: Layout, offset: int = 0) -> None:
        self.buffer = slot
        self.layout = seen
        self.offset = offset


class Planner:
    """The encoder of a capture: the same verbs as `CommandEncoder` has for primitives."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.records: list[tuple[Any, Any, tuple[Planned, ...], tuple[Planned, ...], Any]] = []
        self.slots: list[Slot] = []
        self.taken: set[int] = set()
        self._inputs: tuple[Planned, ...] = ()
        self._may_take: tuple[bool, ...] = ()
        self._at = 0
        self._origin: Any = None

    def begin(self, at: int, inputs: tuple[Planned, ...], may_take: tuple[bool, ...], origin: Any) -> None:
        """Start step `at`; `may_take`: which inputs nobody needs after it."""
        self._at, self._inputs, self._may_take, self._origin = at, inputs, may_take, origin

    def _take(self, index: int) -> Planned:
        self._may_take = tuple([m and k != index for k, m in enumerate(self._may_take)])
        found = self._inputs[index]
        if found.buffer.argument >= 0:
            self.taken.add(found.buffer.argument)
        return Planned(found.buffer, found.layout)

    def output(self, shape_and_type: Layout, donate: bool = True) -> Planned:
        if donate:
            for index, free in enumerate(self._may_take):
                if free and self._inputs[index].layout is shape_and_type:
                    return self._take(index)
        slot = Slot(shape_and_type, self._at)
        self.slots.append(slot)
        return Planned(slot, shape_and_type)

    def donated(self, index: int) -> Planned | None:
        return self._take(index) if self._may_take[index] else None

    def temporary(self, nbytes: int, dtype: Any) -> Planned:
        return self.output(layout((nbytes // dtype.itemsize,), dtype), donate=False)

    def view(self, index: int, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Planned:
        return self.reshaped(
            self._inputs[index], strided_layout(shape, strides, self._inputs[index].layout.dtype), offset
        )

    def view_as(self, index: int, seen: Layout) -> Planned:
        return self.reshaped(self._inputs[index], seen)

    def reshaped(self, operand: Planned, seen: Layout, offset: int = 0) -> Planned:
        return Planned(operand.buffer, seen, operand.offset + offset * operand.layout.dtype.itemsize)

    def dispatch(self, kernel: Any, reads: tuple[Planned, ...], writes: tuple[Planned, ...]) -> None:
        launch = self.device.select(kernel, reads, writes)
        if isinstance(launch, Workspaced):
            writes = (*writes, self.temporary(launch.workspace, BYTE))
        self.records.append((launch, kernel, reads, writes, self._origin))

    def learn_pair(self, kernel: Any, inputs: Any, out: Any) -> None:
        """Nothing to learn: the choice of kernel is part of the program."""

    def fill(self, target: Planned, value: Any) -> None:
        if isinstance(value, Planned):
            self.dispatch(COPY, (value,), (target,))
        else:
            self.dispatch(Fill(value), (), (target,))

    def copy(self, source: Planned, target: Planned) -> None:
        self.dispatch(COPY, (source,), (target,))


class Bound(NamedTuple):
    """An operand of a program: which base (an argument, or a buffer that the program makes), layout, bytes from the
    base's start.
    """

    base: int
    layout: Layout
    offset: int


CAPTURES = {"cpu": "outlive.backends.cpu.captured", "gpu": "outlive.backends.cuda.captured"}
"""For each kind of device that replays whole programs: its module, whose `captured(program)` makes the one launch."""


class _Compiled:
    """The kernel of a program that is one launch."""

    name = "compiled"


_COMPILED = _Compiled()


class Program(NamedTuple):
    """A plan in a form to be replayed.

    `taken`: arguments whose buffers it writes over. `made`: layouts of the buffers that leave it. `arena`: bytes of
    all others. `records`: dispatches, with the numbers of their operands; `pickers`: the same, with functions that take
    the operands out of a tuple of all. `launch`: the whole program as one launch of its device, where there is such a thing.
    """

    taken: frozenset[int]
    made: tuple[Layout, ...]
    arena: int
    operands: tuple[Bound, ...]
    records: tuple[tuple[Any, Any, tuple[int, ...], tuple[int, ...], Any], ...]
    outputs: tuple[Bound, ...]
    pickers: tuple[tuple[Any, Any, Picker, Picker, Any], ...]
    launch: Any = None


def _picker(numbers: tuple[int, ...]) -> Picker:
    """A function that takes these elements out of a tuple, as a tuple."""
    if numbers == tuple(range(numbers[0], numbers[0] + len(numbers)) if numbers else ()):
        return itemgetter(slice(numbers[0], numbers[-1] + 1) if numbers else slice(0, 0))
    return itemgetter(*numbers)


class _Capture:
    """The state of one capture: where each value lives, and how many steps still need it."""

    def __init__(self, plan: Plan, arguments: Sequence[Layout], writable: frozenset[int], device: Any) -> None:
        self.plan = plan
        self.planner = Planner(device)
        self.left = [0] * len(plan.layouts)
        for step in plan.steps:
            for number in {*step.inputs}:
                self.left[number] += 1
        self.kept = {*plan.outputs}
        self.values: list[Planned | None] = [None] * len(plan.layouts)
        for number, seen in enumerate(arguments):
            slot = Slot(seen, 0, number, number in writable)
            self._settle(number, Planned(slot, seen))

    def _settle(self, number: int, operand: Planned) -> None:
        """Value `number` lives at `operand`."""
        self.values[number] = operand
        if self.left[number] or number in self.kept:
            operand.buffer.living += 1
        if number in self.kept:
            operand.buffer.escapes = True

    def _may_take(self, step: Step, number: int) -> bool:
        operand = self.values[number]
        assert operand is not None
        slot = operand.buffer
        return (
            self.left[number] == 1
            and number not in self.kept
            and slot.living == 1
            and step.inputs.count(number) == 1
            and operand.layout is slot.layout
            and (slot.argument < 0 or slot.writable)
        )

    def _encode(
        self, at: int, primitive: Primitive, inputs: tuple[Planned, ...], free: tuple[bool, ...], seen: Any, origin: Any
    ) -> Any:
        if type(primitive) is Fused and not primitive.served(self.planner.device, inputs, _unplaced):

            def one(member: Primitive, reads: tuple[Planned, ...], made: Layout) -> Any:
                return self._encode(at, member, reads, (False,) * len(reads), made, origin)

            return primitive.by_members(inputs, one)
        self.planner.begin(at, inputs, free, origin)
        return primitive.encode(self.planner, inputs, seen)  # type: ignore[arg-type]

    def run(self) -> None:
        """Capture every step."""
        for at, step in enumerate(self.plan.steps):
            inputs = tuple([self.values[i] for i in step.inputs])
            free = tuple([self._may_take(step, i) for i in step.inputs])
            result = self._encode(at, step.primitive, inputs, free, step.layout, step.origin)  # type: ignore[arg-type]
            made: Any = result if type(result) is tuple else (result,)
            for operand in inputs:
                operand.buffer.last = at  # type: ignore[union-attr]
            for number, operand in zip(step.outputs, made, strict=True):
                operand.buffer.last = at
                self._settle(number, operand)
            for number in {*step.inputs}:
                self.left[number] -= 1
                if not self.left[number] and number not in self.kept:
                    self.values[number].buffer.living -= 1  # type: ignore[union-attr]


def _unplaced(seen: Layout) -> Planned:
    """An operand of a layout, for asking which kernel would take it."""
    return Planned(Slot(seen, 0), seen)


def _place(slots: Sequence[Slot]) -> int:
    """Give each slot its offset in one arena, reusing places of slots that are over; the arena's size in bytes."""
    size = 0
    free: list[tuple[int, int]] = []  # (offset, bytes), by offset
    over: dict[int, list[Slot]] = {}
    by_first: dict[int, list[Slot]] = {}
    for slot in slots:
        by_first.setdefault(slot.first, []).append(slot)
        over.setdefault(slot.last, []).append(slot)
    for at in sorted({*by_first, *over}):
        for slot in by_first.get(at, ()):
            need = _rounded(slot.layout.nbytes)
            best = min(((n, o) for o, n in free if n >= need), default=None)
            if best is None:
                slot.offset, size = size, size + need
                continue
            n, slot.offset = best
            free.remove((slot.offset, n))
            if n > need:
                free.append((slot.offset + need, n - need))
        for slot in over.get(at, ()):
            free = _joined([*free, (slot.offset, _rounded(slot.layout.nbytes))])
    return size


def _rounded(nbytes: int) -> int:
    return -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT


def _joined(free: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Free places with neighbours joined."""
    out: list[tuple[int, int]] = []
    for offset, n in sorted(free):
        if out and sum(out[-1]) == offset:
            out[-1] = (out[-1][0], out[-1][1] + n)
        else:
            out.append((offset, n))
    return out


def capture(plan: Plan, arguments: Sequence[Layout], writable: frozenset[int], device: Any) -> Program:
    """The program of `plan` for operands of these layouts; it may write over the arguments `writable` once they are not
    needed.
    """
    state = _Capture(plan, arguments, writable, device)
    state.run()
    planner = state.planner
    made = [s for s in planner.slots if s.escapes]
    inner = [s for s in planner.slots if not s.escapes]
    arena = _place(inner)
    base_of = {id(slot): len(arguments) + k for k, slot in enumerate(made)}
    base_of |= {id(slot): len(arguments) + len(made) for slot in inner}
    table: dict[Bound, int] = {}

    def bound(operand: Planned) -> Bound:
        slot = operand.buffer
        base = slot.argument if slot.argument >= 0 else base_of[id(slot)]
        return Bound(base, operand.layout, slot.offset + operand.offset)

    def numbered(operands: tuple[Planned, ...]) -> tuple[int, ...]:
        return tuple([table.setdefault(bound(o), len(table)) for o in operands])

    records = tuple([(a, k, numbered(r), numbered(w), o) for a, k, r, w, o in planner.records])
    outputs = tuple([bound(state.values[o]) for o in plan.outputs])  # type: ignore[arg-type]
    pickers = tuple([(a, k, _picker(r), _picker(w), o) for a, k, r, w, o in records])
    layouts = tuple([s.layout for s in made])
    program = Program(frozenset(planner.taken), layouts, arena, tuple(table), records, outputs, pickers)
    module = CAPTURES.get(device.name)
    return program if module is None else program._replace(launch=import_module(module).captured(program))


def replay(program: Program, encoder: CommandEncoder, arguments: Sequence[Operand]) -> tuple[Operand, ...]:
    """Record a program over `arguments` (taken ones: what the encoder gave); its outputs."""
    bases = list(arguments)
    for seen in program.made:
        bases.append(encoder.output(seen, False))  # noqa: PERF401  (a comprehension would be a frame more)
    if program.arena:
        bases.append(encoder.temporary(program.arena, BYTE))
    own = len(arguments)
    if program.launch is not None:
        written = (*bases[own:], *[arguments[i] for i in program.taken])
        encoder.replay([(program.launch, _COMPILED, tuple(arguments), written, None)])
    else:
        encoder.replay(_records(program, bases))
    outputs = []
    for number, seen, offset in program.outputs:
        base = bases[number]
        whole = number >= own and base.layout is seen and not offset
        outputs.append(base if whole else encoder.part_of(base, seen, offset))
    return tuple(outputs)


def _records(program: Program, bases: Sequence[Operand]) -> list[Any]:
    """The program's dispatches over bases."""
    table = []
    for number, seen, offset in program.operands:
        base = bases[number]
        whole = base.layout is seen and not offset
        table.append(base if whole else Operand(base.buffer, seen, base.offset + offset))
    operands = tuple(table)
    return [
        (launch, kernel, reads(operands), writes(operands), origin)
        for launch, kernel, reads, writes, origin in program.pickers
    ]
