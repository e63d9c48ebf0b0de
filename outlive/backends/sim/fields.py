"""Turns each field that the runtime declares as shared into a point of the scheduler, for as long as a check runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from outlive.backends.sim.scheduler import Scheduler
from outlive.runtime.platform import SHARED_FIELDS

active: list[Scheduler | None] = [None]
"""The scheduler whose points the fields are; None between schedules."""


class SharedField:
    """Stands before a slot's own descriptor and makes a point of each access."""

    __slots__ = ("_get", "_set", "slot")

    def __init__(self, slot: Any) -> None:
        self.slot = slot
        self._get = slot.__get__
        self._set = slot.__set__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        scheduler = active[0]
        if scheduler is not None:
            scheduler.step += 1
            if scheduler.step >= scheduler.next_event:
                scheduler._event()
        return self._get(instance)

    def __set__(self, instance: Any, value: Any) -> None:
        scheduler = active[0]
        if scheduler is not None and not scheduler.over:
            scheduler.step += 1
            if scheduler.step >= scheduler.next_event:
                scheduler._event()
        self._set(instance, value)


@contextlib.contextmanager
def instrumented() -> Iterator[None]:
    """Shared fields are points inside."""
    replaced: list[tuple[type, str, Any]] = []
    for cls, names in SHARED_FIELDS.items():
        for name in names:
            slot = cls.__dict__[name]
            replaced.append((cls, name, slot))
            setattr(cls, name, SharedField(slot))
    try:
        yield
    finally:
        for cls, name, slot in replaced:
            setattr(cls, name, slot)


@contextlib.contextmanager
def points_of(scheduler: Scheduler) -> Iterator[None]:
    """The fields are points of this scheduler inside."""
    previous, active[0] = active[0], scheduler
    try:
        yield
    finally:
        active[0] = previous
