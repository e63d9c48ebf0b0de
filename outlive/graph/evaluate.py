"""Evaluation: the tape of what is not computed yet, encoded node by node, committed in pieces, and waited for.

The tape holds each needed node after its inputs. Nodes drop their inputs when they are encoded, so memory does not grow with the length of
a chain. A node whose encoding raises stays as it was; what was encoded before it is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.graph.node import Node
from outlive.graph.primitive import Migrate, Pick
from outlive.graph.state import runtime, several_devices
from outlive.runtime.command_buffer import COMPLETED, CommandBuffer
from outlive.runtime.encoder import NEVER, Donation
from outlive.runtime.errors import Pressure
from outlive.runtime.gate import Gated
from outlive.runtime.stream import LIMIT_RUN_AHEAD, Stream

NODES_PER_PIECE = 1024
"""Nodes encoded into one command buffer of a stream before the lock is given up."""


def build_tape(roots: Sequence[Node], mark: int) -> list[Node]:
    """The nodes without data that `roots` need, each after its inputs; iterative, so depth does not matter."""
    tape: list[Node] = []
    stack = list(roots)
    append = tape.append
    while stack:
        node = stack[-1]
        seen = node.mark
        if seen == -mark:
            stack.pop()
            node.mark = mark
            append(node)
        elif seen == mark or node.data is not None:
            stack.pop()
        else:
            node.mark = -mark
            if node.primitive is None:
                raise ValueError(
                    "[eval] An array that stands for an argument of a transformed function has no value; evaluate outside of "
                    "grad, vmap or compile."
                )
            stack.extend([i for i in node.inputs if i.data is None and i.mark != mark and i.mark != -mark])
    return tape


def schedule(roots: Sequence[Node]) -> list[Stream]:
    """Encode and commit what `roots` need; the streams that got work. Raises what encoding raises.

    The lock is given up after each piece of the tape, and where memory is short until the oldest work is over.
    """
    touched: list[Stream] = []
    tape: list[Node] | None = None
    while True:
        try:
            with runtime.lock:
                if runtime.gate.held:
                    runtime.gate.check()
                if runtime.mailbox:
                    runtime.drain()
                if tape is None:
                    runtime.tape_mark = mark = runtime.tape_mark + 1
                    tape = build_tape(roots, mark)
                    tape.reverse()
                try:
                    _encode_tape(tape, touched)
                finally:
                    for stream in touched:
                        stream.commit()
        except Pressure:
            runtime.retire_oldest()
        except Gated as gated:
            gated.wait()
        else:
            if not tape:
                return touched
            for stream in touched:
                if stream.committed - stream.completed > LIMIT_RUN_AHEAD:
                    runtime.throttle(stream)


def _encode_tape(tape: list[Node], touched: list[Stream]) -> None:
    """Encode a piece of a reversed tape. A node leaves the tape when it is encoded; one that raises stays on it."""
    stream: Any = None
    encoder: Any = None
    pop = tape.pop
    several = several_devices()
    left = max(0, len(tape) - NODES_PER_PIECE)
    while len(tape) > left:
        node = tape[-1]
        if node.data is not None:  # another thread was here between two pieces
            pop()
            continue
        if node.stream is not stream:
            stream = node.stream
            encoder = stream.encoder
            if stream not in touched:
                touched.append(stream)
        inputs = node.inputs
        primitive: Any = node.primitive
        traced: Any = node.traced
        if traced and not traced.live:
            traced = False
        if type(primitive) is Pick:
            node.data = inputs[0].data[primitive.index]
        elif several and _crosses(node):
            node.data = _encode_migrating(encoder, node)
        elif traced:
            node.data = _encode_traced(encoder, node)
        else:
            if primitive.pairs and len(inputs) == 2:
                node.data = encoder.pair(primitive, inputs, node.layout, node.origin)
            if node.data is None:
                node.data = _encode(encoder, node)
        if traced:
            traced.kept.append(node)
        else:
            node.inputs = ()
            node.primitive = None
        pop()


def _encode(encoder: Any, node: Node) -> Any:
    """Encode one op as a transaction; the owner (or owners) of what it made."""
    inputs = node.inputs
    encoder.begin(inputs, node.origin)
    try:
        result = node.primitive.encode(encoder, tuple([i.data.operand for i in inputs]), node.layout)  # type: ignore[union-attr]
    except BaseException:
        encoder.roll_back()
        raise
    return encoder.accept(result)


def _encode_traced(encoder: Any, node: Node) -> Any:
    """Encode a node that keeps its inputs for a transform: nothing of theirs may be given away."""
    saved, Donation.node = Donation.node, NEVER
    try:
        return _encode(encoder, node)
    finally:
        Donation.node = saved


def _crosses(node: Node) -> bool:
    """Whether an input lives on another device than the op's."""
    allocator = node.stream.device.allocator  # type: ignore[union-attr]
    for i in node.inputs:  # noqa: SIM110  (no generator: this runs for every op)
        if i.data.operand.buffer.block.allocator is not allocator:
            return True
    return False


def _encode_migrating(encoder: Any, node: Node) -> Any:
    """Encode an op after bringing its inputs to its device. The graph keeps the inputs where they are."""
    own = node.inputs
    brought = []
    for i in own:
        if i.data.operand.buffer.device is not node.stream.device:  # type: ignore[union-attr]
            i = Node(Migrate.make(), (i,), i.layout, node.stream, node.origin)
            i.data = _encode(encoder, i)
        brought.append(i)
    node.inputs = tuple(brought)
    del brought, i  # another reference would hide what was brought from donation
    try:
        return _encode_traced(encoder, node) if node.traced else _encode(encoder, node)
    finally:
        node.inputs = own


def evaluate(nodes: Sequence[Node]) -> None:
    """Compute `nodes` and wait for them. Raises what encoding raises, or the failure of the first failed one."""
    for node in nodes:
        if node.data is None:
            schedule([n for n in nodes if n.data is None])
            break
    failure = None
    for node in nodes:
        buffer = node.data.operand.buffer
        write = buffer.write
        if write is not None and write.state < COMPLETED:
            _wait_for_write(write)
        if failure is None:
            failure = buffer.failure
    if failure is not None:
        raise failure.error()


def evaluate_async(nodes: Sequence[Node]) -> None:
    """Start computing `nodes`. Failures show when an array is read."""
    pending = [n for n in nodes if n.data is None]
    if not pending:
        return
    for stream in schedule(pending):
        stream.device.start(stream)
        runtime.throttle(stream)


def wait_for(node: Node) -> None:
    """Return when the node's contents exist (or never will)."""
    write = node.data.operand.buffer.write
    if write is not None and write.state < COMPLETED:
        _wait_for_write(write)


def _wait_for_write(write: CommandBuffer) -> None:
    stream = write.stream
    if not write.tick:
        with runtime.lock:
            stream.commit()
    stream.device.wait(stream, write.fence.tick)
