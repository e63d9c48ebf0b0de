"""The page on the engine in 150 lines is a program: it runs, its assertions hold, and it keeps to its length."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "engine-in-150-lines.md"


def code() -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))


def test_the_program_of_the_page_runs():
    done = subprocess.run([sys.executable, "-c", code()], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_engine_has_at_most_150_lines():
    engine = code().split("x = array([1.0, 2.0, 3.0])")[0]
    assert sum(bool(line.strip()) for line in engine.splitlines()) <= 150


def test_its_assertions_can_fail():
    broken = code().replace("cotangents[i] + part", "part")
    assert broken != code()
    assert subprocess.run([sys.executable, "-c", broken], capture_output=True, timeout=120).returncode != 0
