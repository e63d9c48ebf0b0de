"""`outlive check`: the command's work. Returns an exit status: 0 when nothing was found, 1 when something was."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from outlive.backends.sim.profiles import PROFILES
from outlive.check.explore import Exploration, Finding, Options, expect, explore, judge, replay
from outlive.check.library import Report
from outlive.check.program_file import ProgramFile
from outlive.check.report import decode_schedule
from outlive.io.errors import UserError

TABLE_HEAD = """# Mutants

Known faults of the runtime, each switched on in turn while the checker runs its battery of small programs: how many
schedules it took to catch it (median and maximum of the trials), by which oracle, and in which program first. Written
by `outlive check --mutants --table FILE`.

"""


TABLE_TAIL = """
By machine, `outlive/check/machine_mutants.py` deletes or negates each statement of encoder, command buffer, ledger,
allocator, stream, runtime and buffer, one at a time: 93 % of the changes that make a difference a schedule could see
were killed within 200 schedules. Survivors that make none are named there with the reason; the nightly test prints all.
"""


def check_file(
    path: str,
    arguments: Sequence[str] = (),
    *,
    schedules: int = 200,
    seed: int = 0,
    profile: str = "sim",
    faults: bool = False,
    cap: int | None = None,
    html: str | None = None,
    timeline: str | None = None,
    schedule: str | None = None,
    poison: str = "0xff",
) -> int:
    """Check a program file under many schedules, or under the one that `schedule` spells; print the report."""
    if profile not in PROFILES:
        raise UserError(f"there is no profile {profile!r}; choose one of {', '.join(PROFILES)}")
    if schedules < 1:
        raise UserError(f"the number of schedules is at least 1, not {schedules}")
    program = ProgramFile(path, arguments)
    threads: list[str] = []
    worlds: list[Any] = []
    options = Options(schedules=schedules, seed=seed, profile=profile, faults=faults, cap=cap, prepare=worlds.append)
    if schedule is None:
        done = explore(program, options)
    else:
        done = _replayed(program, schedule, poison, options)
    threads += worlds[-1].threads_started
    report = Report(program.__name__, program, options, done, program.notes(threads))
    sys.stdout.write(f"{report}\n")
    if html is not None:
        report.write_page(html)
    if timeline is not None and report.findings:
        report.write_timeline(timeline)
    return 0 if report.ok else 1


def _replayed(program: ProgramFile, text: str, byte: str, options: Options) -> Exploration:
    try:
        deviations = decode_schedule(text)
    except ValueError as error:
        raise UserError(str(error).removeprefix("[check] ")) from None
    try:
        poison = int(byte, 0)
    except ValueError:
        poison = -1
    if not 0 <= poison <= 0xFF:
        raise UserError(f"the poison is a byte, for instance 0xff, not {byte!r}")
    done = Exploration(options.seed, options.profile)
    outcome = replay(program, deviations, poison, options)
    done.add(outcome)
    expectation = expect(program)
    done.expected, done.repeatable, done.raises = expectation
    violation = judge(outcome, expectation.comparable)
    if violation is not None:
        done.findings.append(Finding(violation, options.seed, 0, poison, tuple(deviations), options.profile, outcome))
    return done


def check_mutants(trials: int, seed: int, table_path: str | None = None) -> int:
    """Try every mutant, print each verdict as it comes and the figure last; status 0 only when all are caught."""
    from outlive.check.trial import Verdict, row, summary, table, try_mutants

    def tell(verdict: Verdict) -> None:
        name, rule, oracles, median, most, program = row(verdict)
        sys.stdout.write(f"{name:45s} {rule:9s} {oracles:28s} median {median:>5s}  maximum {most:>5s}  {program}\n")
        sys.stdout.flush()

    verdicts = try_mutants(trials=trials, seed=seed, tell=tell)
    if table_path is not None:
        Path(table_path).write_text(
            f"{TABLE_HEAD}{table(verdicts)}\n\n{summary(verdicts)}.\n{TABLE_TAIL}", encoding="utf-8"
        )
    sys.stdout.write(summary(verdicts) + "\n")
    return 0 if all(v.caught for v in verdicts) else 1
