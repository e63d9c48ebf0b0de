"""Oracles that look at a whole schedule: the ledger recounted from live objects, and what is left when the program is over."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

from outlive.backends.sim.scheduler import Violation
from outlive.check.surroundings import forget_traces
from outlive.runtime.buffer import Data
from outlive.runtime.ledger import CATEGORIES

if TYPE_CHECKING:
    from outlive.check.schedule import World

SHOWN = 3


def recount(world: World, device: Any) -> tuple[int, int]:
    """(bytes that somebody owns, bytes on their way to the allocator), by walking the live objects."""
    owned: dict[int, int] = {}
    for item in gc.get_objects():
        if type(item) is Data and item.operand is not None:
            buffer = item.operand.buffer
            if getattr(buffer, "device", None) is device:
                owned[id(buffer)] = buffer.size
    return sum(owned.values()), len(owned)


def check_recount(world: World) -> None:
    """The ledger's sums against a walk over the live objects and against what the driver gave. Raises Violation."""
    runtime = world.runtime
    with runtime.lock:
        runtime.drain()
        world.scheduler.next_event = 1 << 60
        for device in world.devices:
            ledger = device.ledger
            owned, count = recount(world, device)
            if ledger.live != owned:
                raise Violation(
                    "ledger", f"{ledger.live:,} bytes are accounted for as live; {owned:,} bytes in {count} buffers have an owner.",
                    "a buffer that nobody owns was never released, or was released twice", tuple(_unowned(world)),
                )  # fmt: skip
            if ledger.allocated != device.held:
                raise Violation(
                    "ledger", f"{ledger.allocated:,} bytes are accounted for, {device.held:,} are taken from the driver.",
                    "refunded twice, too early, or never",
                )  # fmt: skip
            parts = sum(getattr(ledger, name) for name in CATEGORIES)
            if ledger.reserved:
                raise Violation(
                    "ledger", f"{ledger.reserved:,} bytes stay reserved though no allocation is under way.", ""
                )
            if ledger.peak_live != device.owned_peak:
                raise Violation(
                    "ledger", f"The most that was live was {device.owned_peak:,} bytes, not {ledger.peak_live:,}.", ""
                )
            if ledger.peak_allocated != device.held_peak:
                raise Violation(
                    "ledger",
                    f"The most that was held was {device.held_peak:,} bytes, not {ledger.peak_allocated:,}.",
                    "",
                )
            if ledger.blocks != len(device.cells):
                raise Violation(
                    "ledger", f"{ledger.blocks:,} blocks are accounted for, {len(device.cells):,} are held.", ""
                )
            if parts != ledger.allocated:
                raise Violation(
                    "ledger", f"The ledger's rows add up to {parts:,} bytes, not to {ledger.allocated:,}.", ""
                )
        world.scheduler.begin()


def _unowned(world: World) -> list[Any]:
    return [life for life in world.witness.latest.values() if not life.released_at][:SHOWN]


def check_after_end(world: World) -> None:
    """All arrays are gone: nothing may be held, and every byte must go back to the driver. Raises Violation."""
    from outlive.graph import state
    from outlive.ops import random

    runtime = world.runtime
    list.clear(random.state)
    forget_traces()
    state._constants.clear()
    state._refresh()
    runtime.synchronize()
    runtime.synchronize()
    if any(device.ledger.live for device in world.devices):
        gc.collect()  # arrays in cycles are gone only now
    world.scheduler.next_event = 1 << 60
    with runtime.lock:
        runtime.drain()
        for device in world.devices:
            ledger = device.ledger
            for stream in runtime.streams:
                if stream.pending or stream.completed != stream.committed:
                    raise Violation("liveness", f"{stream!r} is not idle after synchronize.", "")
            if ledger.live:
                raise Violation(
                    "over-retention", f"{ledger.live:,} bytes are held though every array is gone.",
                    "a buffer whose last owner did not release it", tuple(_unowned(world)),
                )  # fmt: skip
            device.check_handlers()
            device.allocator.clear_cache()
            if ledger.allocated or device.held:
                raise Violation(
                    "over-retention", f"{device.held:,} bytes did not go back to the driver ({ledger.allocated:,} accounted for).",
                    "a quarantine that never ends, or a refund that was left out",
                )  # fmt: skip
