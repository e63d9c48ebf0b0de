"""The programs of ``cases.py`` give the results that they name, each in a process of its own."""

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.cases import run
from tests.cases.cases import CASES

# Cases whose ops exist; what brings more ops adds theirs.
SUPPORTED = "A01 A02 A04 A05 A06 A08 A10 A12 A13 A14 A17 A21 B01 B03 B06 B08 B09 B11".split()
SECONDS = 120


@pytest.fixture(scope="module")
def answers(device: str, request: pytest.FixtureRequest) -> Iterator[Mapping[str, "Future[tuple[bool, str]]"]]:
    """The outcome of each selected case: a few processes run beside each other while the tests read them in order."""
    wanted = {item.callspec.params["case"] for item in request.session.items if "case" in _parameters(item)}
    with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        yield {
            case["id"]: pool.submit(run.run_case, case, "outlive.core", device, SECONDS)
            for case in CASES
            if case["id"] in wanted
        }


def _parameters(item: pytest.Item) -> Mapping[str, object]:
    return item.callspec.params if hasattr(item, "callspec") else {}


@pytest.mark.parametrize("case", SUPPORTED)
def test_the_reported_program_gives_its_result(answers, case):
    passed, text = answers[case].result()
    report = next(entry["report"] for entry in CASES if entry["id"] == case)
    assert passed, f"{case} ({report}): {text}"


def test_every_case_has_an_id_of_its_own():
    ids = [case["id"] for case in CASES]
    assert len(set(ids)) == len(ids)
    assert set(SUPPORTED) <= set(ids)
