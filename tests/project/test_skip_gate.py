"""The gate on skips: what is declared passes, everything else fails the session."""

from pathlib import Path

import pytest

from tests.skips import Declared, SkipGate

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]

SKIPPING = """
import pytest
def test_sometimes():
    pytest.skip("no tensor cores here")
"""
EXPECTED_FAILURE = """
import pytest
@pytest.mark.xfail(reason="rounds twice")
def test_rounding():
    assert False
"""
SKIPPED_MODULE = """
import pytest
pytest.skip("no driver", allow_module_level=True)
"""
PASSING = "def test_fine(): pass\n"


def run(pytester: pytest.Pytester, source: str, *table: Declared) -> tuple[int, str]:
    pytester.makepyfile(test_sample=source)
    lines = ", ".join(f"Declared({line.pattern!r}, {line.reason!r})" for line in table)
    pytester.makeconftest(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.skips import Declared, SkipGate\n"
        f"def pytest_configure(config): config.pluginmanager.register(SkipGate(({lines}{',' if lines else ''})))\n"
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    return result.ret, result.stdout.str()


@pytest.mark.parametrize("source", [SKIPPING, EXPECTED_FAILURE, SKIPPED_MODULE])
def test_an_undeclared_skip_fails_the_session_and_is_named(pytester, source):
    status, text = run(pytester, source)
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "undeclared skips" in text
    assert "test_sample.py" in text.split("undeclared skips")[1]


def test_a_declared_skip_passes(pytester):
    status, text = run(pytester, SKIPPING + PASSING, Declared("test_sample.py::test_some*", "no tensor cores"))
    assert (status, "undeclared" in text) == (pytest.ExitCode.OK, False)


def test_a_declared_test_skipped_for_another_reason_fails(pytester):
    status, _ = run(pytester, SKIPPING + PASSING, Declared("test_sample.py::*", "no driver"))
    assert status == pytest.ExitCode.TESTS_FAILED


def test_brackets_of_parametrized_tests_are_literal():
    line = Declared("tests/test_a.py::test_b[float32-*]", "why")
    assert line.covers("tests/test_a.py::test_b[float32-3]", "this is why")
    assert not line.covers("tests/test_a.py::test_bf", "this is why")


def test_a_session_without_skips_is_left_alone(pytester):
    status, _ = run(pytester, PASSING)
    assert status == pytest.ExitCode.OK
    assert SkipGate(()).undeclared == []
