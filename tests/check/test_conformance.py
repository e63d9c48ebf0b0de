"""Every device passes the conformance suite, and the suite finds devices that do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from outlive.backends.cpu.device import CpuDevice
from outlive.backends.sim.choices import RandomChoices
from outlive.backends.sim.profiles import PROFILES
from outlive.check import conformance
from outlive.check.conformance import CHECKS, Bench, Nonconformance
from outlive.check.schedule import run_schedule
from outlive.check.surroundings import exploring
from outlive.graph import state
from outlive.runtime.stream import Stream


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_the_cpu_device_conforms(check: Callable[[Bench], None]) -> None:
    bench = Bench(CpuDevice)
    check(bench)
    bench.end()


@pytest.mark.parametrize("profile", sorted(PROFILES))
@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_every_profile_conforms_under_every_schedule_tried(check: Callable[[Bench], None], profile: str) -> None:
    def program() -> None:
        check(Bench.of(state.runtime, state.backend(state.Device(state.gpu))))

    with exploring():
        for seed in range(10):
            outcome = run_schedule(program, RandomChoices(seed), profile)
            assert outcome.violation is None, f"seed {seed}: {outcome.violation}"


@pytest.mark.gpu
@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_the_cuda_device_conforms(check: Callable[[Bench], None]) -> None:
    from outlive.backends.cuda import open_device

    bench = Bench(lambda runtime: open_device(runtime, 0))
    check(bench)
    bench.end()


class IgnoresWaits(CpuDevice):
    """Begins command buffers before what they wait for is over."""

    def commit(self, stream: Stream, command_buffer: Any) -> None:
        command_buffer.waits.clear()
        super().commit(stream, command_buffer)

    def wait(self, stream: Stream, tick: int) -> None:
        for other in reversed(self.runtime.streams):
            super().wait(other, other.committed)


class LosesFailures(CpuDevice):
    """Forgets what a failed kernel should have written."""

    def _mark(self, writes: Any, failure: Any) -> None:
        pass


class KeepsMemory(CpuDevice):
    """Forgets to complete the ledger: releases nothing that it allocated."""

    def allocate(self, size: int) -> Any:
        self.ledger.live += 1
        return super().allocate(size)


class NeverStarts(CpuDevice):
    """Work goes on only when somebody waits."""

    def start(self, stream: Stream) -> None:
        pass


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (IgnoresWaits, "streams_wait_for_each_other"),
        (LosesFailures, "failures_stay_with_their_arrays"),
        (KeepsMemory, "memory_comes_back"),
    ],
)
def test_the_suite_names_the_rule_that_a_device_breaks(broken: type, check: str) -> None:
    with pytest.raises(Nonconformance, match=check):
        conformance.run(broken)


def test_the_suite_finds_a_device_that_never_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(NeverStarts)
    clock = iter(range(0, 1 << 62, 6_000_000_000))
    monkeypatch.setattr(bench.runtime.platform, "now_ns", lambda: next(clock))
    with pytest.raises(Nonconformance, match="had not ended"):
        conformance.work_goes_on_by_itself(bench)
    bench.end()
