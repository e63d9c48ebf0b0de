"""Environment variables stand in one table, and the page made from it is current."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from outlive.runtime.settings import VARIABLES, is_set

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"OUTLIVE_[A-Z]+(?:_[A-Z]+)*")
HEAD = "# Settings\n\nEnvironment variables that Outlive reads. Names and meanings come from `outlive/runtime/settings.py`.\n\n"


def page() -> str:
    rows = "".join(f"| `{name}` | {what} |\n" for name, what in sorted(VARIABLES.items()))
    return f"{HEAD}| variable | what it does |\n|---|---|\n{rows}"


def test_every_variable_that_the_code_names_is_in_the_table():
    named = {name for path in (ROOT / "outlive").rglob("*.py") for name in NAME.findall(path.read_text())}
    assert named == set(VARIABLES)


def test_the_page_of_settings_is_current():
    assert (ROOT / "docs" / "settings.md").read_text() == page()


def test_a_name_that_the_table_lacks_is_an_error():
    with pytest.raises(KeyError):
        is_set("OUTLIVE_SECRET")


if __name__ == "__main__":
    (ROOT / "docs" / "settings.md").write_text(page())
