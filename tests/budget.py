"""How much a test explores: a share in continuous integration, ten times as much in the nightly runs."""

import os

NIGHTLY_FACTOR = 10


def is_nightly() -> bool:
    """Whether this session is one of ``tools/nightly``."""
    return os.environ.get("OUTLIVE_NIGHTLY", "") not in ("", "0")


def examples(count: int) -> int:
    """The number of hypothesis examples for a test that draws ``count`` of them in continuous integration."""
    return count * NIGHTLY_FACTOR if is_nightly() else count
