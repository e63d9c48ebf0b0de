"""The default model, fetched once into the user's own cache as ``outlive generate`` fetches it."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlive.lm import DEFAULT_SOURCE
from outlive.lm.progress import Silent
from outlive.lm.sources import resolve


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    return resolve(DEFAULT_SOURCE, Silent())
