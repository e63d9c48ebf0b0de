"""The pytest plugin: `--outlive-schedules N` runs every test under N schedules of the simulated device.

A test that fails in the sequential run fails as usual. One that passes there, and fails, hangs or gives other bits under a schedule, fails
with the checker's report.
"""

from __future__ import annotations

from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("outlive")
    group.addoption(
        "--outlive-schedules", type=int, default=0, metavar="N", help="run each test under N simulated schedules"
    )
    group.addoption("--outlive-seed", type=int, default=0, metavar="S", help="the seed of those schedules")
    group.addoption("--outlive-profile", default="sim", metavar="P", help="whose rules the simulated device follows")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "outlive_unscheduled: the test is not run under simulated schedules")


class ScheduleFailure(AssertionError):
    """A test failed under a schedule; the text is the report."""


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Any:
    schedules = pyfuncitem.config.getoption("--outlive-schedules")
    outcome = yield
    if not schedules or outcome.excinfo is not None or pyfuncitem.get_closest_marker("outlive_unscheduled"):
        return
    from outlive.check.explore import Options, explore
    from outlive.check.library import Report

    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    def test() -> None:
        try:
            pyfuncitem.obj(**arguments)
        except pytest.fail.Exception as failed:  # no Exception in Python's sense, so no schedule would catch it
            raise AssertionError(str(failed)) from None
        except pytest.skip.Exception:
            return

    config = pyfuncitem.config
    options = Options(
        schedules=schedules,
        seed=config.getoption("--outlive-seed"),
        profile=config.getoption("--outlive-profile"),
        faults=False,
    )
    report = Report(pyfuncitem.nodeid, test, options, explore(test, options))
    if not report.ok:
        again = f"pytest '{pyfuncitem.nodeid}' --outlive-schedules {schedules} --outlive-seed {options.seed}"
        outcome.force_exception(ScheduleFailure(f"{report}\nAgain: {again}"))
