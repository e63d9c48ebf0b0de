"""Small programs, each aimed at one way of losing a buffer. The mutants are tried on these and on random programs in turn."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import outlive.core as mx
from outlive import execution
from outlive.check import unsafe
from outlive.check.generator import FailsWhenEncoded, FailsWhenRun, RandomProgram, Scratched
from outlive.graph import state
from outlive.graph.array import apply
from outlive.graph.primitive import Primitive
from outlive.runtime.errors import ExecutionError, OutOfMemory
from outlive.runtime.layout import layout

CAP_TIGHT = 5 * 256
"""Bytes for the scenarios that run near their cap."""


class SynchronizesInside(Primitive):
    """An op that commits and waits in the middle of its encoding, before it records anything."""

    __slots__ = ()
    name = "synchronizes inside"

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        if hasattr(encoder, "_stream"):
            unsafe.synchronize(encoder)
        out = encoder.output(layout, donate=False)
        encoder.copy(inputs[0], out)
        return out


def op(primitive: Primitive, a: Any, stream: Any) -> Any:
    """The result of a primitive without parameters, shaped like its input."""
    return apply(primitive, (a,), layout(a.shape, a.dtype), stream)


def padded_convolution() -> Any:
    """The convolution whose padding scalar was once freed before the device read it."""
    x = mx.ones((1, 4, 8, 8, 3))
    w = mx.ones((4, 2, 2, 2, 3))
    y = mx.conv3d(x, w, padding=1)
    mx.async_eval(y)
    one = mx.array(1.0)
    z = mx.conv3d(x, w)
    mx.async_eval(z)
    return mx.max(z), mx.max(y), one


def two_streams() -> Any:
    """Values that go to and fro between streams, each overwritten as soon as it may be."""
    a, b = mx.new_stream(mx.default_device()), mx.new_stream(mx.default_device())
    x = mx.arange(8, dtype=mx.float32)
    mx.async_eval(x)
    for _ in range(4):
        y = mx.add(x, 1, stream=a)
        mx.async_eval(y)
        z = mx.multiply(y, 2, stream=b)
        mx.async_eval(z)
        x = mx.subtract(y, 3, stream=a)
        mx.async_eval(x)
        del y
    return x, z


def read_then_overwritten() -> Any:
    """A long read on one stream of what another stream takes over and overwrites."""
    a, b = mx.new_stream(mx.default_device()), mx.new_stream(mx.default_device())
    x = mx.arange(64, dtype=mx.float32)
    sums = []
    for _ in range(3):
        part = mx.add(x, x, stream=a)
        mx.async_eval(part)
        sums.append(part)
        x = mx.add(x, 1, stream=b)
        mx.async_eval(x)
    return sums, x


def dropped_in_flight() -> Any:
    """Arrays dropped while work uses them, and new ones of the same size at once."""
    a, b = mx.new_stream(mx.default_device()), mx.new_stream(mx.default_device())
    kept = []
    for i in range(4):
        x = mx.full((16,), float(i))
        y = op(Scratched.make(), x, a)
        mx.async_eval(y)
        del x
        z = mx.full((16,), 100.0 + i, stream=b)
        mx.async_eval(z)
        kept += [y, z]
    return kept


def indices() -> Any:
    """An index operand that is overwritten on another stream right after its use."""
    a, b = mx.new_stream(mx.default_device()), mx.new_stream(mx.default_device())
    x = mx.arange(8, dtype=mx.float32)
    index = mx.add(mx.array([1, 2, 3]), 1, stream=b)
    taken = []
    for _ in range(3):
        y = mx.take(x, index, axis=0, stream=a)
        mx.async_eval(y)
        taken.append(y)
        index = mx.add(index, 1, stream=b)
        mx.async_eval(index)
    return taken


def shared_input() -> Any:
    """One value read by several ops of one command buffer, all others of its references gone."""
    x = mx.add(mx.arange(5, dtype=mx.float32), 1)
    y, z, w = mx.add(x, 1), mx.multiply(x, 2), mx.subtract(x, 3)
    del x
    mx.eval(y, z, w)
    return y, z, w


def views() -> Any:
    """Views that outlive the handle of what they show, and writes to the shown."""
    x = mx.arange(12, dtype=mx.float32)
    mx.eval(x)
    v, t = x[2:7], mx.transpose(mx.reshape(x, (3, 4)))
    mx.async_eval(v, t)
    x[3:5] = mx.array([100.0, 200.0])
    mx.async_eval(x)
    copy = mx.add(x, 0)
    del x
    fresh = mx.full((12,), 7.0)
    mx.eval(fresh)
    return v, t, copy, fresh


def fails_in_the_middle() -> Any:
    """Ops that raise while encoding and while running, beside ones that do not."""
    x = mx.arange(6, dtype=mx.float32)
    stream = mx.default_stream(mx.default_device())
    good = mx.add(x, 1)
    seen = []
    try:
        mx.eval(op(FailsWhenEncoded.make(), good, stream))
    except ValueError as error:
        seen.append(str(error))
    again = op(FailsWhenEncoded.make(), mx.negative(mx.negative(mx.add(x, 2))), stream)
    for _ in range(2):  # the node stays unevaluated, and so does nothing of what it reads get lost
        try:
            mx.eval(again)
        except ValueError as error:
            seen.append(str(error))
    bad = mx.add(op(FailsWhenRun.make(), good, stream), 1)
    mx.async_eval(bad)
    other = mx.multiply(good, 2)
    seen.append(other.tolist())
    try:
        mx.eval(bad)
    except ExecutionError as error:
        if not isinstance(error.__cause__, ArithmeticError):
            raise
        seen.append("raised")
    return seen, good, mx.add(other, 1)


def reused_after_a_failure() -> Any:
    """Memory of unfinished work that an op takes, gives back because it raises, and another stream gets next."""
    a, b = mx.new_stream(mx.default_device()), mx.new_stream(mx.default_device())
    kept = []
    for i in range(3):
        x = mx.full((40,), float(i), stream=a)
        y = mx.max(x, stream=a)
        mx.async_eval(y)
        del x
        try:
            mx.eval(op(FailsWhenEncoded.make(), mx.array([1.0] * 24), a))
        except ValueError:
            pass
        z = mx.full((40,), 50.0 + i, stream=b)
        mx.async_eval(z)
        kept += [y, z]
    return kept


def near_the_cap() -> Any:
    """Three threads that allocate near the cap, and try again where they are refused."""
    platform = state.runtime.platform

    def work() -> None:
        for i in range(3):
            for _ in range(40):
                try:
                    x = mx.full((60,), float(i))
                    mx.eval(x)
                    y = mx.add(x, 1)
                    mx.eval(y)
                    break
                except OutOfMemory:
                    continue

    threads = [platform.thread(work, f"worker {i}") for i in range(2)]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    mx.clear_cache()
    return None


def waits_for_memory() -> Any:
    """More values in flight than the cap holds at a time: each is served by waiting for the oldest, and none is refused."""
    a, b = mx.new_stream(mx.default_device()), mx.new_stream(mx.default_device())
    total = []
    x = mx.arange(60, dtype=mx.float32)
    for i in range(6):
        y = mx.add(x, x, stream=a if i % 2 else b)
        z = mx.max(mx.multiply(y, y, stream=a), stream=b)
        mx.async_eval(z)
        del y
        total.append(z)
    mx.eval(total)
    return total


def other_sizes() -> Any:
    """Memory of one size, cached, gives way to another size under a cap that does not hold both."""
    small = [mx.full((60,), float(i)) for i in range(3)]
    mx.eval(small)
    total = mx.sum(small[0])
    del small
    mx.eval(total)
    large = mx.full((200,), 1.0)
    mx.eval(large)
    return total, large


def reuses_in_order() -> Any:
    """Memory that a stream's own order frees is reused before any of the work has run: twelve values live in a few blocks."""
    stream = mx.default_stream(mx.default_device())
    x = mx.arange(200, dtype=mx.float32)
    for _ in range(12):
        x = op(Scratched.make(), x, stream)
    mx.async_eval(x)
    held = mx.get_active_memory() + mx.get_cache_memory()
    return held <= 5 * 1024, x


def limits_are_kept() -> Any:
    """The soft limits of the cache and of all memory hold after every evaluation."""
    seen = []
    mx.set_cache_limit(1024)
    for n in (50, 100, 200, 400):
        mx.eval(mx.add(mx.full((n,), 1.0), 1))
        seen.append(mx.get_cache_memory() <= 1024)
    mx.set_cache_limit(1 << 20)
    mx.set_memory_limit(4096)
    for n in (50, 100, 150, 200, 250, 300):
        mx.eval(mx.add(mx.full((n,), 1.0), 1))
        seen.append(mx.get_active_memory() + mx.get_cache_memory() <= 4096 + 2 * 1536)
    mx.synchronize()
    return seen


def runs_ahead() -> Any:
    """Many small evaluations without a wait: how far the host runs ahead of the device is bounded."""
    x = mx.arange(6, dtype=mx.float32)
    for _ in range(30):
        x = mx.add(x, 1)
        mx.async_eval(x)
    return x


def serialized_scope() -> Any:
    """Inside a serialized scope no other work is in flight, and none is left when it ends."""
    a = mx.new_stream(mx.default_device())
    x = mx.add(mx.arange(6, dtype=mx.float32), 1, stream=a)
    mx.async_eval(x)
    idle = []
    with execution.serialized():
        idle.append(all(not s.outstanding for s in state.runtime.streams))
        y = mx.multiply(x, 2, stream=a)
        mx.async_eval(y)
    idle.append(all(not s.outstanding for s in state.runtime.streams))
    return idle, x, y


def inside() -> Any:
    """An op that synchronizes in the middle of its encoding."""
    stream = mx.default_stream(mx.default_device())
    x = mx.full((16,), 3.0)
    y = op(SynchronizesInside.make(), mx.add(x, 1), stream)
    mx.async_eval(y)
    z = mx.add(y, 1)
    del y
    mx.async_eval(z)
    fresh = [mx.full((16,), float(i)) for i in range(3)]
    mx.async_eval(*fresh)
    return z, fresh


def two_threads() -> Any:
    """Two threads over one array, each with ops of its own."""
    platform = state.runtime.platform
    x = mx.arange(7, dtype=mx.float32)
    results: dict[int, Any] = {}

    def work(number: int) -> None:
        y = mx.add(x, number)
        for _ in range(3):
            y = mx.multiply(y, 2)
            mx.async_eval(y)
        results[number] = y.tolist()

    threads = [platform.thread(functools.partial(work, n), f"worker {n}") for n in (1, 2)]
    for thread in threads:
        thread.start()
    mx.eval(x)
    for thread in threads:
        thread.join()
    return [results[n] for n in sorted(results)], x


def outside_work() -> Any:
    """A foreign call between ops, on a stream of its own."""
    a, b = mx.new_stream(mx.default_device()), mx.new_stream(mx.default_device())
    x = mx.add(mx.arange(9, dtype=mx.float32), 1, stream=a)
    out = mx.zeros((9,))

    def double(reads: Any, writes: Any) -> None:
        writes[0][...] = reads[0] * 2

    execution.call(double, b, [x], [out])
    x = mx.add(x, 5, stream=a)
    mx.async_eval(x)
    return mx.add(out, 1, stream=a), x


def half_sums() -> Any:
    """Sums in half precision: the accumulator must not saturate."""
    return mx.sum(mx.full((3000,), 0.1, dtype=mx.float16)), mx.sum(mx.full((600,), 0.1, dtype=mx.bfloat16))


def read_by_three() -> Any:
    """One value read on three streams, then overwritten on one of them and dropped, and its memory taken by a fourth."""
    streams = [mx.new_stream(mx.default_device()) for _ in range(4)]
    x = mx.arange(16, dtype=mx.float32)
    mx.eval(x)
    seen = []
    for i in range(3):
        reads = [mx.add(x, n, stream=s) for n, s in enumerate(streams[:3])]
        mx.async_eval(reads)
        seen += reads
        x = mx.multiply(x, 2, stream=streams[i])
        mx.async_eval(x)
        fresh = mx.full((16,), float(i), stream=streams[3])
        mx.async_eval(fresh)
        seen.append(fresh)
    readers = [mx.add(x, n, stream=s) for n, s in enumerate(streams[:3])]
    mx.async_eval(readers)
    del x
    fresh = mx.full((16,), 9.0, stream=streams[3])
    mx.async_eval(fresh)
    return seen, readers, fresh


def donated_along_a_chain() -> Any:
    """A chain whose every value is needed once: it lives in one buffer, in place also where a slice is assigned."""
    x = mx.zeros((200,))
    mx.eval(x)
    mx.reset_peak_memory()
    for i in range(6):
        x = mx.negative(mx.multiply(mx.add(x, 1.0), 2.0))
        x[3:5] = mx.array([float(i), 1.0])
        x = mx.abs(x)
    mx.eval(x)
    return mx.get_peak_memory() < 2 * 832, x


class NotesCompletion(Primitive):
    """A copy that notes, through a handler on its open command buffer, how often its work completes."""

    __slots__ = ("calls",)
    name = "notes completion"
    calls: list[int]

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        out = encoder.output(layout, donate=False)
        encoder.copy(inputs[0], out)
        if hasattr(encoder, "_stream"):  # last, so that an op that is encoded again attaches one handler
            unsafe.attach(unsafe.command_buffer(encoder), lambda: self.calls.append(1))
        else:
            self.calls.append(1)
        return out


def handlers_run_once() -> Any:
    """A completion handler runs once, by the time that its work is known to be over."""
    calls: list[int] = []
    x = mx.arange(4, dtype=mx.float32)
    y = apply(NotesCompletion.make(calls), (x,), layout(x.shape, x.dtype))
    mx.eval(mx.add(y, 1))
    return len(calls), y


def compiled_views() -> Any:
    """A compiled function that returns an argument, a part of one, and a view of what it made."""

    def body(x: Any, w: Any) -> Any:
        y = mx.add(x, w)
        return mx.transpose(y), x[1:], w, mx.reshape(mx.multiply(y, 2), (16,))

    step = mx.compile(body)
    x, w = mx.reshape(mx.arange(16, dtype=mx.float32), (4, 4)), mx.full((4, 4), 0.5)
    seen = []
    for _ in range(3):
        t, part, w, flat = step(x, w)
        mx.async_eval(t, flat)
        x = mx.add(t, 1)
        seen += [part, flat]
    return x, w, seen


def padded() -> Any:
    """A pad with a one-element operand that is dropped at once, its stream left behind."""
    a, b = mx.new_stream(mx.default_device()), mx.new_stream(mx.default_device())
    kept = []
    for i in range(3):
        value = mx.add(mx.array(float(i)), 1, stream=b)
        y = mx.pad(mx.full((5,), 2.0), 2, constant_values=value, stream=a)
        mx.async_eval(y)
        del value
        kept += [y, mx.array(100.0 + i)]
    return kept


def compiled() -> Any:
    """A compiled function whose program has an arena of its own, called while its last result is still being made."""

    def body(x: Any, w: Any) -> Any:
        y = mx.matmul(x, w)
        z = mx.matmul(mx.abs(y), w)
        return mx.add(mx.matmul(z, y), mx.max(y)), mx.sum(z)

    step = mx.compile(body)
    x, w = mx.reshape(mx.arange(16, dtype=mx.float32), (4, 4)), mx.full((4, 4), 0.25)
    seen = []
    for _ in range(3):
        x, total = step(x, w)
        mx.async_eval(x, total)
        seen.append(total)
    return x, seen


class Scenario(NamedTuple):
    """A program and what it runs under."""

    name: str
    program: Callable[[], Any]
    cap: int | None = None
    faults: bool = True


SCENARIOS = (
    *(
        Scenario(f.__name__, f)
        for f in (two_streams, read_then_overwritten, dropped_in_flight, indices, shared_input, views)
    ),
    Scenario("fails_in_the_middle", fails_in_the_middle),
    Scenario("reused_after_a_failure", reused_after_a_failure),
    Scenario("near_the_cap", near_the_cap, CAP_TIGHT),
    Scenario("other_sizes", other_sizes, CAP_TIGHT, faults=False),
    Scenario("waits_for_memory", waits_for_memory, CAP_TIGHT + 8 * 64, faults=False),
    *(
        Scenario(f.__name__, f)
        for f in (
            inside,
            two_threads,
            outside_work,
            half_sums,
            padded_convolution,
            padded,
            compiled,
            read_by_three,
            donated_along_a_chain,
            handlers_run_once,
            compiled_views,
            reuses_in_order,
            limits_are_kept,
            runs_ahead,
            serialized_scope,
        )
    ),
)


def battery_profile(index: int) -> str:
    """The profile that program number `index` runs under: the CPU device's own queues now and then."""
    return "cpu" if index % 5 == 4 else "sim"


def battery(index: int) -> Scenario:
    """Program number `index` of the battery: the scenarios, and a random program after each."""
    if index % 2 == 0:
        return SCENARIOS[index // 2 % len(SCENARIOS)]
    return Scenario(f"random program {index}", RandomProgram(index, length=20, threads=1 + index % 3))
