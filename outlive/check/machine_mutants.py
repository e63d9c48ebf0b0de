"""Mutants by machine: each statement of the runtime's core, deleted or negated, one at a time.

A mutant is a copy of one function with one statement changed, put in the function's place while the battery of programs runs. What no
schedule objects to is listed as a survivor: either it makes no difference, with the reason in `REASONS`, or the checker has a gap.
"""

from __future__ import annotations

import ast
import copy
import fnmatch
import inspect
import random
import textwrap
from collections.abc import Iterator, Sequence
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from outlive.backends.sim.arena import PATTERNS
from outlive.backends.sim.choices import RandomChoices
from outlive.check.explore import judge, schedule_seed
from outlive.check.mutants import replaced
from outlive.check.scenarios import Scenario, battery, battery_profile
from outlive.check.schedule import Outcome, run_schedule
from outlive.check.surroundings import exploring, limited
from outlive.check.trial import LIMIT_SCHEDULES, LIMIT_STEPS_TRIAL, expectation
from outlive.runtime import allocator, buffer, command_buffer, encoder, ledger, runtime, stream

MODULES: tuple[ModuleType, ...] = (encoder, command_buffer, ledger, allocator, stream, runtime, buffer)
"""The modules whose statements are changed: encoder, command buffer and fence, ledger, allocator, stream, mailbox, owners."""

LIMIT_SECONDS = 5
"""CPU seconds of one schedule of a change: a healthy one takes some milliseconds."""

EXCLUDED = {
    "Runtime.before_fork": "a schedule does not fork",
    "Runtime.after_fork_in_parent": "a schedule does not fork",
    "Runtime.after_fork_in_child": "a schedule does not fork",
    "Runtime.stop": "a schedule ends before the process does",
    "Ledger.install": "the cap is installed before the first array, by the machine's own tests",
    "Ledger.refusal": "words of a message",
    "Allocator.holders": "words of a message",
    "Allocator.largest": "words of a message",
    "CommandEncoder.probe": "runs once, when donation is calibrated",
    "Donation.forbid": "runs once, when donation is calibrated",
}
"""Functions that no schedule runs, and why."""


REASONS = {
    "encoder._owner:*raise*": "words for an op that breaks the encoder's contract",
    "*deleted: return None": "the function ends there, with the same None",
    "Stream.commit:*trace*": "the trace is for whoever looks at a run",
    "Allocator.sweep:*stacks.clear()*": "entries without a block are passed over",
    "Allocator.sweep:*if not queue*": "entries without a block are passed over",
    "Allocator._give_back:*memory = None*": "the block is dropped with its memory",
    "Allocator.clear_cache:*": "what is posted arrives at the next evaluation",
    "Runtime.synchronize:*self.drain()*": "what is posted arrives at the next evaluation",
    "Runtime.retire_oldest:*self.drain()*": "what is posted arrives at the next evaluation",
    "Runtime.outstanding:*": "quarantined memory is looked at too, and work in flight leaves some",
    "CommandEncoder.donated:*NEVER*": "donation is always possible where the calibration succeeds",
    "CommandEncoder.learn_pair:*": "without the short way the general way serves the op, bit for bit",
    "CommandEncoder.pair:*launch is None*": "without the short way the general way serves the op, bit for bit",
    "CommandEncoder.accept:*len(made) == 1*": "the general way finds the same owner",
    "CommandEncoder.accept:*made.pop()*": "the general way finds the same owner",
    "CommandEncoder.accept:*if self._donors*": "clearing an empty list changes nothing",
    "CommandEncoder.*_origin = origin*": "the place is for messages",
    "CommandBuffer.*self.state != *": "an assertion that healthy code never meets",
    "CommandBuffer.*raise RuntimeError*": "an assertion that healthy code never meets",
    "Ledger.reserve:*attempted*": "remembered for the installation of a cap, which no schedule does",
    "allocator.size_class:*": "another rounding of sizes, as good as this one",
    "Allocator.*LARGE*": "the list of large buffers is for messages",
    "Allocator.*self.large*": "the list of large buffers is for messages",
    "Allocator.release:*LIMIT_QUEUED*": "bounds a queue of entries that hold no memory",
    "Allocator.release:*self.sweep()*": "bounds a queue of entries that hold no memory",
    "Allocator._from_driver:*excess*": "the hard cap trims where the soft limit does not",
    "Allocator._from_driver:*self.trim(ledger.allocated*": "the soft limit, never above the cap, trims first",
    "Allocator._from_driver:*continue": "the soft limit, never above the cap, trims first",
    "Allocator.trim:*": "giving back more than was asked for is slower, not wrong",
    "Allocator._give_back:*freed >= nbytes*": "giving back more than was asked for is slower, not wrong",
    "Allocator._give_back:*view = *": "the cached view dies with the block",
}
"""Survivors that make no difference a schedule could see, by pattern of their names, and why."""


def reason(name: str) -> str:
    """Why a survivor makes no difference; empty where it is a gap of the checker."""
    return next((why for pattern, why in REASONS.items() if fnmatch.fnmatchcase(name, pattern)), "")


class Change(NamedTuple):
    """One changed statement of a function: `what` was done at `line` of the module."""

    owner: Any
    function: str
    line: int
    what: str
    text: str
    mutated: FunctionType

    @property
    def name(self) -> str:
        where = self.owner.__name__.rsplit(".", 1)[-1]
        return f"{where}.{self.function}:{self.line} {self.what}: {self.text}"


def _functions(module: ModuleType) -> Iterator[tuple[Any, str, FunctionType]]:
    """The functions of a module and the methods of its classes, with their owners."""
    for name, value in list(vars(module).items()):
        if inspect.isfunction(value) and value.__module__ == module.__name__:
            yield module, name, value
        elif inspect.isclass(value) and value.__module__ == module.__name__:
            for member, function in list(vars(value).items()):
                if not inspect.isfunction(function) or (member.startswith("__") and member != "__del__"):
                    continue
                if inspect.getsourcefile(function) == module.__file__ and f"{value.__name__}.{member}" not in EXCLUDED:
                    yield value, member, function


class _Changer(ast.NodeTransformer):
    """Changes the statement number `target`, counted in the order of the walk."""

    def __init__(self, target: int, negate: bool) -> None:
        self.target = target
        self.negate = negate
        self.count = -1
        self.changed: ast.stmt | None = None

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.stmt) and not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Pass, ast.Assert)):
            self.count += 1
            if self.count == self.target:
                return self._change(node)
        return self.generic_visit(node)

    def _change(self, node: ast.stmt) -> Any:
        if self.negate:
            if not isinstance(node, (ast.If, ast.While)):
                return node
            self.changed = copy.deepcopy(node)
            node.test = ast.UnaryOp(ast.Not(), node.test)
            return node
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return node  # a line of documentation
        self.changed = node
        return ast.copy_location(ast.Pass(), node)


def _statements(tree: ast.FunctionDef) -> int:
    counter = _Changer(-2, negate=False)
    counter.visit(copy.deepcopy(tree))
    return counter.count + 1


def _compiled(tree: ast.FunctionDef, function: FunctionType, first_line: int) -> FunctionType:
    module = ast.Module([tree], [])
    ast.fix_missing_locations(module)
    ast.increment_lineno(module, first_line - 1)
    space: dict[str, Any] = {}
    exec(
        compile(module, inspect.getfile(function), "exec", flags=_FUTURE, dont_inherit=True),
        function.__globals__,
        space,
    )
    made = space[function.__name__]
    made.__qualname__ = function.__qualname__
    return made


_FUTURE = __import__("__future__").annotations.compiler_flag


def changes(modules: Sequence[ModuleType] = MODULES) -> Iterator[Change]:
    """Every change of every function of the modules."""
    for module in modules:
        for owner, name, function in _functions(module):
            lines, first_line = inspect.getsourcelines(function)
            tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
            if not isinstance(tree, ast.FunctionDef) or tree.decorator_list:
                continue
            for target in range(_statements(tree)):
                for negate in (False, True):
                    changed = copy.deepcopy(tree)
                    changer = _Changer(target, negate)
                    changer.visit(changed)
                    if changer.changed is None:
                        continue
                    text = ast.unparse(changer.changed).splitlines()[0]
                    line = first_line + changer.changed.lineno - 1
                    what = "negated" if negate else "deleted"
                    yield Change(owner, name, line, what, text, _compiled(changed, function, first_line))


def survives(change: Change, seed: int = 1, limit: int = LIMIT_SCHEDULES) -> bool:
    """Whether no schedule of the battery objects to a change."""
    for index in range(limit):
        scenario = battery(index)
        expected = expectation(index, scenario)
        choices = RandomChoices(schedule_seed(seed, index), scenario.faults)
        with replaced(change.owner, **{change.function: change.mutated}):
            outcome = _run(scenario, choices, battery_profile(index), PATTERNS[index % len(PATTERNS)])
        if outcome is None:
            return False
        if judge(outcome, expected) is not None:
            return False
    return True


def _run(scenario: Scenario, choices: RandomChoices, profile: str, poison: int) -> Outcome | None:
    """The outcome of a schedule of a changed runtime; None where it broke the checker's own frame, or took too long there."""
    try:
        with limited(LIMIT_SECONDS, "cpu"):
            return run_schedule(
                scenario.program, choices, poison=poison, cap=scenario.cap, limit_steps=LIMIT_STEPS_TRIAL
            )
    except Exception:  # noqa: BLE001  (raised while the schedule was set up or ended: seen, so killed)
        return None


class Tally(NamedTuple):
    """How many changes were tried, and the names of those that survived."""

    tried: int
    survivors: list[str]

    @property
    def gaps(self) -> list[str]:
        """Survivors without a reason."""
        return [name for name in self.survivors if not reason(name)]

    @property
    def killed_share(self) -> float:
        """The share that was killed of those that make a difference."""
        alike = len(self.survivors) - len(self.gaps)
        return 1 - len(self.gaps) / (self.tried - alike) if self.tried > alike else 1.0


def try_changes(sample: int | None = None, seed: int = 1, tell: Any = lambda change, survived: None) -> Tally:
    """Try all changes, or a `sample` of them drawn from `seed`."""
    found = list(changes())
    if sample is not None:
        found = random.Random(seed).sample(found, min(sample, len(found)))
    survivors = []
    with exploring():
        for change in found:
            survived = survives(change, seed)
            tell(change, survived)
            if survived:
                survivors.append(change.name)
    return Tally(len(found), survivors)
