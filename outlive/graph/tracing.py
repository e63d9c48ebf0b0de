"""`Trace`: one transform while it runs a user's function. Nodes that depend on its arguments say so and keep their
inputs when evaluated.

A trace is live until its transform is over, and with it those inside it: what an inner transform made may still be
needed by an outer one. Then its nodes are like any others.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlive.graph.node import Node


class _Innermost(threading.local):
    """The innermost trace of this thread."""

    trace: Trace | None = None


_innermost = _Innermost()


class Trace:
    """A context: open while a transform works. `kept`: evaluated nodes that keep their inputs for it."""

    __slots__ = ("kept", "open", "parent")

    def __init__(self) -> None:
        self.open = False
        self.parent: Trace | None = None
        self.kept: list[Node] = []

    @property
    def live(self) -> bool:
        """Whether a transform may still walk the nodes of this trace."""
        trace: Trace | None = self
        while trace is not None:
            if trace.open:
                return True
            trace = trace.parent
        return False

    def __enter__(self) -> Trace:
        self.parent = _innermost.trace
        self.open = True
        _innermost.trace = self
        return self

    def __exit__(self, *error: Any) -> None:
        _innermost.trace = self.parent
        self.open = False
        kept, self.kept = self.kept, []
        if self.parent is not None and self.live:
            self.parent.kept.extend(kept)
            return
        for node in kept:
            node.inputs = ()
            node.primitive = None


def trace_of(inputs: Sequence[Node]) -> Trace | bool:
    """The live trace that a node with these inputs belongs to; False where there is none."""
    for node in inputs:
        trace: Any = node.traced
        if trace and trace.live:
            return trace  # type: ignore[no-any-return]
    return False


__all__ = ["Trace", "trace_of"]
