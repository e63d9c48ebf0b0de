"""The witness of a schedule: who owned which memory when, which access came after which, and whether that was allowed.

It shares no code with the runtime that it watches: generations, clocks and sums are its own. It sees a buffer's life begin (the allocator
handed memory out), the work that names it, that work running, and the life end (the allocator took the memory back).
"""

from __future__ import annotations

from typing import Any

from outlive.backends.sim.arena import Arena, Cell
from outlive.backends.sim.scheduler import Violation

Clock = dict[int, int]
"""What is known to have happened: how many operations of each device stream. Stream `HOST` counts the host's own accesses."""

HOST = -1


def join(into: Clock, other: Clock) -> None:
    """Add to a clock what another one knows."""
    for stream, count in other.items():
        if into.get(stream, 0) < count:
            into[stream] = count


class Life:
    """One life of memory: from being handed out to being handed out again. `serial` orders the lives of one address."""

    __slots__ = (
        "cell", "ended", "name", "origin", "predecessor", "reads", "released_at", "serial", "size", "unfinished", "write", "written",
    )  # fmt: skip

    def __init__(self, serial: int, cell: Cell, size: int, origin: Any, predecessor: Life | None) -> None:
        self.serial = serial
        self.cell = cell
        self.size = size
        self.origin = origin
        self.predecessor = predecessor
        self.write: tuple[int, int, Any] | None = None
        """(stream, operation, launch) of the last write."""
        self.reads: dict[int, tuple[int, Any]] = {}
        """By stream: (operation, launch) of the last read since that write."""
        self.unfinished = 0
        """Launches that name it and have not run."""
        self.written = False
        self.released_at = 0
        self.ended = False

    def __repr__(self) -> str:
        return f"buffer {self.serial} ({self.size:,} bytes)"


class Access:
    """One operand of a launch: whose memory, and how it is seen. What a reference kernel gets (`view`, `layout`)."""

    __slots__ = ("arena", "layout", "life", "offset")

    def __init__(self, arena: Arena, life: Life, layout: Any, offset: int) -> None:
        self.arena = arena
        self.life = life
        self.layout = layout
        self.offset = offset

    @property
    def view(self) -> Any:
        return self.arena.view(self.life.cell, self.layout, self.offset)


class Foreign:
    """An operand that was computed before the schedule began, on another device: it can be read and nothing else."""

    __slots__ = ("layout", "view")
    life = None

    def __init__(self, operand: Any) -> None:
        self.layout = operand.layout
        self.view = operand.view


class Launch:
    """A kernel with its operands as a driver knows them: addresses alone, nothing that keeps memory alive."""

    __slots__ = ("kernel", "origin", "reads", "writes")

    def __init__(self, kernel: Any, reads: list[Any], writes: list[Any], origin: Any) -> None:
        self.kernel = kernel
        self.reads = reads
        self.writes = writes
        self.origin = origin

    def __repr__(self) -> str:
        return self.kernel.name


class _Host:
    """The host as the subject of a sentence."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __repr__(self) -> str:
        return f"The host, which {self.what} it,"


class Witness:
    """Watches one schedule over one arena. Violations are raised where they are seen."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.serial = 0
        self.lives: dict[int, Life] = {}
        """By identity of the runtime's buffer object; renewed whenever one is handed out."""
        self.latest: dict[int, Life] = {}
        """By start of the allocation: the life that was handed out last."""
        self.clocks: dict[int, Clock] = {}
        self.host: Clock = {}
        self.host_count = 0
        self.launches_run = 0
        self.hazards: dict[str, int] = {}
        self.pairs: set[tuple[str, str]] = set()
        self.trace: Any = None

    # Lives

    def issued(self, buffer: Any, stream: int | None, origin: Any) -> None:
        """The allocator handed `buffer` out, for work on `stream` or (None) for the host."""
        cell = buffer.block.memory
        if cell.freed:
            raise Violation(
                "ledger",
                f"Memory that the driver has back was handed out again ({cell.size:,} bytes).",
                "released twice",
            )
        before = self.latest.get(cell.start)
        if before is not None:
            self._check_reuse(before, stream, origin)
        self.serial += 1
        life = Life(self.serial, cell, cell.size, origin, before)
        self.lives[id(buffer)] = life
        self.latest[cell.start] = life
        if self.trace is not None:
            self.trace.issued(life, buffer)

    def _check_reuse(self, before: Life, stream: int | None, origin: Any) -> None:
        """Memory may change hands when all work on it is known to be over, or comes before on the stream that gets it."""
        if not before.released_at:
            raise Violation(
                "generation", f"{before!r} was handed out again while its owner still has it.", "released twice, or donated and released",
                (before,),
            )  # fmt: skip
        before.ended = True

    def released(self, buffer: Any) -> None:
        """The allocator took `buffer` back."""
        life = self.lives.get(id(buffer))
        if life is None:
            return
        if life.released_at:
            raise Violation("balance", f"{life!r} was released twice.", "two owners of one buffer", (life,))
        life.released_at = self.serial or 1
        if self.trace is not None:
            self.trace.released(life)

    def freed(self, cell: Cell) -> None:
        """The driver gets memory back: everything on it must be known to be over."""
        life = self.latest.pop(cell.start, None)
        if life is None:
            return
        if not life.released_at:
            raise Violation("ledger", f"{life!r} went back to the driver while its owner still has it.", "", (life,))
        life.ended = True
        self._require_over(life, self.host, "went back to the driver")

    def _require_over(self, life: Life, clock: Clock, what: str) -> None:
        if life.unfinished:
            raise Violation(
                "lifetime", f"{life!r} {what} while {life.unfinished} launches that use it have not run.",
                "its release did not wait for its last access", (life,),
            )  # fmt: skip
        for stream, operation, launch in self._accesses(life):
            if clock.get(stream, 0) < operation:
                raise Violation(
                    "lifetime", f"{life!r} {what} before the host knew that {launch!r} is over.",
                    "its release did not wait for its last access", (life, launch),
                )  # fmt: skip

    @staticmethod
    def _accesses(life: Life) -> list[tuple[int, int, Any]]:
        found = [(stream, operation, launch) for stream, (operation, launch) in life.reads.items()]
        if life.write is not None:
            found.append(life.write)
        return found

    def life_of(self, buffer: Any) -> Life | None:
        """The life that a buffer object stands for; None for one of another device."""
        return self.lives.get(id(buffer))

    # Launches

    def launch(self, kernel: Any, reads: Any, writes: Any, origin: Any) -> Launch:
        """A committed record, as the driver takes it over."""
        made = Launch(
            kernel, [self._access(o, kernel) for o in reads], [self._access(o, kernel) for o in writes], origin
        )
        raw = getattr(kernel, "raw_reads", None)
        if raw is not None:
            made.reads = [*raw, *made.reads]
        for access in (*made.reads, *made.writes):
            life = access.life
            if life is not None:
                life.unfinished += 1
        if self.trace is not None:
            self.trace.launched(made)
        if any(a.life is None for a in made.writes):
            raise Violation(
                "program", f"{made!r} writes over an array that was made outside of the checked program.",
                "the only reference to an outside array was handed in; make the array inside, or keep another reference", (made,),
            )  # fmt: skip
        return made

    def _access(self, operand: Any, kernel: Any) -> Any:
        life = self.lives.get(id(operand.buffer))
        if life is None or life.cell is not operand.buffer.block.memory:
            write = operand.buffer.write
            if write is not None and not write.done:
                raise Violation(
                    "program", f"[{kernel.name}] An operand was made outside of the checked program and is not computed yet.",
                    "evaluate outside arrays first, or make them inside",
                )  # fmt: skip
            return Foreign(operand)
        low, high = extent(operand.layout)
        if operand.layout.size and (operand.offset + low < 0 or operand.offset + high > life.size):
            raise Violation(
                "extent", f"[{kernel.name}] An operand {operand.layout!r} at byte {operand.offset} reaches outside of {life!r}.",
                "wrong strides or offset of a view", (life,),
            )  # fmt: skip
        return Access(self.arena, life, operand.layout, operand.offset)

    def dropped(self, launch: Launch) -> None:
        """The launch will not run: its command buffer failed."""
        for access in (*launch.reads, *launch.writes):
            if access.life is not None:
                access.life.unfinished -= 1

    def before(self, launch: Launch, stream: int, clock: Clock) -> None:
        """The launch is about to run on a device stream that knows `clock`."""
        for access in launch.reads:
            life = access.life
            if life is None or not access.layout.size:
                continue
            self._occupy(life, launch, clock)
            if not life.written:
                raise Violation(
                    "contents",
                    f"{launch!r} reads {life!r}, which nothing has written.",
                    "a missing write",
                    (life, launch),
                )
            write = life.write
            if write is not None and write[0] != stream:
                self._ordered("read after write", write, stream, clock, life, launch)
        for access in launch.writes:
            life = access.life
            if life is None or not access.layout.size:
                continue
            self._occupy(life, launch, clock)
            if life.write is not None and life.write[0] != stream:
                self._ordered("write after write", life.write, stream, clock, life, launch)
            for other, (count, reader) in life.reads.items():
                if other != stream:
                    self._ordered("write after read", (other, count, reader), stream, clock, life, launch)

    def after(self, launch: Launch, stream: int, operation: int) -> None:
        """The launch has run."""
        self.launches_run += 1
        for access in launch.reads:
            life = access.life
            if life is not None:
                life.unfinished -= 1
                life.reads[stream] = (operation, launch)
        for access in launch.writes:
            life = access.life
            if life is None:
                continue
            life.unfinished -= 1
            if access.layout.size:
                self.arena.check_guards(life.cell, f"by {launch!r}")
            if life.write is not None and life.write[2] is not launch:
                self.pairs.add((life.write[2].kernel.name if life.write[2] is not None else "host", launch.kernel.name))
            life.write = (stream, operation, launch)
            life.written = True
            life.reads = {}
        if self.trace is not None:
            self.trace.ran(launch, stream)

    def _occupy(self, life: Life, launch: Any, clock: Clock) -> None:
        """Memory holds the contents of one life: an older one must not come back, and a newer one starts poisoned, after the older."""
        cell = life.cell
        occupant: Any = cell.occupant
        if occupant is life and not cell.freed:
            return
        if cell.freed:
            raise Violation(
                "generation",
                f"{launch!r} uses {life!r} after the driver had it back.",
                "released before its last use",
                (life, launch),
            )
        if occupant is not None and occupant.serial > life.serial:
            raise Violation(
                "generation", f"{launch!r} uses {life!r} after its memory was given to {occupant!r}.",
                "the record did not keep its operand, or its release did not wait", (life, occupant, launch),
            )  # fmt: skip
        earlier = life.predecessor
        while earlier is not None:
            if earlier.unfinished:
                raise Violation(
                    "lifetime", f"{launch!r} takes the memory of {earlier!r} over for {life!r} before {earlier.unfinished} launches ran.",
                    "handed out again to work that is not ordered after them", (earlier, life, launch),
                )  # fmt: skip
            for access in self._accesses(earlier):
                self._ordered("reuse of memory", access, None, clock, life, launch)
            earlier.predecessor, earlier = None, earlier.predecessor
        life.predecessor = None
        cell.occupant = life
        self.arena.poison(cell)

    def _ordered(
        self, hazard: str, earlier: tuple[int, int, Any], stream: int | None, clock: Clock, life: Life, launch: Any
    ) -> None:
        self.hazards[hazard] = self.hazards.get(hazard, 0) + 1
        other, count, by = earlier
        if other != stream and clock.get(other, 0) < count:
            raise Violation(
                "happens-before", f"{hazard}: nothing orders {launch!r} after {by!r} on {life!r}.",
                "a wait is missing, or an access was not entered", (life, by, launch),
            )  # fmt: skip

    # The host

    def host_writes(self, buffer: Any) -> None:
        """The host fills a buffer at once."""
        life = self.lives[id(buffer)]
        self._host_access(life, "writes", all_accesses=True)
        life.write = (HOST, self.host_count, None)
        life.written = True
        life.reads = {}

    def host_reads(self, buffer: Any, what: str = "the host's read") -> None:
        """The host looks at a buffer's contents."""
        life = self.lives.get(id(buffer))
        if life is None:
            return
        self._host_access(life, "reads", all_accesses=False)
        if life.size and not life.written:
            raise Violation(
                "contents", f"The host reads {life!r}, which nothing has written.", "a read before the wait", (life,)
            )
        life.reads[HOST] = (self.host_count, what)

    def _host_access(self, life: Life, what: str, all_accesses: bool) -> None:
        self.host_count += 1
        self.host[HOST] = self.host_count
        self._occupy(life, _Host(what), self.host)
        for stream, operation, launch in self._accesses(life):
            is_write = life.write is not None and launch is life.write[2]
            if (all_accesses or is_write) and self.host.get(stream, 0) < operation:
                raise Violation(
                    "happens-before",
                    f"The host {what} {life!r} before it knew that {launch!r} is over.",
                    "a missing wait",
                    (life, launch),
                )

    def observed(self, clock: Clock) -> None:
        """The host learned that everything in `clock` has happened."""
        join(self.host, clock)


_extents: dict[Any, tuple[int, int]] = {}
LIMIT_EXTENTS = 1 << 14


def extent(layout: Any) -> tuple[int, int]:
    """The bytes that a layout covers, relative to its first element: (lowest, one past the highest)."""
    found = _extents.get(layout)
    if found is None:
        low = sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True) if s < 0 and n)
        high = sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True) if s > 0 and n)
        if len(_extents) >= LIMIT_EXTENTS:
            _extents.clear()
        found = _extents[layout] = (low * layout.dtype.itemsize, (high + 1) * layout.dtype.itemsize)
    return found
