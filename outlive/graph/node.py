"""`Node`: an array's place in the graph. It holds what makes it until it is encoded, and its data from then on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outlive.runtime.platform import shared

if TYPE_CHECKING:
    from outlive.graph.primitive import Primitive
    from outlive.graph.tracing import Trace
    from outlive.runtime.layout import Layout
    from outlive.runtime.origin import Origin
    from outlive.runtime.stream import Stream


@shared("data")
class Node:
    """One value of the graph.

    `primitive`, `inputs`: what makes it; dropped when it is encoded, unless its trace is live. `layout`: shape and type, dense. `data`:
    the owner (`Data` or `View`) of its buffer once encoded, a tuple of owners for an op with several results. `mark`: the tape that saw
    it. A placeholder of a transform has neither primitive nor data.
    """

    __slots__ = ("data", "inputs", "layout", "mark", "origin", "primitive", "stream", "traced")

    def __init__(
        self,
        primitive: Primitive | None,
        inputs: tuple[Node, ...],
        layout: Layout,
        stream: Stream | None,
        origin: Origin | None,
    ) -> None:
        self.primitive = primitive
        self.inputs = inputs
        self.layout = layout
        self.stream = stream
        self.origin = origin
        self.data: Any = None
        self.mark = 0
        self.traced: Trace | bool = False
