"""`outlive check`: what it says about programs of every kind, and its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from outlive.check.command import check_file
from outlive.check.program_file import ProgramFile
from outlive.check.report import decode_schedule, encode_schedule
from outlive.io.errors import UserError
from tests.check import programs

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def written(tmp_path: Path):
    def write(text: str) -> str:
        path = tmp_path / "program.py"
        path.write_text(text)
        return str(path)

    return write


def test_a_clean_program(written, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_file(written(programs.GOOD), schedules=20) == 0
    said = capsys.readouterr().out
    assert "Nothing was found." in said
    assert "20 schedules" in said
    assert "[1, 2, 3, 4]" not in said


def test_a_program_that_raises_by_itself_is_said_to(written, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_file(written(programs.RAISES), schedules=5) == 1
    said = capsys.readouterr().out
    assert "LookupError: this program always fails" in said
    assert "Bits were not compared" in said


def test_a_program_that_reads_the_clock_is_not_compared(written, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_file(written(programs.CLOCK), schedules=10) == 0
    assert "another result each time" in capsys.readouterr().out


def test_threads_of_a_program_are_scheduled(written, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_file(written(programs.THREADS), schedules=40) == 0
    assert "started 3 threads of its own" in capsys.readouterr().out


def test_a_race_between_threads_of_the_program_is_found(written, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_file(written(programs.RACE), schedules=100) == 1
    assert "[bits]" in capsys.readouterr().out


def test_a_program_that_exits(written, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_file(written(programs.EXITS), schedules=5) == 0
    assert "ended by exiting (status 3)" in capsys.readouterr().out


def test_a_program_that_writes_files(written, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "written.txt"
    assert check_file(written(programs.WRITES), [str(target)], schedules=5) == 0
    assert f"wrote files in every schedule anew: {target}" in capsys.readouterr().out


def test_a_program_that_never_ends(written) -> None:
    from outlive.check.explore import Options, explore

    program = ProgramFile(written(programs.NEVER_ENDS), limit_seconds=0.5)
    done = explore(program, Options(schedules=1, shrink=False))
    assert done.findings[0].violation.oracle == "liveness"
    assert "had not ended after 0.5 s" in str(done.findings[0])


@pytest.mark.parametrize("example", ["lost_fill_value", "late_keepalive"])
def test_the_examples_are_found_and_their_proper_forms_are_clean(
    example: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    path, page, timeline = f"examples/{example}.py", tmp_path / "report.html", tmp_path / "trace.json"
    assert check_file(path, html=str(page), timeline=str(timeline)) == 1
    said = capsys.readouterr().out
    assert "Again: outlive check examples/" in said
    assert page.read_text().startswith("<!doctype html>")
    assert json.loads(timeline.read_text())["traceEvents"]
    assert check_file(path, ["--proper"], schedules=100) == 0


def test_a_reported_schedule_is_found_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    path = "examples/lost_fill_value.py"
    check_file(path)
    said = capsys.readouterr().out
    assert check_file(path, schedule=said.split("--replay '")[1].split("'")[0]) == 1
    assert said.splitlines()[0] == capsys.readouterr().out.splitlines()[0]


def test_schedules_survive_being_written_down() -> None:
    text = "3:run:1,17:fail-allocate:0,20:execute:2"
    assert encode_schedule(decode_schedule(text)) == text
    with pytest.raises(ValueError, match="'nonsense' is not one"):
        decode_schedule("3:run:1,nonsense")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"profile": "vulkan"}, "there is no profile 'vulkan'; choose one of"),
        ({"schedules": 0}, "the number of schedules is at least 1"),
        ({"schedule": "junk"}, "A schedule is a list of step:kind:subject"),
        ({"schedule": "", "poison": "300"}, "the poison is a byte"),
    ],
)
def test_bad_options_get_one_sentence(written, options: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        check_file(written(programs.GOOD), **options)  # type: ignore[arg-type]


def test_a_missing_program_gets_one_sentence() -> None:
    with pytest.raises(UserError, match=r"there is no program file nowhere\.py"):
        check_file("nowhere.py")


def test_the_command_line_reports_by_its_exit_status() -> None:
    command = [sys.executable, "-m", "outlive.cli", "check", "examples/lost_fill_value.py", "--schedules", "5"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "[lifetime]" in done.stdout
    assert done.stderr == ""
