"""Long runs in child processes: no wrong bit, no hang, no leak, no byte above the cap."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.budget import is_nightly

FOLDER = Path(__file__).parent
STRESS_SECONDS = 600 if is_nightly() else 25
CAP_SECONDS = 300 if is_nightly() else 30
CAP = 1 << 30
RESIDENT_BESIDE_THE_CAP = 400 << 20
"""The interpreter, the libraries and the host's own objects, in bytes."""


def child(script: str, seconds: int, *arguments: str) -> dict:
    command = [sys.executable, str(FOLDER / script), str(seconds), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 150, cwd=FOLDER.parents[1])
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.timeout(STRESS_SECONDS + 200)
@pytest.mark.parametrize("options", [(), ("--serialized",)], ids=["free", "serialized"])
def test_stress_of_threads_foreign_work_cancellation_and_failures(options: tuple[str, ...]):
    seen = child("stress.py", STRESS_SECONDS, "7", *options)
    assert seen["mismatches"] == []
    assert seen["programs"] > 20
    assert seen["failures_seen"] > 0
    assert seen["cancelled"] > 0
    for row in ("live", "buffers"):
        assert abs(seen["late"][row] - seen["early"][row]) <= max(0.01 * seen["early"][row], 2), seen


@pytest.mark.timeout(CAP_SECONDS + 200)
def test_resident_size_stays_below_the_cap_and_a_constant():
    seen = child("near_cap.py", CAP_SECONDS, str(CAP))
    assert seen["highest_allocated"] <= CAP
    assert seen["highest_allocated"] > CAP // 2, "the threads came nowhere near the cap"
    assert seen["highest_resident"] <= CAP + RESIDENT_BESIDE_THE_CAP, seen
    assert seen["refusals"] > 0, "nothing was refused, so the cap was not tried"
