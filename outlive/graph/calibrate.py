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
from outlive.runtime.settings import is_set


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
    """Notes whether its output took the first input over; encoded in the general way."""

    __slots__ = ("found",)
    name = "calibration taker"
    found: list[Any]

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        out = encoder.output(layout)
        self.found.append(out is inputs[0])
        return out


class _Pair(Primitive):
    """The same through the encoder's short way for two operands."""

    __slots__ = ()
    name = "calibration pair"
    pairs = True


_SHAPE = layout((8,), float32)


def _consume(runtime: Runtime, device: NullDevice, last: Primitive, keep: str, inputs: int) -> Node:
    """Evaluate last(source(), ...), the first source known to others as `keep` says: "node", "data" or nobody."""
    stream = runtime.new_stream(device)
    held: list[Any] = []
    tape = [Node(_Source.make(), (), _SHAPE, stream, None) for _ in range(inputs)]
    tape.append(Node(last, tuple(tape), _SHAPE, stream, None))
    result = tape[-1]
    if keep == "node":
        held.append(tape[0])
    if keep == "data":
        _encode_tape([tape[0]], [])
        held.append(tape[0].data)
        del tape[0]
    tape.reverse()
    _encode_tape(tape, [])
    stream.commit()
    return result


def _pair_takes(runtime: Runtime, device: NullDevice, keep: str) -> bool:
    """Whether the short way gives the first source's buffer to the result; the second source is always known to others."""
    stream = runtime.new_stream(device)
    a, b = (Node(_Source.make(), (), _SHAPE, stream, None) for _ in range(2))
    result = Node(_Pair.make(), (a, b), _SHAPE, stream, None)
    _encode_tape([a, b], [])
    buffer = a.data.operand.buffer
    held = {"node": a, "data": a.data, "": None}[keep]
    del a
    _encode_tape([result], [])
    stream.commit()
    taken = result.data.operand.buffer is buffer
    del held, b
    return taken


def calibrate(runtime: Runtime) -> bool:
    """Set the counts of `Donation`; whether donation is possible here."""
    Donation.forbid()
    if is_set("OUTLIVE_DISABLE_DONATION"):
        return False
    device = NullDevice(runtime)
    counts: list[tuple[int, int]] = []
    _consume(runtime, device, _Probe.make(counts), "", 1)
    Donation.node, Donation.data = Donation.pair_node, Donation.pair_data = counts[0]
    taken: list[bool] = []
    for keep in ("", "node", "data", ""):
        _consume(runtime, device, _Taker.make(taken), keep, 1)
    _consume(runtime, device, _Pair.make(), "node", 2)  # the general way, once: the short one needs a chosen kernel
    pairs = [_pair_takes(runtime, device, keep) for keep in ("", "node", "data", "")]
    if taken != [True, False, False, True] or pairs != [True, False, False, True]:
        Donation.forbid()
    runtime.streams[:] = [s for s in runtime.streams if s.device is not device]
    return Donation.node != NEVER
