"""`check.kernel`: one bare Triton or Numba kernel, without arrays of ours, in child processes with guarded memory.

A Triton kernel runs in Triton's interpreter: every masked load and store is checked against the operands, and its programs run forwards,
backwards and shuffled. Native code (Numba) runs with each operand flush against inaccessible pages, once at its end and once at its
beginning. Both run with two poisons in fresh outputs and beside every operand: a result bit that depends on the poison is a finding.
"""

from __future__ import annotations

import inspect
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from outlive.backends.sim.arena import PATTERNS

LIMIT_SECONDS = 120
CRASHES = {-signal.SIGSEGV: "SIGSEGV", -signal.SIGBUS: "SIGBUS"}
ORDERS = ("forwards", "backwards", "shuffled")
PLACEMENTS = ("end", "begin")


class Out(NamedTuple):
    """An operand that the kernel makes: `shape` and NumPy `dtype`. Its memory holds poison before the kernel runs."""

    shape: tuple[int, ...]
    dtype: Any


@dataclass
class Job:
    """What a child process does. `guarded`: the operand that lies at inaccessible pages, -1 for all of them."""

    module: str
    file: str
    name: str
    path: list[str]
    triton: bool
    grid: tuple[int, ...]
    operands: list[Any]
    constants: dict[str, Any]
    poison: int = PATTERNS[0]
    placement: str = "end"
    order: str = "forwards"
    guarded: int = -1


@dataclass
class KernelReport:
    """What was found about a kernel. `results`: its outputs, in the order of the `Out` operands, of the first run."""

    name: str
    runs: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    results: list[np.ndarray] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        said = "\n".join(f"[{self.name}] {finding}" for finding in self.findings) or f"[{self.name}] Nothing was found."
        return f"{said}\n{len(self.runs)} runs: {', '.join(self.runs)}. Other sizes and values were not tried."


def _located(fn: Any) -> tuple[Callable[..., Any], bool]:
    """The Python function behind a kernel, and whether it is Triton's."""
    kind = type(fn).__module__
    if kind.startswith("triton."):
        return fn.fn, True
    return getattr(fn, "py_func", fn), False


def _job(fn: Any, grid: Sequence[int] | None, operands: Sequence[Any], constants: dict[str, Any]) -> Job:
    function, triton = _located(fn)
    file = inspect.getsourcefile(function)
    if file is None or function.__qualname__ != function.__name__ or file.startswith("<"):
        raise ValueError(
            f"[check] The kernel {function.__qualname__} cannot be found by a child process; define it at the top level of a Python file."
        )
    if triton and not grid:
        raise ValueError("[check] A Triton kernel needs its grid: one to three numbers of programs.")
    module = "" if function.__module__ == "__main__" else function.__module__
    return Job(
        module,
        os.path.abspath(file),
        function.__name__,
        list(sys.path),
        triton,
        tuple(grid or ()),
        list(operands),
        constants,
    )


def kernel(
    fn: Any,
    grid: Sequence[int] | None,
    operands: Sequence[Any],
    *,
    constants: dict[str, Any] | None = None,
    expected: Sequence[np.ndarray] | None = None,
    timeout_s: float = LIMIT_SECONDS,
) -> KernelReport:
    """Check a kernel that stands at the top level of a Python file.

    `fn`: a `triton.jit` kernel or a Numba-compiled function (any native function that takes NumPy arrays will do). `grid`: the number of
    programs along each axis for Triton, None otherwise. `operands`: NumPy arrays (inputs, also those updated in place), `Out(shape, dtype)`
    for what the kernel makes, and numbers. `constants`: Triton's constexpr arguments by name. `expected`: what the `Out` operands should
    hold, compared bit by bit. `timeout_s`: seconds that one run may take.

    Raises ValueError for a kernel that no child process can find, or a Triton kernel without a grid.
    """
    job = _job(fn, grid, operands, constants or {})
    report = KernelReport(job.name)
    if job.triton:
        variants = [{"order": order, "poison": poison} for order in ORDERS for poison in PATTERNS]
    else:
        variants = [{"placement": placement, "poison": poison} for placement in PLACEMENTS for poison in PATTERNS]
    seen: dict[tuple[str, ...], list[np.ndarray]] = {}
    for variant in variants:
        label = ", ".join(f"{name} {value:#x}" if name == "poison" else str(value) for name, value in variant.items())
        report.runs.append(label)
        for key, value in variant.items():
            setattr(job, key, value)
        results = _run(job, report, label, timeout_s)
        if results is None:
            return report
        seen[tuple(map(str, variant.values()))] = results
    _compare(seen, report, expected)
    return report


def _run(job: Job, report: KernelReport, label: str, timeout_s: float) -> list[np.ndarray] | None:
    """One run in a child process; None where it ended in a finding."""
    status, reply, errors = _child(job, timeout_s)
    if status is None:
        report.findings.append(f"The kernel had not ended after {timeout_s:g} s ({label}).")
    elif status in CRASHES:
        report.findings.append(f"{_blame(job, timeout_s)} ({CRASHES[status]}; {label}).")
    elif reply is None:
        report.findings.append(
            f"The kernel could not be run ({label}): {errors.strip().splitlines()[-1] if errors.strip() else status}"
        )
    elif reply[0] == "finding":
        report.findings.append(f"{reply[1]} ({label}).")
    else:
        return list(reply[1])
    return None


def _blame(job: Job, timeout_s: float) -> str:
    """Which operand a crash is about: the one that still crashes when it alone lies at inaccessible pages."""
    where = "end" if job.placement == "end" else "beginning"
    for index, operand in enumerate(job.operands):
        if isinstance(operand, (np.ndarray, Out)):
            job.guarded = index
            status, _, _ = _child(job, timeout_s)
            if status in CRASHES:
                job.guarded = -1
                return f"Operand {index} is read or written beyond its {where}"
    job.guarded = -1
    return "Memory far outside of the operands is read or written"


def _child(job: Job, timeout_s: float) -> tuple[int | None, Any, str]:
    """(exit status, reply, what it wrote to stderr) of a child process that does a job; status None when it took too long."""
    with tempfile.TemporaryDirectory(prefix="outlive-check-") as folder:
        question, answer = Path(folder, "job"), Path(folder, "reply")
        question.write_bytes(pickle.dumps(job))
        environment = {**os.environ, "TRITON_INTERPRET": "1"} if job.triton else dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, job.path))
        command = [sys.executable, "-m", "outlive.check.kernel_child", str(question), str(answer)]
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            return None, None, ""
        reply = pickle.loads(answer.read_bytes()) if answer.exists() else None
        return done.returncode, reply, done.stderr


def _bits(results: Sequence[np.ndarray]) -> list[bytes]:
    return [np.ascontiguousarray(r).tobytes() for r in results]


def _compare(
    seen: dict[tuple[str, ...], list[np.ndarray]], report: KernelReport, expected: Sequence[np.ndarray] | None
) -> None:
    """Bits of all runs: equal under both poisons; under every order of programs; equal to what is expected."""
    first_key, first = next(iter(seen.items()))
    report.results = first
    for key, results in seen.items():
        twin = seen[key[0], first_key[1]]
        if _bits(results) != _bits(twin):
            report.findings.append(
                f"The result depends on what memory held before ({key[0]}): something is read that was never written, or beside an operand."
            )
            return
        if key[0] in ORDERS and _bits(results) != _bits(first):
            report.findings.append(
                f"The result depends on the order of the programs ({key[0]}): they write to the same place."
            )
            return
    if expected is not None and _bits(first) != _bits(expected):
        wrong = [i for i, (a, b) in enumerate(zip(first, expected, strict=True)) if _bits([a]) != _bits([b])]
        report.findings.append(f"Outputs {wrong} do not hold the expected bits.")
