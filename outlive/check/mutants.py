"""Mutants by hand: each a switchable fault of the runtime, which the checker must catch.

A mutant replaces methods for as long as it is switched on; production code knows nothing of it. `PENDING` names faults whose code does not
exist yet: each is written with that code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from outlive.backends.sim import engine
from outlive.check import unsafe
from outlive.graph import array as graph_array
from outlive.graph.evaluate import wait_for
from outlive.graph.state import runtime
from outlive.runtime.allocator import Allocator
from outlive.runtime.buffer import Buffer, Data, Operand
from outlive.runtime.builtin import COPY
from outlive.runtime.encoder import CommandEncoder
from outlive.runtime.ledger import Ledger
from outlive.runtime.runtime import Runtime
from outlive.runtime.stream import Stream


class Mutant(NamedTuple):
    """A fault: `words` say what is wrong, `invariant` which rule of the runtime it breaks, `switched_on` makes it real."""

    name: str
    words: str
    invariant: str
    switched_on: Callable[[], contextlib.AbstractContextManager[None]]


MUTANTS: list[Mutant] = []

PENDING = {
    "ring slot without fence": "rings of arguments and staging memory",
    "registration failure that keeps the buffer": "pinned and registered host memory on the simulated device",
    "sortedness checked only at expert boundaries": "expert products",
}
"""Faults whose code does not exist yet, and the code that they wait for."""


@contextlib.contextmanager
def replaced(owner: Any, **members: Any) -> Iterator[None]:
    """Members of a class or module are others inside."""
    saved = {name: owner.__dict__[name] for name in members}
    for name, member in members.items():
        setattr(owner, name, member)
    try:
        yield
    finally:
        for name, member in saved.items():
            setattr(owner, name, member)


def mutant(name: str, invariant: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Register a mutant; the function's first line of documentation says what is wrong, and it returns the context manager."""

    def register(make: Callable[[], Any]) -> Callable[[], Any]:
        MUTANTS.append(Mutant(name, (make.__doc__ or "").strip().splitlines()[0], invariant, make))
        return make

    return register


# Retaining


@mutant("keep-alive on the earlier command buffer", "I3")
def _late_keepalive() -> Any:
    """Accesses enter the command buffer that was open when the op began, though the op synchronized inside."""
    begin, accept = CommandEncoder.begin, CommandEncoder.accept
    begun: dict[int, Any] = {}

    def mutated_begin(self: Any, inputs: Any, origin: Any) -> None:
        begun[id(self)] = self.command_buffer
        begin(self, inputs, origin)

    def mutated_accept(self: Any, result: Any) -> Any:
        now, self.command_buffer = self.command_buffer, begun.pop(id(self))
        try:
            return accept(self, result)
        finally:
            self.command_buffer = now

    return replaced(CommandEncoder, begin=mutated_begin, accept=mutated_accept)


@mutant("label on a replaced command buffer", "I3")
def _late_label() -> Any:
    """The op's label is put on the command buffer that was open when the op began."""
    begin, accept = CommandEncoder.begin, CommandEncoder.accept
    begun: dict[int, Any] = {}

    def mutated_begin(self: Any, inputs: Any, origin: Any) -> None:
        begun[id(self)] = self.command_buffer
        begin(self, inputs, origin)

    def mutated_accept(self: Any, result: Any) -> Any:
        owner = accept(self, result)
        begun.pop(id(self)).handlers.append(lambda: None)
        return owner

    return replaced(CommandEncoder, begin=mutated_begin, accept=mutated_accept)


@mutant("handler attached after commit", "I4")
def _late_handler() -> Any:
    """A completion handler is attached to a command buffer that the device has already."""
    commit = Stream.commit

    def mutated(self: Any) -> Any:
        command_buffer = self.encoder.command_buffer
        fence = commit(self)
        if command_buffer.tick:
            command_buffer.handlers.append(lambda: None)
        return fence

    return replaced(Stream, commit=mutated)


@mutant("fill value as an unretained temporary", "I2")
def _fill_unretained() -> Any:
    """The number of a fill lives in a temporary that no record names."""
    fill = CommandEncoder.fill

    def mutated(self: Any, target: Any, value: Any) -> None:
        if isinstance(value, Operand) or not hasattr(self._stream.device, "witness"):
            fill(self, target, value)
            return
        from outlive.runtime.layout import layout

        operand, owner = unsafe.host_filled(self, value, layout((), target.layout.dtype))
        unsafe.dispatch_unretained(self, COPY, (operand,), (target,))
        del owner

    return replaced(CommandEncoder, fill=mutated)


@mutant("workspace not retained", "I2")
def _temporary_unretained() -> Any:
    """Nobody owns an op's temporary until the op is over."""

    def mutated(self: Any, nbytes: int, dtype: Any) -> Any:
        from outlive.runtime.layout import layout

        shape = layout((nbytes // dtype.itemsize,), dtype)
        operand = Operand(self._allocator.allocate(shape.nbytes, self._stream, self._origin), shape)
        Data(operand)
        return operand

    return replaced(CommandEncoder, temporary=mutated)


@mutant("a view does not keep its owner", "I2")
def _view_without_owner() -> Any:
    """A view refers to the memory but not to the owner."""
    view = CommandEncoder._view

    def mutated(self: Any, index: int, seen: Any, offset: int) -> Any:
        operand = view(self, index, seen, offset)
        self._made[-1].owner = None
        return operand

    return replaced(CommandEncoder, _view=mutated)


# Access sets and waits


@mutant("outputs left out of access sets", "I8")
def _outputs_not_entered() -> Any:
    """Only what an op reads is entered, not what it writes."""
    return replaced(CommandEncoder, _enter_write=lambda self, buffer, command_buffer: None)


@mutant("reads left out of access sets", "I7")
def _reads_not_entered() -> Any:
    """Only what an op writes is entered, not what it reads."""
    return replaced(CommandEncoder, _enter_read=lambda self, buffer, command_buffer: None)


@mutant("missing write-after-read wait", "I7")
def _no_write_after_read() -> Any:
    """A write waits for the last write, but not for the reads since."""

    def mutated(self: Any, buffer: Any, command_buffer: Any) -> None:
        write = buffer.write
        if write is not None and not write.done:
            self._wait_for(write)
        buffer.reads = None
        buffer.write = command_buffer

    return replaced(CommandEncoder, _enter_write=mutated)


@mutant("missing read-after-write wait", "I7")
def _no_read_after_write() -> Any:
    """A read does not wait for the write on another stream."""
    enter_read = CommandEncoder._enter_read

    def mutated(self: Any, buffer: Any, command_buffer: Any) -> None:
        write, buffer.write = buffer.write, None
        enter_read(self, buffer, command_buffer)
        buffer.write = write

    return replaced(CommandEncoder, _enter_read=mutated)


@mutant("waits forgotten at commit", "I6")
def _waits_forgotten() -> Any:
    """The command buffer goes to the device without its waits."""
    commit = Stream.commit

    def mutated(self: Any) -> Any:
        self.encoder.command_buffer.waits.clear()
        return commit(self)

    return replaced(Stream, commit=mutated)


@mutant("index operand without its fence", "I9")
def _index_not_entered() -> Any:
    """Integer operands of an op are not entered as reads."""
    enter_read = CommandEncoder._enter_read
    accept = CommandEncoder.accept

    def mutated_accept(self: Any, result: Any) -> Any:
        records = self._records
        for i in range(self._mark, len(records)):
            _, _, reads, writes, _ = records[i]
            indices = {id(o.buffer) for o in reads if o.layout.dtype.name in ("int32", "uint32", "int64")}
            skipped.update(indices - {id(o.buffer) for o in writes})
        try:
            return accept(self, result)
        finally:
            skipped.clear()

    skipped: set[int] = set()

    def mutated(self: Any, buffer: Any, command_buffer: Any) -> None:
        if id(buffer) not in skipped:
            enter_read(self, buffer, command_buffer)

    return replaced(CommandEncoder, accept=mutated_accept, _enter_read=mutated)


# Donation


@mutant("donation without looking at the handle", "I9")
def _donation_ignores_node() -> Any:
    """An input's buffer is given away though a handle still refers to its node."""
    take = CommandEncoder._take
    output = CommandEncoder.output

    def mutated(self: Any, shape_and_type: Any, donate: bool = True) -> Any:
        if donate:
            for holder in self._inputs:
                data = holder.data
                if type(data) is Data and data.operand is not None and data.operand.layout is shape_and_type:
                    return take(self, data)
        return output(self, shape_and_type, donate)

    return replaced(CommandEncoder, output=mutated)


@mutant("donation decided at run time", "I9")
def _donation_at_run_time() -> Any:
    """A kernel writes over an input that nobody owns when it runs, though later records still read it."""
    compute = engine.Engine._compute

    def mutated(launch: Any) -> None:
        compute(launch)
        for read in launch.reads:
            life = read.life
            if life is not None and life.released_at and launch.writes and read.layout is launch.writes[0].layout:
                read.view[...] = launch.writes[0].view
                break

    return replaced(engine.Engine, _compute=staticmethod(mutated))


# Allocator


@mutant("cache keyed by size alone", "I8")
def _cache_by_size() -> Any:
    """A block in one stream's quarantine is given to any stream."""
    from_quarantine = Allocator._from_quarantine

    def mutated(self: Any, size: int, stream: Any) -> Any:
        for other in list(self._ordered):
            found = from_quarantine(self, size, other)
            if found is not None:
                return found
        return None

    return replaced(Allocator, _from_quarantine=mutated)


@mutant("quarantine skipped", "I8")
def _no_quarantine() -> Any:
    """A released block is anybody's at once."""

    def mutated(self: Any, buffer: Any) -> None:
        self.ledger.live -= buffer.block.size
        self._to_cache(buffer.block)

    return replaced(Allocator, release=mutated)


@mutant("quarantine left after the first access", "I8")
def _quarantine_first_access() -> Any:
    """Of several accesses, only the first is waited for."""
    accesses = Buffer.accesses

    def mutated(self: Any) -> Any:
        return accesses(self)[:1]

    return replaced(Buffer, accesses=mutated)


@mutant("earlier life's work forgotten", "I8")
def _earlier_life_forgotten() -> Any:
    """A block taken from quarantine forgets the work that was still running on it."""
    allocate = Allocator.allocate

    def mutated(self: Any, nbytes: int, stream: Any, origin: Any = None) -> Any:
        buffer = allocate(self, nbytes, stream, origin)
        buffer.write = None
        return buffer

    return replaced(Allocator, allocate=mutated)


@mutant("posted twice", "I8")
def _posted_twice() -> Any:
    """The finalizer posts the buffer a second time."""
    arrive = Buffer.arrive

    def mutated(self: Any) -> None:
        arrive(self)
        arrive(self)

    return replaced(Buffer, arrive=mutated)


# Ledger


@mutant("cap checked and then allocated", "I10")
def _cap_then_allocate() -> Any:
    """The cap is looked at, the driver asked without the lock, and the bytes counted afterwards."""
    from outlive.runtime.buffer import Block
    from outlive.runtime.ledger import CapExceeded

    from_driver = Allocator._from_driver

    def mutated(self: Any, size: int) -> Any:
        ledger = self.ledger
        if ledger.allocated + size > ledger.cap:
            return from_driver(self, size)
        pointer, memory = self.device.allocate(size)
        try:
            ledger.reserve(size)
        except CapExceeded:
            ledger.allocated += size
            ledger.reserved += size
            ledger.blocks += 1
        ledger.settle(size)
        return Block(self, pointer, size, memory, self.mailbox.append)

    return replaced(Allocator, _from_driver=mutated)


@mutant("refund before the real release", "I10")
def _early_refund() -> Any:
    """Cached memory is refunded before the driver has it back."""
    trim = Allocator.trim

    def mutated(self: Any, nbytes: int, blocks: int) -> bool:
        held = self.ledger.cached
        self.ledger.allocated -= held
        try:
            return trim(self, nbytes, blocks)
        finally:
            self.ledger.allocated += held

    return replaced(Allocator, trim=mutated)


@mutant("refund twice", "I10")
def _double_refund() -> Any:
    """What goes back is refunded twice."""
    refund = Ledger.refund

    def mutated(self: Any, nbytes: int, category: str) -> None:
        refund(self, nbytes, category)
        self.allocated -= nbytes

    return replaced(Ledger, refund=mutated)


@mutant("reservation kept after a failed allocation", "I10")
def _reservation_kept() -> Any:
    """Memory that the driver refused stays accounted for."""
    refund = Ledger.refund

    def mutated(self: Any, nbytes: int, category: str) -> None:
        if category != "reserved":
            refund(self, nbytes, category)

    return replaced(Ledger, refund=mutated)


# Transactions, errors, news


@mutant("rollback left out", "I5")
def _no_rollback() -> Any:
    """An op that raises leaves its records and what it made behind."""
    return replaced(CommandEncoder, roll_back=lambda self: None)


@mutant("donors kept after a rollback", "I5")
def _donors_kept() -> Any:
    """An op that raises keeps the buffers that it had been given."""

    def mutated(self: Any) -> None:
        del self._records[self._mark :]
        self._donors.clear()
        self._made.clear()
        self._inputs = ()

    return replaced(CommandEncoder, roll_back=mutated)


@mutant("error kept in a global", "I14")
def _global_error() -> Any:
    """Whoever reads next gets the failure of somebody else's work."""

    def mutated(node: Any) -> None:
        wait_for(node)
        for failed in runtime.failures:
            assert failed.failure is not None
            raise failed.failure.error()

    return replaced(graph_array, wait_for=mutated)


@mutant("completion commits directly", "I12")
def _completion_commits() -> Any:
    """News of completed work commit what is open, also in the middle of an op."""

    def mutated(self: Any) -> None:
        while self.mailbox:
            item = self.mailbox.popleft()
            item.arrive()
            if type(item) is not Buffer:
                self.commit_all()

    return replaced(Runtime, drain=mutated)


@mutant("notification lost", "I12")
def _news_lost() -> Any:
    """News of completed work that come in the middle of an op get lost."""

    def mutated(self: Any) -> None:
        while self.mailbox:
            item = self.mailbox.popleft()
            encoding = any(stream.encoder._inputs for stream in self.streams)
            if type(item) is Buffer or not encoding:
                item.arrive()

    return replaced(Runtime, drain=mutated)


@mutant("release lost", "I8")
def _release_lost() -> Any:
    """Of two things in the mailbox, a release gets lost."""

    def mutated(self: Any) -> None:
        while self.mailbox:
            item = self.mailbox.popleft()
            if type(item) is not Buffer or not self.mailbox:
                item.arrive()

    return replaced(Runtime, drain=mutated)


@mutant("drained without the lock", "I12")
def _drain_unlocked() -> Any:
    """A wait lets news arrive without holding the runtime's lock."""
    from outlive.backends.sim.device import SimDevice

    def mutated(self: Any, stream: Any, tick: int) -> None:
        while stream.completed < tick:
            self.scheduler.point()
            queue = self.queue(stream)
            if queue.told < tick:
                self._await_news(stream, queue, tick)
            self.runtime.drain()

    return replaced(SimDevice, wait=mutated)


# Numerics


@mutant("accumulation in half precision", "numerics")
def _half_accumulation() -> Any:
    """Sums add half-precision numbers one by one, each sum rounded as it is stored."""
    from outlive.ops.reduce import Sum

    compute = Sum.compute

    def mutated(self: Any, xp: Any, a: Any, out: Any) -> Any:
        if a.ndim != 1 or not a.size or a.dtype != xp.float32:
            return compute(self, xp, a, out)
        return xp.cumsum(a.astype(xp.float16), dtype=xp.float16)[-1]

    return replaced(Sum, compute=mutated)
