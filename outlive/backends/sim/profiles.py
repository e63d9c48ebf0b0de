"""Profiles: whose rules the simulated device follows."""

from __future__ import annotations

from typing import NamedTuple


class Profile(NamedTuple):
    """What a device's driver allows.

    `host_memory`: the host reads results in place. `limit_resources`: distinct buffers that one command buffer may name, 0 for any number.
    `handlers_freeze`: a completion handler added after the commit is an error. `own_queue`: the device's own queueing code runs under the
    scheduler (the CPU device's workers), instead of a simulated driver.
    """

    name: str
    words: str
    host_memory: bool = False
    limit_resources: int = 0
    handlers_freeze: bool = True
    own_queue: bool = False


PROFILES = {
    p.name: p
    for p in (
        Profile("sim", "any device: work runs as late and in as odd an order as fences allow"),
        Profile("cpu", "the CPU device's own queues and workers", host_memory=True, own_queue=True),
        Profile(
            "metal",
            "unified memory, unretained references, a limited number of resources",
            host_memory=True,
            limit_resources=512,
        ),
    )
}
