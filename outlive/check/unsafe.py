"""The escape hatch that the runtime does not have: what a primitive could do wrong if it were given a command buffer or a pointer.

It exists to show that the checker finds such errors. It works on the simulated device alone.
"""

from __future__ import annotations

from typing import Any

from outlive.backends.sim.witness import Access


class Unretained:
    """A kernel that reads memory which its record does not name, as a raw pointer passed to a launch would."""

    def __init__(self, kernel: Any, raw_reads: list[Access]) -> None:
        self.kernel = kernel
        self.name = kernel.name
        self.moves_bits = getattr(kernel, "moves_bits", False)
        self.raw_reads = raw_reads

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        self.kernel.reference(xp, reads, writes)


def simulated(encoder: Any) -> Any:
    """The encoder's device; raises RuntimeError where it is not a simulated one."""
    device = encoder._stream.device
    if not hasattr(device, "witness"):
        raise RuntimeError(
            f"[unsafe] {device} is a real device; unsafe encoding is for checks on the simulated one alone."
        )
    return device


def dispatch_unretained(encoder: Any, kernel: Any, reads: tuple[Any, ...], writes: tuple[Any, ...]) -> None:
    """Dispatch a kernel whose reads nobody retains."""
    device = simulated(encoder)
    raw = [Access(device.arena, device.witness.life_of(o.buffer), o.layout, o.offset) for o in reads]
    encoder.dispatch(Unretained(kernel, raw), (), writes)


def host_filled(encoder: Any, values: Any, layout: Any) -> Any:
    """An operand with host values, whose only owner is returned beside it: (operand, owner)."""
    from outlive.runtime.buffer import Data, Operand

    device = simulated(encoder)
    buffer = device.allocator.allocate(layout.nbytes, None)
    operand = Operand(buffer, layout)
    device.copy_in(values, operand)
    return operand, Data(operand)


def command_buffer(encoder: Any) -> Any:
    """The open command buffer, which a primitive never sees."""
    simulated(encoder)
    return encoder.command_buffer


def synchronize(encoder: Any) -> None:
    """Commit the open command buffer in the middle of an op, and wait for it."""
    device = simulated(encoder)
    stream = encoder._stream
    fence = stream.commit()
    device.wait(stream, fence.tick)


def attach(command_buffer: Any, handler: Any) -> None:
    """Attach a completion handler, whatever state the command buffer is in."""
    command_buffer.handlers.append(handler)
