"""The timeline of a real run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import outlive.core as mx
from outlive.check.timeline import timeline


def test_every_command_buffer_is_a_bar(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with timeline(path):
        x = mx.arange(8, dtype=mx.float32)
        for _ in range(3):
            x = mx.add(x, 1)
            mx.eval(x)
    events = json.loads(path.read_text())["traceEvents"]
    assert len(events) == 3
    assert [e["args"]["kernels"][-1] for e in events] == ["add"] * 3
    assert all(e["ph"] == "X" and e["dur"] >= 0 for e in events)
    assert "test_timeline.py" in events[0]["args"]["made at"]


def test_the_file_is_written_after_an_error_too(tmp_path: Path) -> None:
    path = tmp_path / "run.json"

    def program() -> None:
        mx.eval(mx.add(mx.arange(3), 1))
        raise LookupError

    with pytest.raises(LookupError), timeline(path):
        program()
    assert len(json.loads(path.read_text())["traceEvents"]) == 1
