"""The conformance suite of a device: what the runtime relies on, as checks that any backend must pass unchanged.

    from outlive.check import conformance
    conformance.run(lambda runtime: MyDevice(runtime))

Each check gets a fresh runtime on the machine's platform and works through the runtime's own interface, with kernels that have reference
implementations alone. `docs/writing-a-backend.md` tells what each rule is for.
"""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from outlive.graph import dtypes
from outlive.host.machine import Machine
from outlive.runtime.buffer import Data, Operand
from outlive.runtime.command_buffer import COMPLETED
from outlive.runtime.layout import layout, strided_layout
from outlive.runtime.runtime import Runtime

COUNT = 65


class Nonconformance(AssertionError):
    """A device broke a rule; the text names the check and what was seen."""


class AddOne:
    """out = a + 1."""

    name = "conformance add one"

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        writes[0][...] = reads[0] + 1


class Fails:
    """A kernel that raises."""

    name = "conformance fails"

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        raise ArithmeticError("this kernel never succeeds")


ADD_ONE, FAILS = AddOne(), Fails()


class Bench:
    """A device with its runtime, and the few steps that the checks are made of."""

    def __init__(self, make: Callable[[Runtime], Any]) -> None:
        self.runtime = Runtime(Machine())
        self.device = make(self.runtime)

    @classmethod
    def of(cls, runtime: Runtime, device: Any) -> Bench:
        """A bench over a device that exists: the simulated one inside a schedule."""
        bench = object.__new__(cls)
        bench.runtime, bench.device = runtime, device
        return bench

    def stream(self) -> Any:
        return self.runtime.new_stream(self.device)

    def array(self, values: np.ndarray, dtype: Any = dtypes.float32) -> Data:
        shape = layout(values.shape, dtype)
        operand = Operand(self.runtime.allocate(self.device, shape.nbytes, None), shape)
        self.device.copy_in(values, operand)
        return Data(operand)

    def apply(self, stream: Any, kernel: Any, source: Data) -> Data:
        """Record `kernel` over an array; the owner of the result."""
        with self.runtime.lock:
            encoder = stream.encoder
            encoder.begin((), None)
            out = encoder.output(source.operand.layout, donate=False)  # type: ignore[union-attr]
            encoder.dispatch(kernel, (source.operand,), (out,))
            return encoder.accept(out)

    def commit(self, stream: Any) -> Any:
        with self.runtime.lock:
            return stream.commit()

    def read(self, data: Data) -> np.ndarray:
        return np.array(self.device.copy_out(data.operand))

    def end(self) -> None:
        self.runtime.synchronize()
        self.runtime.stop()


def require(held: bool, words: str) -> None:
    """Raise Nonconformance unless something held."""
    if not held:
        raise Nonconformance(words)


def memory_is_distinct_and_aligned(bench: Bench) -> None:
    """Allocations do not overlap, begin at multiples of 64 bytes, and may be empty."""
    with bench.runtime.lock:
        taken = [(size, bench.device.allocator.allocate(size, None)) for size in (64, 64, 4096, 64)]
    ends = sorted((buffer.pointer, buffer.pointer + size) for size, buffer in taken)
    require(all(a[1] <= b[0] for a, b in itertools.pairwise(ends)), "allocations overlap")
    require(all(buffer.pointer % 64 == 0 for _, buffer in taken), "an allocation is not aligned to 64 bytes")
    with bench.runtime.lock:
        for _, buffer in taken:
            bench.device.allocator.release(buffer)


def values_go_in_and_come_out(bench: Bench) -> None:
    """`copy_in` and `copy_out` keep every bit, of every type, of empty arrays and of views."""
    for dtype in dtypes.ALL:
        for shape in ((), (1,), (0, 3), (3, 5), (COUNT,)):
            size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            values = (np.arange(size, dtype=np.int64) % 2).astype(np.uint8).view(dtype.storage).reshape(shape)
            data = bench.array(values, dtype)
            require(bench.read(data).tobytes() == values.tobytes(), f"{dtype.name}{list(shape)} came out different")
    table = np.arange(12, dtype=np.float32).reshape(3, 4)
    data = bench.array(table)
    assert data.operand is not None
    seen = Operand(data.operand.buffer, strided_layout((4, 2), (1, 4), dtypes.float32), 16)
    require(
        (np.array(bench.device.copy_out(seen)) == table[1:].T).all(), "a strided view at an offset came out different"
    )


def work_is_done_in_order(bench: Bench) -> None:
    """Records of a stream happen in the order in which they were recorded, across command buffers."""
    stream = bench.stream()
    data = bench.array(np.zeros(COUNT, np.float32))
    for i in range(20):
        data = bench.apply(stream, ADD_ONE, data)
        if i % 3 == 0:
            bench.commit(stream)
    fence = bench.commit(stream)
    bench.runtime.wait(fence)
    require(stream.completed >= fence.tick, "wait returned before its tick was complete")
    require((bench.read(data) == 20).all(), "records were lost or reordered")


def streams_wait_for_each_other(bench: Bench) -> None:
    """A command buffer begins after the ticks that it waits for."""
    a, b = bench.stream(), bench.stream()
    data = bench.array(np.zeros(COUNT, np.float32))
    for i in range(20):
        data = bench.apply(a if i % 2 else b, ADD_ONE, data)
    fences = [bench.commit(a), bench.commit(b)]
    for fence in fences:
        bench.runtime.wait(fence)
    require((bench.read(data) == 20).all(), "a command buffer began before what it waits for was over")


def completion_lets_go_of_everything(bench: Bench) -> None:
    """A complete command buffer keeps no operand, and its handlers have run once."""
    stream = bench.stream()
    source = bench.array(np.zeros(COUNT, np.float32))
    assert source.operand is not None
    buffer = weakref.ref(source.operand.buffer)
    calls: list[int] = []
    result = bench.apply(stream, ADD_ONE, source)
    command_buffer = stream.encoder.command_buffer
    command_buffer.handlers.append(lambda: calls.append(1))
    bench.runtime.wait(bench.commit(stream))
    require(command_buffer.state >= COMPLETED, "the command buffer of a complete tick is not complete")
    require(calls == [1], f"a completion handler ran {len(calls)} times")
    del source
    with bench.runtime.lock:
        bench.runtime.drain()
    gc.collect()
    require(buffer() is None, "a complete command buffer still keeps an operand")
    require((bench.read(result) == 1).all(), "the result is wrong")


def failures_stay_with_their_arrays(bench: Bench) -> None:
    """A kernel that raises marks what it should have written, and what is made from that; other arrays are fine, before and after it."""
    stream, other = bench.stream(), bench.stream()
    source = bench.array(np.zeros(COUNT, np.float32))
    before = bench.apply(stream, ADD_ONE, source)
    failed = bench.apply(stream, FAILS, before)
    derived = bench.apply(other, ADD_ONE, failed)
    after = bench.apply(stream, ADD_ONE, source)
    for s in (stream, other):
        bench.runtime.wait(bench.commit(s))
    for data, name in ((failed, "failed"), (derived, "derived from it")):
        failure = data.operand.buffer.failure  # type: ignore[union-attr]
        require(failure is not None, f"the array that {name} is not marked")
        require(
            failure is not None and isinstance(failure.cause, ArithmeticError),
            "the failure does not hold the kernel's own error",
        )
    for data in (before, after):
        require(data.operand.buffer.failure is None, "an unrelated array is marked as failed")  # type: ignore[union-attr]
        require((bench.read(data) == 1).all(), "an unrelated array is wrong")


def work_goes_on_by_itself(bench: Bench) -> None:
    """After `start`, committed work ends without anybody waiting for it."""
    stream = bench.stream()
    data = bench.apply(stream, ADD_ONE, bench.array(np.zeros(COUNT, np.float32)))
    fence = bench.commit(stream)
    bench.device.start(stream)
    platform = bench.runtime.platform
    deadline = platform.now_ns() + 10_000_000_000
    while not _over(bench, fence) and platform.now_ns() < deadline:
        platform.sleep(1e-3)
    require(_over(bench, fence), "started work had not ended after 10 s")
    bench.runtime.wait(fence)
    require((bench.read(data) == 1).all(), "the result is wrong")


def _over(bench: Bench, fence: Any) -> bool:
    poll = getattr(fence.stream.state, "poll", None)
    if poll is not None:
        poll()
    with bench.runtime.lock:
        bench.runtime.drain()
    return bool(fence.complete)


def commit_never_waits(bench: Bench) -> None:
    """`commit` returns under the runtime's lock though what it waits for is not complete."""
    a, b = bench.stream(), bench.stream()
    data = bench.apply(a, ADD_ONE, bench.array(np.zeros(COUNT, np.float32)))
    data = bench.apply(b, ADD_ONE, data)
    with bench.runtime.lock:
        b.commit()
    bench.runtime.synchronize()
    require((bench.read(data) == 2).all(), "the result is wrong")


def memory_comes_back(bench: Bench) -> None:
    """When all arrays are gone, all memory can go back to the driver, and the ledger says so."""
    stream = bench.stream()
    for size in (1, 64, 4097, 1 << 20):
        data = bench.apply(stream, ADD_ONE, bench.array(np.zeros(size, np.float32)))
        bench.runtime.wait(bench.commit(stream))
        del data
    bench.runtime.synchronize()
    gc.collect()
    with bench.runtime.lock:
        bench.device.allocator.clear_cache()
    ledger = bench.device.ledger
    require(ledger.live == 0, f"{ledger.live} bytes are still live")
    require(ledger.cached == 0 and ledger.quarantined == 0, "memory stays in the cache or in quarantine")
    require(
        ledger.allocated == ledger.pinned + ledger.rings + ledger.libraries, f"{ledger.allocated} bytes did not go back"
    )


CHECKS: tuple[Callable[[Bench], None], ...] = (
    memory_is_distinct_and_aligned,
    values_go_in_and_come_out,
    work_is_done_in_order,
    streams_wait_for_each_other,
    completion_lets_go_of_everything,
    failures_stay_with_their_arrays,
    work_goes_on_by_itself,
    commit_never_waits,
    memory_comes_back,
)


def run(make: Callable[[Runtime], Any]) -> None:
    """Run every check on devices that `make(runtime)` makes. Raises Nonconformance naming the first check that fails."""
    for check in CHECKS:
        bench = Bench(make)
        try:
            check(bench)
        except Nonconformance as error:
            raise Nonconformance(f"[{check.__name__}] {error}") from None
        finally:
            bench.end()
