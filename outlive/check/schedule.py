"""One run of a program under one schedule, on a runtime of its own, watched by the oracles."""

from __future__ import annotations

import contextlib
import gc
import hashlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import outlive.core  # noqa: F401  (loading it calibrates donation, which must not happen inside of a schedule)
from outlive.backends.sim.arena import PATTERNS, Arena
from outlive.backends.sim.choices import Choices, Deviation
from outlive.backends.sim.device import DriverFault, SimDevice, SimMemory
from outlive.backends.sim.engine import Engine, LaunchFault
from outlive.backends.sim.fields import points_of
from outlive.backends.sim.platform import SimPlatform
from outlive.backends.sim.profiles import PROFILES, Profile
from outlive.backends.sim.scheduler import Aborted, Scheduler, Violation
from outlive.backends.sim.witness import Witness
from outlive.check.oracles import check_after_end, check_recount
from outlive.check.sequential import SequentialDevice, SequentialStreams
from outlive.check.surroundings import kept_apart
from outlive.check.threads import scheduled_threads
from outlive.check.trace import Trace
from outlive.graph.array import array
from outlive.graph.host import scalars
from outlive.graph.state import exchanged
from outlive.runtime.errors import ExecutionError, OutOfMemory, without_frames
from outlive.runtime.runtime import Runtime

Program = Callable[[], Any]

LIMIT_STEPS = 400_000
COLLECT_EVERY = 5
"""Schedules between two collections of garbage: finished schedules are cyclic."""


class Outcome(NamedTuple):
    """What a run gave: a digest of its result or the error that ended it, and what was found."""

    digest: str
    error: BaseException | None
    violation: Violation | None
    deviations: tuple[Deviation, ...]
    steps: int
    launches: int
    injected: int
    hazards: dict[str, int]
    pairs: frozenset[tuple[str, str]]
    result: Any = None


def on_host(tree: Any) -> Any:
    """A program's result with every array read: NumPy arrays in storage form, in the same nesting."""
    if type(tree) is array:
        return (str(tree.dtype), np.array(scalars(tree)))
    if isinstance(tree, (list, tuple)):
        return [on_host(item) for item in tree]
    if isinstance(tree, dict):
        return {key: on_host(tree[key]) for key in tree}
    return tree


def digest(value: Any) -> str:
    """A text that is equal for equal bits."""
    found = hashlib.blake2b(digest_size=16)

    def add(item: Any) -> None:
        if isinstance(item, np.ndarray):
            found.update(f"{item.dtype.str}{item.shape}".encode())
            found.update(np.ascontiguousarray(item).tobytes())
        elif isinstance(item, (list, tuple)):
            found.update(b"[")
            for part in item:
                add(part)
            found.update(b"]")
        elif isinstance(item, dict):
            for key, part in item.items():
                found.update(repr(key).encode())
                add(part)
        else:
            found.update(repr(item).encode())

    add(value)
    return found.hexdigest()


_arena: list[Arena] = []
_runs = [0]


def shared_arena() -> Arena:
    """The arena that all schedules of this process use in turn."""
    if not _arena:
        _arena.append(Arena())
    return _arena[0]


class World:
    """Scheduler, witness, engine and devices of one schedule."""

    def __init__(self, choices: Choices, profile: Profile, poison: int, cap: int | None, limit_steps: int) -> None:
        self.arena = shared_arena()
        self.arena.reset(poison)
        self.profile = profile
        self.scheduler = Scheduler(choices, limit_steps)
        self.witness = Witness(self.arena)
        self.engine = Engine(self.scheduler, self.witness)
        self.platform = SimPlatform(self.scheduler, cap or len(self.arena.bytes) * 3 // 4)
        self.devices: list[SimMemory] = []
        self.runtime: Runtime = None  # type: ignore[assignment]
        self.trace: Trace | None = None
        self.threads_started: list[str] = []

    def record(self) -> Trace:
        """Record a trace of the schedule."""
        self.trace = self.witness.trace = Trace(self.scheduler)
        return self.trace

    def factories(self) -> dict[str, Any]:
        def make(name: str) -> Any:
            def factory(runtime: Runtime, index: int) -> SimMemory:
                made = self._device(runtime, index, name)
                self.devices.append(made)
                return made

            return factory

        return {name: make(name) for name in ("cpu", "gpu")}

    def _device(self, runtime: Runtime, index: int, name: str) -> SimMemory:
        if self.profile.own_queue:
            from outlive.backends.sim.cpu import SimCpuDevice

            return SimCpuDevice(runtime, index, self.engine, self.arena, self.profile, name)
        return SimDevice(runtime, index, self.engine, self.arena, self.profile, name)

    @contextlib.contextmanager
    def entered(self) -> Iterator[World]:
        """The public API runs on this world inside."""
        with points_of(self.scheduler), exchanged(self.platform, self.factories()) as runtime:
            self.runtime = runtime
            if self.trace is not None:
                runtime.trace = self.trace
                runtime.mailbox.watch = self.trace.posted  # type: ignore[attr-defined]
            with kept_apart(self.platform), scheduled_threads(self.scheduler) as self.threads_started:
                try:
                    yield self
                finally:
                    self.scheduler.end()


def run_schedule(
    program: Program,
    choices: Choices,
    profile: str = "sim",
    poison: int = PATTERNS[0],
    cap: int | None = None,
    limit_steps: int = LIMIT_STEPS,
    prepare: Callable[[World], None] | None = None,
    keep_result: bool = False,
) -> Outcome:
    """Run `program` once under `choices`. Findings are in the outcome; errors of the program are too."""
    world = World(choices, PROFILES[profile], poison, cap, limit_steps)
    if prepare is not None:
        prepare(world)
    scheduler = world.scheduler
    result: Any = None
    found = ""
    error: BaseException | None = None
    with world.entered():
        try:
            scheduler.begin()
            scheduler.armed = True
            values = on_host(program())
            found = digest(values)
            result = values if keep_result else None
            del values
            scheduler.armed = False
            if not scheduler.thread_errors:
                check_recount(world)
                check_after_end(world)
        except Aborted:
            pass
        except Violation as found_late:
            scheduler._record(found_late)
        except Exception as raised:  # noqa: BLE001  (whatever a program raises is its outcome)
            error = without_frames(raised)
    _runs[0] += 1
    if _runs[0] % COLLECT_EVERY == 0:
        gc.collect()
    violation = scheduler.violation
    where = "The program"
    if error is None and scheduler.thread_errors:
        where, error = scheduler.thread_errors[0]
    faults = sum(d.kind.startswith("fail") for d in choices.deviations)
    if violation is None and error is not None and not _excused(error, faults):
        violation = Violation(
            "errors", f"{where} raised {type(error).__name__}: {error}", "an error that no fault explains"
        )
    witness = world.witness
    return Outcome(
        found, error, violation, tuple(choices.deviations), scheduler.step, witness.launches_run, faults, witness.hazards,
        frozenset(witness.pairs), result,
    )  # fmt: skip


def _excused(error: BaseException, faults: int) -> bool:
    """Whether an error is what a fault of the schedule should look like to the program."""
    if not faults:
        return False
    if isinstance(error, ExecutionError):
        return isinstance(error.__cause__, LaunchFault)
    if isinstance(error, OutOfMemory):  # whatever the driver said, what is cached must have been tried
        return "cached" not in str(error)
    return isinstance(error, DriverFault)


def run_sequentially(program: Program) -> Any:
    """The program's result by sequential NumPy evaluation, on the host. Raises what the program raises."""
    from outlive.host.machine import Machine

    factories = {name: (lambda runtime, index, name=name: SequentialDevice(runtime, name)) for name in ("cpu", "gpu")}
    machine = Machine()
    with exchanged(machine, factories) as runtime:
        runtime.new_stream = SequentialStreams(runtime)  # type: ignore[method-assign]
        with kept_apart(machine):
            return on_host(program())
