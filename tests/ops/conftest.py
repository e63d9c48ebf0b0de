"""Every buffer that an op is given starts as NaN (integers: -1), so that an element which nobody writes is seen."""

from __future__ import annotations

import numpy as np
import pytest

from outlive.runtime.allocator import Allocator

POISON = 0xFF


@pytest.fixture(autouse=True)
def _poisoned_memory(monkeypatch):
    def poisoned(obtain):
        def obtained(self, size):
            block = obtain(self, size)
            if block is not None and isinstance(block.memory, np.ndarray):
                block.memory[...] = POISON
            return block

        return obtained

    # what is reused while earlier work on it is unfinished cannot be written from here
    for name in ("_from_cache", "_from_driver"):
        monkeypatch.setattr(Allocator, name, poisoned(getattr(Allocator, name)))
