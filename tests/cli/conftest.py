"""Running the command line in a process of its own, on tiny models."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Kind

from tests.lm.conftest import smollm2_path  # noqa: F401  a fixture of this folder too
from tests.lm.tiny import TinyLlama

OUTLIVE = [sys.executable, "-m", "outlive.cli"]
Outlive = Callable[..., subprocess.CompletedProcess]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    return TinyLlama(kind=Kind.Q4_1, context=400, tied=False).write(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="session")
def environment(tmp_path_factory) -> dict[str, str]:
    """The session's environment, with a cache of its own that the tests of a session share."""
    return {**os.environ, "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache")), "COLUMNS": "200"}


@pytest.fixture
def outlive(environment) -> Outlive:
    """Run ``outlive ARGUMENT ...`` to its end; keyword arguments change environment variables."""

    def run(*arguments: str, **changes: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [*OUTLIVE, *map(str, arguments)],
            env=environment | changes,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def assert_one_sentence(result: subprocess.CompletedProcess, *parts: str) -> None:
    """Exit status 1, nothing on standard output, and one line with all ``parts`` as the last of standard error."""
    assert result.returncode == 1, result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    *before, last = result.stderr.splitlines()
    assert last.startswith("outlive: ")
    assert not any(line.startswith("outlive: ") for line in before)
    for part in parts:
        assert part in last
