"""The timeline of a real run, in the format of the schedules' traces: command buffers from their commit to the news of their end."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from outlive.graph.state import runtime
from outlive.runtime.origin import place

NAMES_SHOWN = 8
"""Kernels of a command buffer that its bar names; the rest is counted."""


class Timeline:
    """Stands where the runtime looks for a trace. Times are the platform's clock, shown in microseconds since the first event."""

    def __init__(self, platform: Any) -> None:
        self._now = platform.now_ns
        self._start = platform.now_ns()
        self._open: dict[tuple[int, int], dict[str, Any]] = {}
        self._events: list[dict[str, Any]] = []

    def committed(self, command_buffer: Any) -> None:
        """A command buffer went to its device."""
        records = command_buffer.records
        names = [record[1].name for record in records[:NAMES_SHOWN]]
        if len(records) > NAMES_SHOWN:
            names.append(f"and {len(records) - NAMES_SHOWN} more")
        stream = command_buffer.stream
        self._open[stream.index, command_buffer.tick] = {
            "name": f"command buffer {command_buffer.tick}",
            "ph": "X",
            "ts": (self._now() - self._start) / 1e3,
            "pid": str(stream.device),
            "tid": stream.index,
            "args": {"kernels": names, "records": len(records), "made at": place(records[0][4]) if records else ""},
        }

    def completed(self, command_buffer: Any) -> None:
        """The host knows that a command buffer is over."""
        event = self._open.pop((command_buffer.stream.index, command_buffer.tick), None)
        if event is not None:
            event["dur"] = (self._now() - self._start) / 1e3 - event["ts"]
            self._events.append(event)

    def text(self) -> str:
        """JSON that Perfetto opens. What was not over yet has no length."""
        return json.dumps({"traceEvents": [*self._events, *self._open.values()], "displayTimeUnit": "ms"})


@contextlib.contextmanager
def timeline(path: str | Path) -> Iterator[Timeline]:
    """Record all command buffers that are committed inside, and write them to `path` at the end, also after an error."""
    previous, runtime.trace = runtime.trace, Timeline(runtime.platform)
    try:
        yield runtime.trace
    finally:
        made, runtime.trace = runtime.trace, previous
        Path(path).write_text(made.text(), encoding="utf-8")
