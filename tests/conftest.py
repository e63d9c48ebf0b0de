"""Options, selection and fixtures that every test shares."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import hypothesis
import pytest

from tests.budget import examples, is_nightly
from tests.reference import Reference
from tests.skips import SKIPS, SkipGate

# CI is reproducible: the same examples in every run. The nightly runs draw fresh ones.
hypothesis.settings.register_profile(
    "outlive", derandomize=not is_nightly(), max_examples=examples(100), deadline=None, print_blob=True
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        choices=("cpu", "gpu"),
        default="cpu",
        help="the default device of the tests; tests marked gpu run on gpu alone",
    )


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("hypothesis_profile", default=None):
        hypothesis.settings.load_profile("outlive")
    config.pluginmanager.register(SkipGate(SKIPS), "skip-gate")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--device") == "gpu":
        return
    needs_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if needs_gpu:
        config.hook.pytest_deselected(items=needs_gpu)
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """The name of the device under test: ``"cpu"`` or ``"gpu"``."""
    return request.config.getoption("--device")


@pytest.fixture(autouse=True)
def _default_device(device: str) -> None:
    """Give each test the session's device as its default, whatever the test before it chose.

    Runtime tests never import the array namespace, and must not do so because of this fixture.
    """
    if core := sys.modules.get("outlive.core"):
        core.set_default_device(getattr(core, device))


@pytest.fixture(scope="session")
def reference() -> Iterator[Reference]:
    """The reference implementation in its own process, shared by the session."""
    with Reference() as child:
        yield child
