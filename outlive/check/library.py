"""`check.program`: explore a function of the program's own, and say what was found and what was explored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from outlive.backends.sim.profiles import PROFILES
from outlive.check.explore import Exploration, Finding, Options, explore, replay
from outlive.check.page import page, perfetto
from outlive.check.report import coverage_text, encode_schedule, finding_text
from outlive.check.trace import Trace


class Report:
    """What a check found and explored. `ok`: nothing was found in the schedules that were tried."""

    def __init__(
        self, name: str, program: Callable[[], Any], options: Options, done: Exploration, notes: list[str] | None = None
    ) -> None:
        self.name = name
        self.program = program
        self.options = options
        self.exploration = done
        self.notes = notes or []
        self._traces: dict[int, Trace] = {}

    @property
    def ok(self) -> bool:
        return not self.exploration.findings

    @property
    def findings(self) -> list[Finding]:
        return self.exploration.findings

    def trace(self, finding: Finding) -> Trace:
        """The trace of a finding's schedule, by running it once more."""
        key = id(finding)
        if key not in self._traces:
            found: list[Trace] = []
            prepare = self.options.prepare

            def recording(world: Any) -> None:
                if prepare is not None:
                    prepare(world)
                found.append(world.record())

            replay(self.program, finding.deviations, finding.poison, replace(self.options, prepare=recording))
            self._traces[key] = found[0]
        return self._traces[key]

    def replay_command(self, finding: Finding) -> str:
        """The command line that shows a finding again."""
        schedule = encode_schedule(finding.deviations)
        path = getattr(self.program, "path", self.name)
        given = getattr(self.program, "arguments", [])
        arguments = " ".join(["", "--", *given]) if given else ""
        return f"outlive check {path} --profile {finding.profile} --poison {finding.poison:#x} --replay '{schedule}'{arguments}"

    def __str__(self) -> str:
        parts = [finding_text(f, self.trace(f), self.replay_command(f)) for f in self.findings]
        if not parts:
            parts.append("Nothing was found.")
        return "\n\n".join([*parts, "\n".join([coverage_text(self.exploration), *self.notes])])

    def write_page(self, path: str | Path) -> None:
        """Write the report as one HTML file."""
        findings = [(f, self.trace(f), self.replay_command(f)) for f in self.findings]
        Path(path).write_text(page(f"outlive check {self.name}", self.exploration, findings), encoding="utf-8")

    def write_timeline(self, path: str | Path) -> None:
        """Write the first finding's trace for Perfetto. Raises ValueError where nothing was found."""
        if not self.findings:
            raise ValueError("[check] There is no finding, so there is no trace to write.")
        Path(path).write_text(perfetto(self.trace(self.findings[0])), encoding="utf-8")


def program(
    fn: Callable[[], Any],
    *,
    schedules: int = 200,
    seed: int = 0,
    profile: str = "sim",
    faults: bool = False,
    cap: int | None = None,
) -> Report:
    """Run `fn` under many schedules of the simulated device.

    `fn` takes no arguments and returns arrays (in any nesting of lists, tuples and dicts): their bits are compared with a sequential
    evaluation. It is called once for each schedule, so it must do the same each time. Arrays from outside are read, not written, and must
    be computed already. `profile`: whose rules the device follows, one of `check.PROFILES`. `faults`: let allocations and launches fail
    now and then. `cap`: bytes that each device may take.

    Raises ValueError for an unknown profile or a number of schedules below 1.
    """
    if profile not in PROFILES:
        raise ValueError(f"[check] There is no profile {profile!r}; choose one of {', '.join(PROFILES)}.")
    if schedules < 1:
        raise ValueError(f"[check] The number of schedules is at least 1; got {schedules}.")
    options = Options(schedules=schedules, seed=seed, profile=profile, faults=faults, cap=cap)
    return Report(getattr(fn, "__name__", "program"), fn, options, explore(fn, options))
