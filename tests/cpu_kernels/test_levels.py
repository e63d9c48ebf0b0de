"""The routes of lesser processors give right results too: tests of the families again, with features masked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from outlive.backends.cpu.features import LEVELS, features

HERE = Path(__file__).parent
FAMILIES = (
    *("test_products.py", "test_formats.py", "test_gated_delta.py", "test_attention.py", "test_rows.py"),
    "test_elementwise.py",
)
SAMPLE = (
    "4-64-float32 or 8-32-float32 or extreme or infinite_scale or dense_products or special_values"
    " or (test_formats and test_products and float32 and (3-64 or 4-32 or 8-32)) or (test_gated_delta and recurrence)"
    " or (test_attention and float32 and (geometry2 or geometry3)) or (test_norms and float32)"
)


def _served() -> list[str]:
    """The levels below this processor's own."""
    own = features()
    highest = "amx" if own.amx else "avx512vnni" if own.vnni else "avx512" if own.avx512 else "avx2"
    names = list(LEVELS)
    return names[: names.index(highest)] if own.vnni or own.avx512 else []


def _run(level: str, *selection: str) -> None:
    environment = {**os.environ, "OUTLIVE_CPU_FEATURES": level}
    files = [str(HERE / name) for name in FAMILIES]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *selection, *files]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_a_sample_of_the_lowest_and_of_the_next_lower_level():
    levels = _served()
    for level in dict.fromkeys(levels[:1] + levels[-1:]):
        _run(level, "-k", SAMPLE)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_everything_of_every_lesser_level():
    for level in _served():
        _run(level)
