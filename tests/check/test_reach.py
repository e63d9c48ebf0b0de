"""Every op that fills memory or takes a temporary is reached by the checker's scenarios; the list is read from the source."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest

import outlive
from outlive.check.explore import Options, explore
from outlive.check.scenarios import SCENARIOS
from outlive.runtime.encoder import CommandEncoder

PACKAGE = Path(outlive.__file__).parent
SCRATCH = ("fill", "temporary")


def places() -> set[tuple[str, str]]:
    """(file, function) of each call of `fill` or `temporary` on an encoder in the ops and transforms."""
    found = set()
    for path in [*(PACKAGE / "ops").rglob("*.py"), *(PACKAGE / "transforms").rglob("*.py")]:
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef):
                calls = [
                    c.func for c in ast.walk(function) if isinstance(c, ast.Call) and isinstance(c.func, ast.Attribute)
                ]
                if any(c.attr in SCRATCH and ast.unparse(c.value) == "encoder" for c in calls):
                    found.add((path.name, function.name))
    return found


def test_every_fill_and_every_temporary_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: set[tuple[str, str]] = set()
    for name in SCRATCH:
        own = getattr(CommandEncoder, name)

        def spying(self: Any, *args: Any, own: Any = own) -> Any:
            code = sys._getframe(1).f_code
            reached.add((Path(code.co_filename).name, code.co_name))
            return own(self, *args)

        monkeypatch.setattr(CommandEncoder, name, spying)
    for scenario in SCENARIOS:
        done = explore(scenario.program, Options(schedules=2, cap=scenario.cap, faults=False))
        assert not done.findings
    assert places()
    assert places() - reached == set()
