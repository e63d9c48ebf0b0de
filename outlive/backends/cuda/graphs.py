"""Word lists as executable graphs: captured once, launched again as they are, or updated in place when only parameters
differ.

A kernel in a graph costs the device a sixth of a launch and the host next to nothing. Capturing takes nothing from the
driver's memory pools: the kernels use buffers of ours, which the command buffer retains. The graphs' own memory counts
in the ledger's row `graphs`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from outlive.backends.cuda.driver import DriverError
from outlive.runtime.ledger import CapExceeded

if TYPE_CHECKING:
    from outlive.backends.cuda.device import CudaDevice

LIMIT_GRAPHS = 64
"""Executable graphs that one stream keeps; the one used longest ago goes first."""

BYTES_A_GRAPH, BYTES_A_NODE = 96 << 10, 2560
"""What an executable graph, and each kernel node of it, takes of the driver's memory: rounded up from what was
measured.
"""


class _Executable:
    """An executable graph, the words that it was last given, and the bytes that it counts in the ledger."""

    __slots__ = ("handle", "nbytes", "words")

    def __init__(self, handle: Any, words: Any, nbytes: int) -> None:
        self.handle = handle
        self.words = words
        self.nbytes = nbytes


class Graphs:
    """The executable graphs of one stream. Used under the stream's baton."""

    def __init__(self, device: CudaDevice, stream: int) -> None:
        self._device = device
        self._driver = device.driver
        self._stream = stream
        self._kept: OrderedDict[Hashable, _Executable] = OrderedDict()

    def again(self, key: Hashable, words: Any = None) -> bool:
        """Launch the graph kept under `key` if its words are `words` (None: whatever they are); whether it did."""
        found = self._kept.get(key)
        if found is None or (words is not None and found.words != words):
            return False
        self._kept.move_to_end(key)
        self._driver.launch_graph(found.handle, self._stream)
        return True

    def run(self, key: Hashable, words: Any, nodes: int) -> bool:
        """Launch `words` (of `nodes` kernels) as a graph kept under `key`; False when they cannot be captured, and
        nothing was queued.
        """
        if self.again(key, words):
            return True
        graph = self._captured(words)
        if graph is None:
            return False
        try:
            return self._launch(key, graph, words, nodes)
        finally:
            self._driver.destroy_graph(graph)

    def _captured(self, words: Any) -> Any:
        self._driver.begin_capture(self._stream)
        at, _ = self._driver.launch(words, self._stream)
        try:
            graph = self._driver.end_capture(self._stream)
        except DriverError as error:
            if error.sticky or at < 0:
                raise
            return None  # a launch inside was refused: launching directly will say which
        if at >= 0:
            self._driver.destroy_graph(graph)
            return None
        return graph

    def _launch(self, key: Hashable, graph: Any, words: Any, nodes: int) -> bool:
        found = self._kept.get(key)
        if found is not None and self._driver.update_graph(found.handle, graph):
            found.words = words
        else:
            if found is not None:
                self._drop(key)
            found = self._instantiated(graph, words, nodes)
            if found is None:
                return False
            self._kept[key] = found
            while len(self._kept) > LIMIT_GRAPHS:
                self._drop(next(iter(self._kept)))
        self._kept.move_to_end(key)
        self._driver.launch_graph(found.handle, self._stream)
        return True

    def _instantiated(self, graph: Any, words: Any, nodes: int) -> _Executable | None:
        """An executable graph, counted before the driver makes it; None where it does not fit under the cap."""
        nbytes = BYTES_A_GRAPH + nodes * BYTES_A_NODE
        runtime, ledger = self._device.runtime, self._device.ledger
        with runtime.lock:
            try:
                ledger.reserve(nbytes)
            except CapExceeded:
                return None
        try:
            handle = self._driver.instantiate(graph)
        except BaseException:
            with runtime.lock:
                ledger.refund(nbytes, "reserved")
            raise
        with runtime.lock:
            ledger.settle(nbytes, "graphs")
        return _Executable(handle, words, nbytes)

    def _drop(self, key: Hashable) -> None:
        """The driver frees a graph that still runs when it is over."""
        found = self._kept.pop(key)
        self._driver.destroy_executable(found.handle)
        with self._device.runtime.lock:
            self._device.ledger.refund(found.nbytes, "graphs")
