"""Finds the reference counts that mean "nobody but this op", and tests them, before anything may be donated.

A wrong count would give a live array's buffer away. So the counts are measured on the very path that uses them, then tried: an input that
only its op knows must be donated, and one with another handle, or whose data has another owner, must not. If any of it fails (another
Python, a debugger), nothing is ever donated.
"""

from __future__ import annotations

from typing import Any

from outlive.backends.null.device import NullDevice
from outlive.graph.dtypes import float32
from outlive.graph.evaluate import _encode_tape
from outlive.graph.node import Node
from outlive.graph.primitive import Primitive
from outlive.runtime.encoder import NEVER, Donation
from outlive.runtime.layout import layout
from outlive.runtime.runtime import Runtime


class _Source(Primitive):
    """Makes an array from nothing."""

    __slots__ = ()
    name = "calibration source"


class _Probe(Primitive):
    """Reads the counts of its first input."""

    __slots__ = ("found",)
    name = "calibration probe"
    found: list[Any]

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        self.found.append(encoder.probe())
        return encoder.output(layout, donate=False)


class _Taker(Primitive):
    """Notes whether its output took the first input over."""

    __slots__ = ("found",)
    name = "calibration taker"
    found: list[Any]

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        out = encoder.output(layout)
        self.found.append(out is inputs[0])
        return out


def _run(runtime: Runtime, device: NullDevice, last: Primitive, keep: str = "") -> None:
    """Evaluate last(source()), the source known to others as `keep` says: "node", "data" or nobody."""
    stream = runtime.new_stream(device)
    shape = layout((8,), float32)
    held: list[Any] = []
    tape = [Node(_Source.make(), (), shape, stream, None)]
    tape.append(Node(last, (tape[0],), shape, stream, None))
    if keep == "node":
        held.append(tape[0])
    if keep == "data":
        source = tape.pop(0)
        _encode_tape([source], [])
        held.append(source.data)
        del source
    _encode_tape(tape, [])
    stream.commit()


def calibrate(runtime: Runtime) -> bool:
    """Set the counts of `Donation`; whether donation is possible here."""
    device = NullDevice(runtime)
    Donation.node = Donation.data = NEVER
    counts: list[tuple[int, int]] = []
    _run(runtime, device, _Probe.make(counts))
    Donation.node, Donation.data = counts[0]
    taken: list[bool] = []
    for keep in ("", "node", "data", ""):
        _run(runtime, device, _Taker.make(taken), keep)
    if taken != [True, False, False, True]:
        Donation.node = Donation.data = NEVER
    return Donation.node != NEVER
