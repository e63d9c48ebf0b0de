"""The census finds processes that coverage lost, and excuses those that were meant to die."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CENSUS = ROOT / ".ci" / "coverage_census.py"
CONFIGURATION = "[run]\nsource_pkgs = outlive\nparallel = true\npatch = subprocess, fork, _exit\n"
# What the .pth files of the test environment do, done by hand: coverage first, then the mark.
START = "import coverage; coverage.process_startup(); import coverage_census; coverage_census.mark()\n"


@pytest.fixture(scope="module")
def census():
    spec = importlib.util.spec_from_file_location("coverage_census", CENSUS)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def measure(tmp_path, census):
    """Run a program under coverage and census; returns the complaints."""
    marks, data = tmp_path / "marks", tmp_path / "data"
    marks.mkdir()
    data.mkdir()
    (tmp_path / "configuration").write_text(CONFIGURATION)

    def run(program: str, doomed: str = "") -> list[str]:
        environment = {name: value for name, value in os.environ.items() if "COVERAGE" not in name}
        environment |= {
            "PYTHONPATH": str(CENSUS.parent),
            "COVERAGE_PROCESS_START": str(tmp_path / "configuration"),
            "COVERAGE_FILE": str(data / "data"),
            "OUTLIVE_COVERAGE_CENSUS": str(marks),
            "OUTLIVE_DOOMED": doomed,
        }
        subprocess.run([sys.executable, "-c", START + program], env=environment, check=False, cwd=ROOT)
        assert list(marks.iterdir()), "the process left no mark"
        return census.unmeasured(marks, data, {"abort": "the test aborts it"})

    return run


def test_a_process_that_ends_is_measured(measure):
    assert measure("import outlive") == []


def test_a_process_that_is_killed_is_named(measure):
    (complaint,) = measure("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert "no coverage data of process" in complaint
    assert "SIGKILL" in complaint


def test_a_doomed_process_is_excused_and_an_unlisted_doom_is_not(measure):
    assert measure("import os; os.abort()", doomed="abort") == []
    (complaint,) = measure("import os; os.abort()", doomed="unlisted")
    assert "'unlisted'" in complaint


def test_a_forked_child_is_counted_for_itself(measure):
    program = "import os, signal\nif os.fork() == 0: os.kill(os.getpid(), {})\nos.wait()"
    (complaint,) = measure(program.format("signal.SIGKILL"))
    assert "a fork of" in complaint


def test_a_forked_child_that_ends_is_measured(measure):
    assert measure("import os\nif os.fork() == 0: os._exit(0)\nos.wait()") == []
