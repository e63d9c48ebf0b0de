"""``outlive run --calibrate``: the smallest memory cap under which a program completes, and what that costs in time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from outlive.io.errors import UserError

REPORT = "OUTLIVE_CALIBRATION_REPORT"
"""Environment variable: the file into which a calibrated run writes its peak."""

PRECISION = 1 / 64
"""The search ends when the bounds are this close, relative to the upper one."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One run: exit status, seconds, and the most bytes that were backed at one time (None where it ended too early to say)."""

    status: int
    seconds: float
    peak_bytes: int | None


def calibrate(program: str, arguments: Sequence[str], device: str | None) -> None:
    """Run ``program`` several times under falling caps and print the smallest one that it completes under.

    A run completes when it ends with the exit status of the run without a cap. The program's own output is not shown.

    Raises:
        UserError: if the program fails without a cap, or makes no arrays.
    """
    free = _trial(program, arguments, device, None)
    if free.status:
        raise UserError(
            f"{program} ends with status {free.status} without a cap; make it complete before calibrating it"
        )
    if not free.peak_bytes:
        raise UserError(f"{program} makes no arrays, so it needs no memory; there is nothing to calibrate")
    print(f"without a cap: peak {free.peak_bytes:,} bytes, {free.seconds:.2f} s", file=sys.stderr)
    low, high, best = 0, free.peak_bytes, _trial(program, arguments, device, free.peak_bytes)
    if best.status:
        raise UserError(f"{program} does not complete under a cap of its own peak; its memory differs from run to run")
    while high - low > max(1, high * PRECISION):
        cap = (low + high) // 2
        trial = _trial(program, arguments, device, cap)
        print(
            f"cap {cap:,} bytes: {'completes' if not trial.status else 'fails'}, {trial.seconds:.2f} s", file=sys.stderr
        )
        if trial.status:
            low = cap
        else:
            high, best = cap, trial
    print(f"smallest cap: {high:,} bytes ({high / free.peak_bytes:.0%} of the peak without a cap)")
    print(f"time under it: {best.seconds:.2f} s ({best.seconds / free.seconds:.2f} times that without a cap)")


def _trial(program: str, arguments: Sequence[str], device: str | None, cap: int | None) -> Trial:
    command = [
        sys.executable,
        "-m",
        "outlive.cli",
        "run",
        *(["--device", device] if device else []),
        program,
        "--",
        *arguments,
    ]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        environment = os.environ | {REPORT: str(report)} | ({"OUTLIVE_CAP_BYTES": str(cap)} if cap else {})
        start = time.perf_counter()
        done = subprocess.run(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
        )
        seconds = time.perf_counter() - start
        peak = json.loads(report.read_text())["peak_bytes"] if report.exists() else None
    return Trial(done.returncode, seconds, peak)


def report_peak() -> None:
    """In a calibrated run: write the peak for the process that calibrates."""
    path = os.environ.get(REPORT)
    if path and "outlive.core" in sys.modules:
        from outlive import memory

        Path(path).write_text(json.dumps({"peak_bytes": memory.snapshot().peak_allocated}))
