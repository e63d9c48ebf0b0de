"""State machines: random use of ledger, allocator and access sets against small models that share no code with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from outlive.runtime.allocator import Allocator, size_class
from outlive.runtime.buffer import Data, Operand
from outlive.runtime.encoder import CommandEncoder
from outlive.runtime.errors import OutOfMemory, Pressure
from outlive.runtime.layout import layout
from outlive.runtime.ledger import CapExceeded, Ledger
from tests.budget import examples
from tests.runtime.manual import BYTES, KERNEL, manual_runtime

CAP = 1 << 16
SIZES = st.sampled_from([1, 63, 64, 65, 500, 4096, 5000, 20000, CAP // 2, CAP])


class LedgerMachine(RuleBasedStateMachine):
    """Reservations under way, live bytes and refunds, as several threads would interleave them."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(CAP, cap_blocks=12)
        self.pending: list[int] = []
        self.live: list[int] = []

    @rule(n=SIZES)
    def reserve(self, n: int) -> None:
        fits = sum(self.pending) + sum(self.live) + n <= CAP and len(self.pending) + len(self.live) < 12
        try:
            self.ledger.reserve(n)
        except CapExceeded:
            assert not fits, "a reservation that fits was refused"
        else:
            assert fits, "a reservation beyond the cap was granted"
            self.pending.append(n)

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def driver_gives(self, data: st.DataObject) -> None:
        n = self.pending.pop(data.draw(st.integers(0, len(self.pending) - 1)))
        self.ledger.settle(n)
        self.live.append(n)

    @precondition(lambda self: self.pending)
    @rule()
    def driver_refuses(self) -> None:
        self.ledger.refund(self.pending.pop(), "reserved")

    @precondition(lambda self: self.live)
    @rule()
    def driver_takes_back(self) -> None:
        self.ledger.refund(self.live.pop(), "live")

    @rule()
    def install_too_late(self) -> None:
        if self.ledger.attempted:
            with pytest.raises(RuntimeError, match="install"):
                self.ledger.install(CAP)

    @invariant()
    def adds_up(self) -> None:
        ledger = self.ledger
        assert (ledger.reserved, ledger.live) == (sum(self.pending), sum(self.live))
        assert ledger.allocated == ledger.reserved + ledger.live <= ledger.cap
        assert ledger.blocks == len(self.pending) + len(self.live) <= ledger.cap_blocks
        assert ledger.peak_allocated >= ledger.allocated - ledger.reserved


class Use:
    """The model's own record of a live buffer: which committed or open work of which stream touches it, by sequence number."""

    def __init__(self, data: Data) -> None:
        self.data: Data | None = data
        operand = data.operand
        assert operand is not None
        self.block = operand.buffer.block
        self.buffer = operand.buffer
        self.last: dict[int, int] = {}


class MemoryMachine(RuleBasedStateMachine):
    """Ops on three streams over shared buffers, dropped owners, completions in any order of streams.

    The model numbers each op of a stream. What it knows of a block: the ops that touched it, also in earlier lives. A block may be given
    out for stream S while only ops of S that are not complete touch it, and for the host when none does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.runtime, self.device = manual_runtime(cap=CAP, cap_blocks=24)
        self.streams = [self.runtime.new_stream(self.device) for _ in range(3)]
        self.issued = [0, 0, 0]
        self.committed_ops: list[dict[int, int]] = [{}, {}, {}]
        self.live: list[Use] = []
        self.touched: dict[int, dict[int, int]] = {}

    def _complete_ops(self, s: int) -> int:
        """The number of the last op of stream `s` that is known to be over."""
        stream = self.streams[s]
        return max((n for tick, n in self.committed_ops[s].items() if tick <= stream.completed), default=0)

    def _commit(self, s: int) -> None:
        with self.runtime.lock:
            self.streams[s].commit()
        self._note_commits()

    def _note_commits(self) -> None:
        for s, stream in enumerate(self.streams):
            if not stream.encoder.command_buffer.records and stream.committed:
                self.committed_ops[s].setdefault(stream.committed, self.issued[s])

    def _check_fresh(self, block: Any, s: int | None) -> None:
        assert block not in [u.block for u in self.live], "a live buffer's block was given out"
        for other, n in self.touched.get(id(block), {}).items():
            if other != s:
                assert n <= self._complete_ops(other), (
                    "a block was given out before the work of another stream on it was complete"
                )

    @rule(s=st.integers(0, 2), n=SIZES, data=st.data())
    def op(self, s: int, n: int, data: st.DataObject) -> None:
        """An op on stream `s` that reads some live buffers and makes one."""
        chosen = data.draw(st.lists(st.sampled_from(self.live), max_size=2, unique_by=id)) if self.live else []
        stream = self.streams[s]
        encoder = stream.encoder
        with self.runtime.lock:
            encoder.begin((), None)
            try:
                out = encoder.output(layout((n,), BYTES), donate=False)
                temporary = encoder.temporary(64, BYTES)
                block = out.buffer.block
                for made in (block, temporary.buffer.block):
                    self._check_fresh(made, s)
                encoder.dispatch(KERNEL, tuple(u.data.operand for u in chosen), (out, temporary))
            except (Pressure, OutOfMemory):
                encoder.roll_back()
                return
            owner = encoder.accept(out)
        self._note_commits()
        self.issued[s] += 1
        self.live.append(Use(owner))
        for touched in [block, temporary.buffer.block] + [u.block for u in chosen]:
            self.touched.setdefault(id(touched), {})[s] = self.issued[s]
        self._check_waits(s, chosen)

    def _check_waits(self, s: int, chosen: list[Use]) -> None:
        waits = self.streams[s].encoder.command_buffer.waits
        for use in chosen:
            for other, n in use.last.items():
                if other != s and n > self._complete_ops(other):
                    tick = waits.get(self.streams[other], 0)
                    covered = max((k for t, k in self.committed_ops[other].items() if t <= tick), default=0)
                    assert covered >= n, "a read does not wait for the write of another stream"
        self.live[-1].last = {s: self.issued[s]}

    @precondition(lambda self: self.live)
    @rule(s=st.integers(0, 2), data=st.data())
    def write_in_place(self, s: int, data: st.DataObject) -> None:
        """An op on stream `s` that overwrites a live buffer: it must wait for readers and writers of other streams."""
        use = data.draw(st.sampled_from(self.live))
        encoder = self.streams[s].encoder
        with self.runtime.lock:
            encoder.begin((), None)
            operand = Operand(use.buffer, layout((1,), BYTES))
            encoder.dispatch(KERNEL, (), (operand,))
            encoder.accept(())
        self._note_commits()
        waits = encoder.command_buffer.waits
        self.issued[s] += 1
        for other, n in self.touched.get(id(use.block), {}).items():
            if other != s and n > self._complete_ops(other):
                tick = waits.get(self.streams[other], 0)
                covered = max((k for t, k in self.committed_ops[other].items() if t <= tick), default=0)
                assert covered >= n, "a write does not wait for the accesses of another stream"
        # This write comes after all of them: who comes after the write comes after them too.
        self.touched[id(use.block)] = {s: self.issued[s]}
        use.last = {s: self.issued[s]}

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        use = self.live.pop(data.draw(st.integers(0, len(self.live) - 1)))
        use.data = None

    @rule(n=SIZES)
    def allocate_for_host(self, n: int) -> None:
        with self.runtime.lock:
            try:
                buffer = self.device.allocator.allocate(n, None)
            except (Pressure, OutOfMemory):
                return
            self._check_fresh(buffer.block, None)
            self.live.append(Use(Data(Operand(buffer, layout((n,), BYTES)))))

    @rule(s=st.integers(0, 2))
    def commit(self, s: int) -> None:
        self._commit(s)

    @rule(s=st.integers(0, 2))
    def complete(self, s: int) -> None:
        self.device.complete_one(self.streams[s])

    @rule()
    def refuse_next(self) -> None:
        self.device.refuse_next = True

    @rule()
    def trim(self) -> None:
        with self.runtime.lock:
            before = set(self.device.given)
            self.device.allocator.clear_cache()
            gone = before - set(self.device.given)
        for use in self.live:
            assert use.block.pointer not in gone, "a live buffer went back to the driver"

    @invariant()
    def ledger_recounts(self) -> None:
        ledger = self.device.ledger
        with self.runtime.lock:
            self.runtime.drain()
        live = sum(u.block.size for u in self.live)
        assert ledger.live == live, "the ledger's live bytes are not the owned ones"
        given = sum(self.device.given.values())
        assert ledger.live + ledger.quarantined + ledger.cached == given == ledger.allocated <= ledger.cap
        assert ledger.reserved == 0
        assert ledger.blocks == len(self.device.given) <= ledger.cap_blocks

    def teardown(self) -> None:
        """Once all work is over nothing stays quarantined."""
        for s in range(3):
            self._commit(s)
        for stream in self.streams:
            while self.device.complete_one(stream):
                pass
        with self.runtime.lock:
            self.device.allocator.sweep()
        assert self.device.ledger.quarantined == 0


CHECKS = settings(max_examples=examples(500), stateful_step_count=20, deadline=None)


def test_ledger_never_passes_its_cap_and_adds_up():
    run_state_machine_as_test(LedgerMachine, settings=CHECKS)


def test_allocator_and_access_sets_keep_buffers_until_their_work_is_over():
    run_state_machine_as_test(MemoryMachine, settings=CHECKS)


def _cap_checked_then_allocated(monkeypatch: pytest.MonkeyPatch) -> type[RuleBasedStateMachine]:
    def reserve(self: Ledger, nbytes: int) -> None:
        self.attempted = True
        if self.live + nbytes > self.cap or self.blocks >= self.cap_blocks:
            raise CapExceeded
        self.allocated += nbytes
        self.reserved += nbytes
        self.blocks += 1

    monkeypatch.setattr(Ledger, "reserve", reserve)
    return LedgerMachine


def _cache_by_size_alone(monkeypatch: pytest.MonkeyPatch) -> type[RuleBasedStateMachine]:
    take = Allocator._from_quarantine

    def any_stream(self: Allocator, size: int, stream: Any) -> Any:
        return next((found for s in list(self._ordered) if (found := take(self, size, s))), None)

    monkeypatch.setattr(Allocator, "_from_quarantine", any_stream)
    return MemoryMachine


def _earlier_life_forgotten(monkeypatch: pytest.MonkeyPatch) -> type[RuleBasedStateMachine]:
    allocate = Allocator.allocate

    def forgetful(self: Allocator, nbytes: int, stream: Any, origin: Any = None) -> Any:
        buffer = allocate(self, nbytes, stream, origin)
        buffer.write = None
        return buffer

    monkeypatch.setattr(Allocator, "allocate", forgetful)
    return MemoryMachine


def _quarantine_skipped(monkeypatch: pytest.MonkeyPatch) -> type[RuleBasedStateMachine]:
    def release(self: Allocator, buffer: Any) -> None:
        self.ledger.live -= buffer.block.size
        self._to_cache(buffer.block)

    monkeypatch.setattr(Allocator, "release", release)
    return MemoryMachine


def _read_after_write_wait_missing(monkeypatch: pytest.MonkeyPatch) -> type[RuleBasedStateMachine]:
    def enter_read(self: CommandEncoder, buffer: Any, command_buffer: Any) -> None:
        buffer.reads = command_buffer

    monkeypatch.setattr(CommandEncoder, "_enter_read", enter_read)
    return MemoryMachine


def _write_after_read_wait_missing(monkeypatch: pytest.MonkeyPatch) -> type[RuleBasedStateMachine]:
    def enter_write(self: CommandEncoder, buffer: Any, command_buffer: Any) -> None:
        if buffer.write is not None and not buffer.write.done:
            self._wait_for(buffer.write)
        buffer.write, buffer.reads = command_buffer, None

    monkeypatch.setattr(CommandEncoder, "_enter_write", enter_write)
    return MemoryMachine


@pytest.mark.parametrize(
    "fault",
    [
        _cap_checked_then_allocated, _cache_by_size_alone, _earlier_life_forgotten, _quarantine_skipped, _read_after_write_wait_missing,
        _write_after_read_wait_missing,
    ],
)  # fmt: skip
def test_state_machines_catch_the_fault(
    fault: Callable[[Any], type[RuleBasedStateMachine]], monkeypatch: pytest.MonkeyPatch
):
    machine = fault(monkeypatch)
    with pytest.raises((AssertionError, BaseExceptionGroup)):
        run_state_machine_as_test(
            machine, settings=settings(CHECKS, max_examples=examples(5000), phases=[Phase.generate])
        )


@pytest.mark.parametrize("n", [0, 1, 64, 65, 4096, 4097, 5000, 1 << 20, (1 << 20) + 1, 3_000_000_001])
def test_size_classes_hold_the_request_and_waste_at_most_an_eighth(n: int):
    size = size_class(n)
    assert size >= n
    assert size % 64 == 0
    assert size <= max(64, n + 63, n * 9 // 8)
    assert size_class(size) == size
