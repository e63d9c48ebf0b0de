"""The exhaustive explorer: every schedule of a tiny program with a bounded number of preemptions, counted.

A schedule is a path of decisions: before each lock another thread may go on, as long as preemptions are left; where the host looks at its
mailbox, each stream's next completion may have become news, or not; where the running thread waits, whoever can go on is tried in turn.
Depth first, by running the program once for each path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from outlive.backends.sim.arena import PATTERNS
from outlive.backends.sim.choices import FOREVER, Action, Deviation
from outlive.check.explore import Finding, expect, judge
from outlive.check.schedule import LIMIT_STEPS, Program, World, run_schedule
from outlive.check.surroundings import exploring

LIMIT_SCHEDULES = 200_000


class PathChoices:
    """Follows a path of choices, takes the first option beyond its end, and notes how many options there were."""

    def __init__(self, path: Sequence[int], preemptions: int) -> None:
        self._path = path
        self._left = preemptions
        self.taken: list[int] = []
        self.widths: list[int] = []
        self.deviations: list[Deviation] = []

    def _choose(self, width: int) -> int:
        at = len(self.taken)
        chosen = self._path[at] if at < len(self._path) else 0
        self.taken.append(chosen)
        self.widths.append(width)
        return chosen

    def gap(self, step: int) -> int:
        return FOREVER

    def interrupt(self, step: int, options: Sequence[Action]) -> Action | None:
        useful = [o for o in options if o.kind == "news" or (o.kind == "run" and self._left)]
        if not useful:
            return None
        chosen = self._choose(1 + len(useful))
        if not chosen:
            return None
        action = useful[chosen - 1]
        self._left -= action.kind == "run"
        self.deviations.append(Deviation(step, *action))
        return action

    def next(self, step: int, options: Sequence[Action]) -> Action:
        if len(options) == 1:
            return options[0]
        chosen = self._choose(len(options))
        if chosen:
            self.deviations.append(Deviation(step, *options[chosen]))
        return options[chosen]

    def fault(self, step: int, kind: str, subject: int) -> bool:
        return False


@dataclass
class Exhausted:
    """What an exhaustive exploration did. `complete`: every schedule within the bound was run."""

    preemptions: int
    schedules: int = 0
    complete: bool = False
    longest: int = 0
    results: set[str] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)

    def __str__(self) -> str:
        how = "all" if self.complete else "only the first"
        return (
            f"{how} {self.schedules:,} schedules with at most {self.preemptions} preemptions were run (the longest has {self.longest} "
            f"decisions): {len(self.findings)} findings, {len(self.results)} different results"
        )


def exhaust(
    program: Program, *, preemptions: int = 1, profile: str = "sim", limit: int = LIMIT_SCHEDULES, findings: int = 1
) -> Exhausted:
    """Run every schedule of `program` with at most `preemptions` preemptions, or the first `limit` of them: the result says which."""

    def coarse(world: World) -> None:
        world.scheduler.coarse = world.engine.coarse = True

    done = Exhausted(preemptions)
    path: list[int] = []
    with exploring():
        expected = expect(program).comparable
        while done.schedules < limit:
            choices = PathChoices(path, preemptions)
            poison = PATTERNS[done.schedules % len(PATTERNS)]
            outcome = run_schedule(program, choices, profile, poison, None, LIMIT_STEPS, coarse)
            done.schedules += 1
            done.longest = max(done.longest, len(choices.taken))
            done.results.add(outcome.digest)
            violation = judge(outcome, expected)
            if violation is not None:
                done.findings.append(
                    Finding(violation, 0, done.schedules, poison, outcome.deviations, profile, outcome)
                )
                if len(done.findings) >= findings:
                    return done
            path = _following(choices.taken, choices.widths)
            if not path:
                done.complete = True
                return done
    return done


def _following(taken: list[int], widths: list[int]) -> list[int]:
    """The next path in depth-first order; empty after the last."""
    path = list(taken)
    while path and path[-1] + 1 >= widths[len(path) - 1]:
        path.pop()
    if path:
        path[-1] += 1
    return path
