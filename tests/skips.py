"""Which tests may be skipped or may fail as expected, and why: one table, and the gate that keeps to it."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest


@dataclass(frozen=True, slots=True)
class Declared:
    """One line of the table.

    ``pattern`` matches node ids: ``*`` stands for any text, every other character for itself. ``reason`` is a part of
    the text that the test gives to ``pytest.skip`` or ``xfail``, so that a declared test cannot be skipped for another
    cause.
    """

    pattern: str
    reason: str

    def covers(self, node_id: str, reason: str) -> bool:
        expression = ".*".join(re.escape(part) for part in self.pattern.split("*"))
        return re.fullmatch(expression, node_id) is not None and self.reason in reason


SKIPS: tuple[Declared, ...] = ()


class SkipGate:
    """A pytest plugin: a skip or expected failure that the table does not declare fails the session and is named."""

    def __init__(self, table: tuple[Declared, ...]):
        self.table = table
        self.undeclared: list[tuple[str, str]] = []

    def _inspect(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped:
            return
        if hasattr(report, "wasxfail"):
            reason = report.wasxfail
        else:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(line.covers(report.nodeid, reason) for line in self.table):
            self.undeclared.append((report.nodeid, reason))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._inspect(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._inspect(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.undeclared and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.undeclared:
            return
        terminalreporter.section("undeclared skips (declare them in tests/skips.py with a reason)", red=True)
        for node_id, reason in self.undeclared:
            terminalreporter.line(f"{node_id}: {reason}")
