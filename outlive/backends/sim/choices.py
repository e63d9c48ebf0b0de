"""Where a schedule's decisions come from: a seed, a recorded list, or an explorer. Each decision that is not the default is recorded.

A schedule is the list of its deviations (step, kind, subject). The default is: the running thread goes on; where it waits, the first
runnable thread goes on; where all wait, the device takes its first possible step. So the empty list is a schedule too, and removing a
deviation from a list leaves a schedule: the shrinker needs no more than that.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple, Protocol

FOREVER = 1 << 60


class Action(NamedTuple):
    """What can happen next: its kind, and the number of the thread, stream or notice that it happens to."""

    kind: str
    subject: int


NOTHING = Action("nothing", 0)


class Deviation(NamedTuple):
    """A decision other than the default, at a step of the schedule."""

    step: int
    kind: str
    subject: int


class Choices(Protocol):
    """Decides. `deviations` is what was decided against the default so far."""

    deviations: list[Deviation]

    def gap(self, step: int) -> int:
        """Steps until the next point at which something may happen."""

    def interrupt(self, step: int, options: Sequence[Action]) -> Action | None:
        """What happens at a point, None for nothing."""

    def next(self, step: int, options: Sequence[Action]) -> Action:
        """Who goes on where the running thread cannot; `options[0]` is the default."""

    def fault(self, step: int, kind: str, subject: int) -> bool:
        """Whether a call fails."""


class Swarm(NamedTuple):
    """The options of one random schedule, themselves drawn from its seed.

    `gap`: mean number of points between two interruptions. `weights`: how often each kind of action is taken where several are possible.
    `bias`: how often each stream goes on, so that some streams starve. `faults`: probability of failure by kind of call. `limit_faults`:
    faults in all, so that every schedule has an end without them.
    """

    gap: float
    weights: dict[str, float]
    bias: tuple[float, ...]
    faults: dict[str, float]
    limit_faults: int


GAPS = (3.0, 10.0, 30.0, 100.0, 400.0)
WEIGHTS = (0.02, 0.2, 1.0, 5.0)
KINDS = ("run", "execute", "notify", "repeat", "spurious", "collect")
STREAMS_BIASED = 8


def draw_swarm(rng: random.Random, faults: bool) -> Swarm:
    """Options for one schedule."""
    weights = {kind: rng.choice(WEIGHTS) for kind in KINDS}
    weights["repeat"] *= 0.2
    weights["spurious"] *= 0.2
    weights["collect"] *= 0.002
    weights["nothing"] = 0.3
    weights["timeout"] = 0.01
    rates = {}
    if faults and rng.random() < 0.4:
        rates["allocate"] = rng.choice((0.0, 0.02, 0.1))
        rates["launch"] = rng.choice((0.0, 0.0, 0.05))
    return Swarm(
        gap=rng.choice(GAPS),
        weights=weights,
        bias=tuple(rng.choice(WEIGHTS) for _ in range(STREAMS_BIASED)),
        faults=rates,
        limit_faults=rng.choice((1, 3, 10)),
    )


class RandomChoices:
    """Decisions from a seed. The generator is Python's Mersenne Twister, whose numbers are the same everywhere."""

    def __init__(self, seed: int, faults: bool = False) -> None:
        self._rng = random.Random(seed)
        self.swarm = draw_swarm(self._rng, faults)
        self.deviations: list[Deviation] = []
        self._faults_left = self.swarm.limit_faults

    def gap(self, step: int) -> int:
        return 1 + int(self._rng.expovariate(1.0) * self.swarm.gap)

    def _weigh(self, options: Sequence[Action]) -> Action:
        swarm = self.swarm
        weights = []
        for kind, subject in options:
            weight = swarm.weights.get(kind, 1.0)
            if kind in ("execute", "notify"):
                weight *= swarm.bias[subject % STREAMS_BIASED]
            weights.append(weight)
        at = self._rng.random() * sum(weights)
        for option, weight in zip(options, weights, strict=True):
            at -= weight
            if at < 0:
                return option
        return options[-1]

    def interrupt(self, step: int, options: Sequence[Action]) -> Action | None:
        if not options:
            return None
        chosen = self._weigh([*options, NOTHING])
        if chosen is NOTHING:
            return None
        self.deviations.append(Deviation(step, *chosen))
        return chosen

    def next(self, step: int, options: Sequence[Action]) -> Action:
        if len(options) == 1:
            return options[0]
        chosen = self._weigh(options)
        if chosen != options[0]:
            self.deviations.append(Deviation(step, *chosen))
        return chosen

    def fault(self, step: int, kind: str, subject: int) -> bool:
        rate = self.swarm.faults.get(kind)
        if not rate or not self._faults_left or self._rng.random() >= rate:
            return False
        self._faults_left -= 1
        self.deviations.append(Deviation(step, f"fail {kind}", subject))
        return True


class RecordedChoices:
    """Replays deviations; one that is not possible where it stands is passed over (a shrunk schedule has such)."""

    def __init__(self, deviations: Sequence[Deviation]) -> None:
        self._plan = sorted(deviations, key=lambda d: d.step)
        self._at = 0
        self.deviations: list[Deviation] = []

    def _due(self, step: int) -> Deviation | None:
        """The first recorded decision of this step, if there is one left."""
        plan = self._plan
        while self._at < len(plan) and plan[self._at].step < step:
            self._at += 1
        if self._at < len(plan) and plan[self._at].step == step:
            return plan[self._at]
        return None

    def _take(self, due: Deviation) -> Action:
        self._at += 1
        self.deviations.append(due)
        return Action(due.kind, due.subject)

    def gap(self, step: int) -> int:
        plan = self._plan
        at = self._at
        while at < len(plan) and plan[at].step <= step:
            at += 1
        return plan[at].step - step if at < len(plan) else FOREVER

    def interrupt(self, step: int, options: Sequence[Action]) -> Action | None:
        due = self._due(step)
        if due is None or (due.kind, due.subject) not in options:
            return None
        return self._take(due)

    def next(self, step: int, options: Sequence[Action]) -> Action:
        due = self._due(step)
        if due is None or (due.kind, due.subject) not in options:
            return options[0]
        return self._take(due)

    def fault(self, step: int, kind: str, subject: int) -> bool:
        due = self._due(step)
        if due is None or due.kind != f"fail {kind}":
            return False
        self._take(due)
        return True
