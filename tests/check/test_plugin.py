"""The pytest plugin: `--outlive-schedules N`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

TESTS = """
import threading
import outlive.core as mx
import pytest

def test_clean():
    assert mx.add(mx.arange(3), 1).tolist() == [1, 2, 3]

def test_with_a_fixture(tmp_path):
    assert mx.add(mx.arange(3), 1).tolist() == [1, 2, 3]

def test_fails_anyway():
    assert mx.add(mx.arange(3), 1).tolist() == [0, 0, 0]

def test_races():
    state = {"x": 0}
    def work():
        old = state["x"]
        mx.arange(3) + old  # short, so that on a real machine hardly anything comes between
        state["x"] = old + 1
    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert state["x"] in (1, 2)
    if state["x"] != 2:
        pytest.fail("an update was lost")

@pytest.mark.outlive_unscheduled
def test_left_alone():
    pass
"""


def run(tmp_path: Path, *options: str) -> str:
    path = tmp_path / "test_program.py"
    path.write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "outlive.check.plugin",
        "-p",
        "no:cacheprovider",
        str(path),
        *options,
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False).stdout


def test_without_the_option_tests_run_once(tmp_path: Path) -> None:
    said = run(tmp_path)
    assert "1 failed, 4 passed" in said
    assert "ScheduleFailure" not in said


def test_a_test_that_fails_under_a_schedule_fails_with_the_report(tmp_path: Path) -> None:
    said = run(tmp_path, "--outlive-schedules", "40")
    assert "2 failed, 3 passed" in said
    assert "an update was lost" in said
    assert "--outlive-schedules 40" in said
