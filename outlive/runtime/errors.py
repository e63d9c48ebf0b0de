"""The runtime's exceptions, and `Failure`: an error that stays with the arrays whose work failed."""

from __future__ import annotations

from typing import Any

from outlive.runtime.origin import Origin, place


class OutOfMemory(RuntimeError):
    """Raised when memory cannot be had under the cap. Nothing is lost: the array stays unevaluated and can be read again."""


class ExecutionError(RuntimeError):
    """Raised by each read of an array whose work failed while it ran; `__cause__` is the kernel's own exception."""


class SerializedScope(RuntimeError):
    """Raised for a use of `execution.serialized()` that could never end, or that breaks its nesting."""


class Pressure(Exception):
    """Internal: memory is short while work is outstanding. The evaluation retires the oldest work and encodes the op again."""


def without_frames(error: BaseException) -> BaseException:
    """`error`, and all that it was raised from or during, without their tracebacks: their frames would keep arrays alive."""
    links: list[BaseException | None] = [error]
    while links:
        link = links.pop()
        if link is not None:
            link.__traceback__ = None
            links += (link.__cause__, link.__context__)
    return error


class Failure:
    """What went wrong, where, and in which program line; belongs to the buffers that the failed work should have written."""

    __slots__ = ("cause", "op", "origin", "shapes", "stream")

    def __init__(self, cause: BaseException, op: str, shapes: str, stream: str, origin: Origin | None) -> None:
        self.cause = without_frames(cause)
        self.op = op
        self.shapes = shapes
        self.stream = stream
        self.origin = origin

    def error(self) -> ExecutionError:
        """A new exception that tells all of it."""
        made = ExecutionError(
            f"[{self.op}] {self.cause} (operands {self.shapes}; on {self.stream}; made at {place(self.origin)})"
        )
        made.__cause__ = self.cause
        return made


def shapes_of(operands: Any) -> str:
    """The layouts of operands in words, for messages."""
    return ", ".join(repr(o.layout) for o in operands) or "none"
