"""The routes of lesser processors give right results too: tests of the families again, with features masked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from outlive.backends.cpu.features import LEVELS, features

HERE = Path(__file__).parent
FAMILIES = ("test_products.py", "test_attention.py", "test_rows.py", "test_elementwise.py")
BETWEEN = ("test_products.py",)  # what only the products tell apart: the other kernels differ in register width alone


def _served() -> list[str]:
    """The levels below this processor's own."""
    own = features()
    highest = "amx" if own.amx else "avx512vnni" if own.vnni else "avx512" if own.avx512 else "avx2"
    names = list(LEVELS)
    return names[: names.index(highest)] if own.vector and own.cpu else []


@pytest.mark.parametrize("level", _served() or ["none"])
def test_masked_features(level):
    if level == "none":
        assert not features().avx512  # nothing lies below this processor's own level
        return
    files = [HERE / name for name in (FAMILIES if level == "avx2" else BETWEEN)]
    environment = {**os.environ, "OUTLIVE_CPU_FEATURES": level}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
