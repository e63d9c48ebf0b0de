"""Sharing a process and its streams with other code: serialized scopes, work of other libraries, and who waits for whom.

See `docs/embedding.md`.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from outlive.graph import state
from outlive.graph.array import array
from outlive.graph.evaluate import evaluate, evaluate_async
from outlive.graph.node import Node
from outlive.runtime.buffer import Data
from outlive.runtime.errors import ExecutionError, OutOfMemory, Pressure, SerializedScope
from outlive.runtime.foreign import ForeignCall, ForeignError, Ticket
from outlive.runtime.gate import Gated
from outlive.runtime.origin import place, user_origin
from outlive.runtime.stream import Stream

__all__ = [
    "ExecutionError",
    "Foreign",
    "ForeignError",
    "OutOfMemory",
    "SerializedScope",
    "Ticket",
    "audit",
    "audit_on_signal",
    "foreign",
    "ready",
    "serialized",
    "set_watchdog",
]  # fmt: skip


class serialized:
    """A recursive, synchronous scope that keeps every other evaluation of the process out.

    `with serialized():` waits until no other work is in flight, then lets this thread alone evaluate, so that outside code can share its
    streams. Leaving the outermost scope waits for the scope's own work. A thread that evaluates meanwhile waits; another asyncio task of
    this thread raises `SerializedScope`, since it would wait for itself. After `set_watchdog` seconds the stacks of both sides are printed.
    """

    __slots__ = ("_gate",)

    def __enter__(self) -> serialized:
        self._gate = state.runtime.gate
        self._gate.enter()
        return self

    def __exit__(self, *exc: object) -> None:
        self._gate.leave()


def set_watchdog(seconds: float) -> None:
    """Seconds after which a wait of Outlive's prints who waits and who is waited for. Raises ValueError unless positive."""
    if not seconds > 0:
        raise ValueError(f"[set_watchdog] The watchdog takes a positive number of seconds; got {seconds}.")
    state.runtime.gate.watchdog_s = seconds


class Foreign:
    """Foreign work on a stream: its operands' array objects, its ticket and, on a GPU, the raw stream.

    `reads`, `writes`: NumPy arrays on the CPU stream, the device library's arrays on a GPU (bfloat16 as uint16). `ticket`: completes the
    work; the scope does so itself unless `defer()` was called.
    """

    __slots__ = ("_deferred", "reads", "stream", "ticket", "writes")

    def __init__(self, stream: Stream, ticket: Ticket, reads: tuple[Any, ...], writes: tuple[Any, ...]) -> None:
        self.stream = stream
        self.ticket = ticket
        self.reads = reads
        self.writes = writes
        self._deferred = False

    @property
    def raw_stream(self) -> int:
        """The driver's stream as an integer (0 on the CPU)."""
        return int(getattr(self.stream.device, "raw_stream", lambda s: 0)(self.stream))

    def defer(self) -> Ticket:
        """The work goes on after the scope; whoever ends it calls `complete()` or `fail(error)` on the ticket, from any thread."""
        self._deferred = True
        return self.ticket


class foreign:
    """Give operands to another library for the length of a scope, in the order of `stream` (None: the current one).

    `with foreign(stream, reads=[a], writes=[b]) as work:` `reads` are computed first. Each of `writes` gets a buffer of its own that nobody
    else sees (its old contents are copied in), so views and other arrays keep theirs. Until the work is complete no operand is donated,
    overwritten or reused, and whatever reads a written array on any stream waits. If the scope raises, the written arrays hold its failure.
    This thread cannot wait for its own scope: evaluating what needs it inside raises SerializedScope.
    """

    __slots__ = ("_reads", "_stream", "_work", "_writes")

    def __init__(self, stream: Stream | None = None, reads: Sequence[array] = (), writes: Sequence[array] = ()) -> None:
        self._stream = stream
        self._reads = tuple(reads)
        self._writes = tuple(writes)

    def __enter__(self) -> Foreign:
        self._work = _open(state.as_stream(self._stream), self._reads, self._writes)
        return self._work

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        ticket = self._work.ticket
        if ticket.state != "open":
            return
        if error is not None:
            ticket.fail(error)
        elif self._work._deferred:
            ticket.opener = 0
        else:
            ticket.complete()


def call(
    function: Callable[[tuple[Any, ...], tuple[Any, ...]], Any], stream: Stream | None = None, reads: Sequence[array] = (),
    writes: Sequence[array] = (), ticket: bool = False,
) -> Ticket | None:  # fmt: skip
    """Queue `function(reads, writes)` at this place of a CPU stream; it runs there, with NumPy arrays over the operands.

    With `ticket=True` the work is complete only when the returned ticket is. An exception belongs to the written arrays. The function must
    not evaluate arrays of its own stream: that raises.
    """
    chosen = state.as_stream(stream)
    posted = Ticket(chosen, f"foreign work opened at {place(user_origin(0))}") if ticket else None
    _record(chosen, ForeignCall(function, posted), tuple(reads), tuple(writes))
    chosen.device.start(chosen)
    return posted


def _open(stream: Stream, reads: tuple[array, ...], writes: tuple[array, ...]) -> Foreign:
    runtime = state.runtime
    ticket = Ticket(stream, f"foreign work opened at {place(user_origin(0))}")
    ticket.opener = runtime.platform.thread_id()
    ready_at = runtime.platform.channel("foreign slot reached")

    def reached(r: tuple[Any, ...], w: tuple[Any, ...]) -> None:
        stream.blocked = ticket
        ready_at.put((r, w))

    blocked = stream.blocked
    if blocked is not None:
        blocked.refuse_opener()
    _record(stream, ForeignCall(reached, ticket), reads, writes)
    stream.device.start(stream)  # the stream's worker stands at the slot until the ticket comes
    r, w = ready_at.get()
    return Foreign(stream, ticket, r, w)


def _record(stream: Stream, kernel: ForeignCall, reads: tuple[array, ...], writes: tuple[array, ...]) -> None:
    """Put `kernel` into the order of `stream`, with fresh buffers for `writes` that hold their old contents."""
    runtime = state.runtime
    nodes = [a._node for a in (*reads, *writes)]
    evaluate(nodes)
    origin = user_origin(0)
    while True:
        try:
            with runtime.lock:
                if runtime.gate.held:
                    runtime.gate.check()
                encoder = stream.encoder
                encoder.begin((), origin)
                try:
                    made = []
                    for a in writes:
                        old = a._node.data.operand
                        out = encoder.output(old.layout.dense, donate=False)
                        encoder.copy(old, out)
                        made.append(out)
                    encoder.dispatch(kernel, tuple(a._node.data.operand for a in reads), tuple(made))
                except BaseException:
                    encoder.roll_back()
                    raise
                owners = encoder.accept(tuple(made))
                stream.commit()
            break
        except Pressure:
            runtime.retire_oldest()
        except Gated as gated:
            gated.wait()
    for a, data in zip(writes, owners, strict=True):
        a._node = _evaluated(data, stream, origin)


def _evaluated(data: Data, stream: Stream, origin: Any) -> Node:
    node = Node(None, (), data.operand.layout.dense, stream, origin)  # type: ignore[union-attr]
    node.data = data
    return node


async def ready(*arrays: array) -> None:
    """Await arrays without blocking the event loop: their work runs on their streams' workers.

    Raises SerializedScope inside `serialized()`, where another task could need the loop that this one gives away.
    """
    import asyncio

    if state.runtime.gate.mine:
        raise SerializedScope(
            "[ready] An await inside execution.serialized() would let another task in; evaluate with mx.eval there."
        )
    nodes = [a._node for a in arrays]
    evaluate_async(nodes)
    await asyncio.to_thread(evaluate, nodes)


def audit() -> str:
    """Who holds which scope, and what waits for what, with the streams' ticks; text for people."""
    runtime = state.runtime
    platform = runtime.platform
    lines = [
        f"serialized scope: held by {runtime.gate.holder()}"
        + (f", depth {runtime.gate.held}" if runtime.gate.held else "")
    ]
    if runtime.gate.held:
        lines.append(platform.stack(runtime.gate.thread).rstrip())
    for stream in list(runtime.streams):
        runner = platform.thread_name(stream.runner) if stream.runner else "nobody"
        waiting = ", ".join(platform.thread_name(t) for t in list(stream.waiting)) or "nobody"
        lines.append(
            f"{stream}: committed {stream.committed}, complete {stream.completed}, recording "
            f"{len(stream.encoder.command_buffer.records)}; run by {runner}; waited for by {waiting}"
        )
        for command_buffer in list(stream.pending):
            waits = ", ".join(f"{s} tick {t}" for s, t in command_buffer.waits.items() if s.completed < t)
            lines.append(f"  {command_buffer!r}" + (f" waits for {waits}" if waits else ""))
            lines += [
                f"    {record[1].ticket.label}: {record[1].ticket.state}"
                for record in list(command_buffer.records)
                if isinstance(record[1], ForeignCall) and record[1].ticket is not None
            ]
    return "\n".join(lines) + "\n"


def audit_on_signal(number: int = signal.SIGUSR1) -> None:
    """Print `audit()` on stderr when the process gets a signal (SIGUSR1). Raises ValueError outside of the main thread."""
    if threading.current_thread() is not threading.main_thread():
        raise ValueError("[audit_on_signal] Signals are handled by the main thread; call this there.")

    def handler(number: int, frame: Any) -> None:
        # On a thread of its own: the interrupted one may hold any lock.
        threading.Thread(target=lambda: sys.stderr.write(audit()), daemon=True).start()

    signal.signal(number, handler)
