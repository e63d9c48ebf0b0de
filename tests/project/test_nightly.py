"""The nightly script keeps one row a variant, and counts what ran."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def nightly(tmp_path, monkeypatch):
    loader = importlib.machinery.SourceFileLoader("outlive_nightly", str(ROOT / "tools" / "nightly"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    # dataclasses look their module up by name.
    monkeypatch.setitem(sys.modules, loader.name, module)
    loader.exec_module(module)
    monkeypatch.setattr(module, "PAGE", tmp_path / "nightly.md")
    return module


def test_a_new_result_takes_the_place_of_the_variants_former_one(nightly):
    variant = nightly.VARIANTS["serial"]
    nightly.record("serial", variant, nightly.Outcome(1, 3, 2, 60.0), 5)
    nightly.record("long", nightly.VARIANTS["long"], nightly.Outcome(5, 0, 0, 6.0), 6)
    nightly.record("serial", variant, nightly.Outcome(0, 5, 0, 90.0), 7)
    rows = nightly.read_rows(nightly.PAGE.read_text())
    assert sorted(rows) == ["long", "serial"]
    assert rows["serial"][2:7] == ("passed", "5", "0", "1.5", "7")
    assert rows["long"][2] == "no tests"


def test_a_variant_runs_its_own_tests_and_counts_them(nightly, tmp_path, monkeypatch):
    (tmp_path / "conftest.py").write_text("def pytest_addoption(parser): parser.addoption('--device')\n")
    (tmp_path / "test_sample.py").write_text(
        "import os\n"
        "def test_setting(): assert os.environ['OUTLIVE_NUM_THREADS'] == '1' and os.environ['OUTLIVE_NIGHTLY'] == '1'\n"
        "def test_failing(): assert False\n"
    )
    monkeypatch.setattr(nightly, "ROOT", tmp_path)
    outcome = nightly.run(nightly.VARIANTS["serial"], 1, "cpu")
    assert (outcome.status, outcome.passed, outcome.failed) == (1, 1, 1)
    assert outcome.result == "failed (status 1)"


def test_rows_of_variants_that_are_gone_are_dropped(nightly):
    row = ("gone",) + ("x",) * (len(nightly.COLUMNS) - 1)
    assert nightly.read_rows(nightly.write_rows({"gone": row})) == {}
