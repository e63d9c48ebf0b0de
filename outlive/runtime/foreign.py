"""Work of other libraries in a stream's order: a record that runs, or waits for, what Outlive did not write.

The operands of the record are retained like any op's, so they are neither donated nor reused before its completion arrives. Completion is
a ticket posted to a channel and nothing else: it may come from any thread, a callback or a finalizer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from outlive.runtime.errors import SerializedScope
from outlive.runtime.platform import Timeout, shared

if TYPE_CHECKING:
    from outlive.runtime.stream import Stream


class ForeignError(RuntimeError):
    """Raised for a ticket that is completed twice, and the cause of failed foreign work without an exception of its own."""


@shared("state")
class Ticket:
    """The completion of one piece of foreign work: `complete()` or `fail(error)`, exactly once, from anywhere."""

    __slots__ = ("_channel", "label", "opener", "state", "stream")

    def __init__(self, stream: Stream, label: str) -> None:
        self.stream = stream
        self._channel = stream.runtime.platform.channel("ticket")
        self.label = label
        self.opener = 0
        """The thread inside the scope that will complete it; 0 once that is nobody's in particular."""
        self.state = "open"

    def complete(self) -> None:
        """The work is over; its results are in place. Raises ForeignError the second time."""
        self._post(None)

    def fail(self, error: BaseException) -> None:
        """The work failed: the arrays that it should have written raise when they are read."""
        self._post(error)

    def _post(self, error: BaseException | None) -> None:
        if self.state != "open":
            raise ForeignError(f"[foreign] {self.label} was completed twice; a ticket takes one completion.")
        self.state = "complete" if error is None else "failed"
        self.opener = 0
        self._channel.put(error)

    def abandon(self) -> None:
        """The process ends: let the stream go on, with the work failed, whether or not its completion ever comes."""
        self._channel.put(ForeignError(f"[foreign] The process ended before {self.label} was completed."))

    def refuse_opener(self) -> None:
        """Raise SerializedScope when the calling thread is the one that must complete the work."""
        if self.opener and self.opener == self.stream.runtime.platform.thread_id():
            raise SerializedScope(
                f"[foreign] This thread waits for {self.label}, which it must complete itself; leave the foreign scope first."
            )

    def wait(self) -> None:
        """Block the stream that the work belongs to until it is over; raises its error. After the watchdog's time says so, once."""
        stream = self.stream
        watchdog_s = stream.runtime.gate.watchdog_s
        stream.blocked = self
        try:
            self.refuse_opener()
            if stream.runtime.stopping:
                self.abandon()
            try:
                error = self._channel.get(True, watchdog_s)
            except Timeout:
                self._tell(watchdog_s)
                error = self._channel.get()
        finally:
            stream.blocked = None
        if error is not None:
            raise error

    def _tell(self, watchdog_s: float) -> None:
        platform = self.stream.runtime.platform
        me = platform.thread_id()
        opener = f"Opened by:\n{platform.stack(self.opener)}" if self.opener else ""
        platform.report(
            f"outlive: {platform.thread_name(me)} has waited {watchdog_s:g} s for {self.label}, which nobody completed.\n"
            f"Waiting:\n{platform.stack(me)}{opener}"
        )


class ForeignCall:
    """The kernel of foreign work. `call(reads, writes)` runs in the stream's order with the device's array objects; then the ticket."""

    name = "foreign"
    moves_bits = True
    single_use = True
    __slots__ = ("call", "ticket")

    def __init__(self, call: Callable[[tuple[Any, ...], tuple[Any, ...]], Any] | None, ticket: Ticket | None) -> None:
        self.call = call
        self.ticket = ticket

    def reference(self, xp: Any, reads: tuple[Any, ...], writes: tuple[Any, ...]) -> None:
        if self.call is not None:
            self.call(reads, writes)
        if self.ticket is not None:
            self.ticket.wait()
