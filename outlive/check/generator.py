"""Random programs over the public API: views, in-place updates, several streams and threads, asynchronous evaluation, dropped arrays, ops
that fail, and outside work. A program is data, so that it can be printed, replayed from its seed, and made smaller.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import outlive.core as mx
from outlive import execution
from outlive.backends.sim.device import DriverFault
from outlive.graph import state
from outlive.graph.array import apply
from outlive.graph.host import scalars
from outlive.graph.primitive import Primitive
from outlive.runtime.errors import ExecutionError, OutOfMemory
from outlive.runtime.layout import layout

SHAPES = ((3,), (7,), (1,), (0,), (2, 3), (4, 4), (3, 5), (2, 2, 3), (63,), (65,))
DTYPES = ("float32", "float32", "float32", "int32", "bfloat16", "float16")
STREAMS = 3
UNARY = ("negative", "abs", "square")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")
LIMIT_RETRIES = 40
"""Attempts of a step that an injected fault interrupts: more than the faults of a schedule."""


class Step(NamedTuple):
    """One line of a program: an operation, the names that it reads, the name that it makes, and parameters."""

    op: str
    reads: tuple[int, ...] = ()
    makes: int = -1
    parameters: tuple[Any, ...] = ()

    def __str__(self) -> str:
        reads = ", ".join(f"a{i}" for i in self.reads)
        parameters = ", ".join(map(repr, self.parameters))
        call = f"{self.op}({', '.join(filter(None, (reads, parameters)))})"
        return f"a{self.makes} = {call}" if self.makes >= 0 else call


class FailsWhenEncoded(Primitive):
    """An op whose encoding raises after it recorded work: nothing of it may remain."""

    __slots__ = ()
    name = "fails when encoded"

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        scratch = encoder.temporary(layout.nbytes + 64, layout.dtype)
        encoder.fill(scratch, 1)
        out = encoder.output(layout)
        encoder.copy(encoder.reshaped(inputs[0], inputs[0].layout), out)
        raise ValueError("[check] this op never encodes")


class FailsWhenRun(Primitive):
    """An op whose kernel raises."""

    __slots__ = ()
    name = "fails when run"

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        raise ArithmeticError("this kernel never succeeds")


class Scratched(Primitive):
    """A copy by way of a temporary, with a pad filled from a one-element operand: what padded convolutions do."""

    __slots__ = ()
    name = "scratched"

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        scratch = encoder.temporary(layout.nbytes, layout.dtype)
        target = encoder.reshaped(scratch, layout)
        encoder.fill(target, 0)
        encoder.copy(inputs[0], target)
        out = encoder.output(layout, donate=False)
        encoder.copy(target, out)
        return out


class Generator:
    """Draws the steps of one program from a seed, keeping track of shapes and types."""

    def __init__(self, seed: int, length: int, threads: int) -> None:
        self.rng = random.Random(seed)
        self.length = length
        self.threads = threads
        self.shapes: dict[int, tuple[tuple[int, ...], str]] = {}
        self.next_name = 0
        self.steps: list[Step] = []

    def add(
        self, op: str, reads: Sequence[int] = (), kind: tuple[tuple[int, ...], str] | None = None, *parameters: Any
    ) -> int:
        makes = -1
        if kind is not None:
            makes = self.next_name
            self.next_name += 1
            self.shapes[makes] = kind
        self.steps.append(Step(op, tuple(reads), makes, parameters))
        return makes

    def pick(self, kind: tuple[tuple[int, ...], str] | None = None) -> int | None:
        """A living array, of a given shape and type if asked for; recent ones more often."""
        found = [name for name, has in self.shapes.items() if kind is None or has == kind]
        if not found:
            return None
        return found[-1 - min(int(self.rng.expovariate(0.5)), len(found) - 1)]

    def stream(self) -> int:
        return self.rng.randrange(STREAMS)

    def new(self) -> int:
        shape, dtype = self.rng.choice(SHAPES), self.rng.choice(DTYPES)
        return self.add("array", (), (shape, dtype), self.rng.randrange(1 << 16), shape, dtype)

    def build(self) -> list[Step]:
        for _ in range(3):
            self.new()
        makers = (
            (self.new, 2), (self.unary, 3), (self.binary, 8), (self.scalar, 3), (self.view, 4), (self.update, 4), (self.reduce, 1),
            (self.matmul, 1), (self.take, 1), (self.scratched, 2), (self.evaluate, 3), (self.drop, 4), (self.read, 2), (self.fail, 1),
            (self.foreign, 1), (self.memory, 1),
        )  # fmt: skip
        kinds, weights = zip(*makers, strict=True)
        while len(self.steps) < self.length:
            self.rng.choices(kinds, weights)[0]()
        if self.threads > 1:
            self.split_over_threads()
        return self.steps

    def unary(self) -> None:
        a = self.pick()
        if a is not None:
            self.add(self.rng.choice(UNARY), (a,), self.shapes[a], self.stream())

    def binary(self) -> None:
        a = self.pick()
        if a is None:
            return
        b = self.pick(self.shapes[a])
        self.add(self.rng.choice(BINARY), (a, b if b is not None else a), self.shapes[a], self.stream())

    def scalar(self) -> None:
        a = self.pick()
        if a is not None:
            self.add("add_scalar", (a,), self.shapes[a], self.rng.choice((0, 1, 2, 3)), self.stream())

    def view(self) -> None:
        a = self.pick()
        if a is None:
            return
        shape, dtype = self.shapes[a]
        how = self.rng.choice(("transpose", "flatten", "part", "broadcast", "bits"))
        if how == "bits":
            self.add(how, (a,), (shape, dtype), self.stream())
        elif how == "transpose":
            self.add(how, (a,), (shape[::-1], dtype), self.stream())
        elif how == "flatten":
            size = 1
            for n in shape:
                size *= n
            self.add(how, (a,), ((size,), dtype), self.stream())
        elif how == "broadcast":
            self.add(how, (a,), ((2, *shape), dtype), self.stream())
        elif shape and shape[0] > 1:
            self.add(how, (a,), ((shape[0] - 1, *shape[1:]), dtype), self.rng.randrange(2))

    def update(self) -> None:
        """a[:n] = b or a += b: in place where nobody else sees it."""
        a = self.pick()
        if a is None:
            return
        shape, dtype = self.shapes[a]
        if self.rng.random() < 0.5 and shape and shape[0] > 1:
            b = self.pick(((shape[0] - 1, *shape[1:]), dtype))
            if b is not None:
                self.add("assign", (a, b))
                return
        b = self.pick(self.shapes[a])
        if b is not None:
            self.add("add_in_place", (a, b))

    def reduce(self) -> None:
        a = self.pick()
        if a is not None and 0 not in self.shapes[a][0]:
            self.add("max", (a,), ((), self.shapes[a][1]), self.stream())

    def matmul(self) -> None:
        a = self.pick(((4, 4), "float32"))
        b = self.pick(((4, 4), "float32"))
        if a is not None and b is not None:
            self.add("matmul", (a, b), ((4, 4), "float32"), self.stream())

    def take(self) -> None:
        a = self.pick()
        if a is not None and self.shapes[a][0] and self.shapes[a][0][0]:
            shape, dtype = self.shapes[a]
            index = tuple(self.rng.randrange(shape[0]) for _ in range(3))
            self.add("take", (a,), ((3, *shape[1:]), dtype), index, self.stream())

    def scratched(self) -> None:
        a = self.pick()
        if a is not None:
            self.add("scratched", (a,), self.shapes[a], self.stream())

    def evaluate(self) -> None:
        a = self.pick()
        if a is not None:
            self.add(self.rng.choice(("eval", "async_eval", "async_eval")), (a,))

    def drop(self) -> None:
        if len(self.shapes) > 3:
            a = self.pick()
            if a is not None:
                self.add("drop", (a,))
                del self.shapes[a]

    def read(self) -> None:
        a = self.pick()
        if a is not None:
            self.add(self.rng.choice(("read", "synchronize")), (a,))

    def fail(self) -> None:
        a = self.pick()
        if a is not None:
            self.add(self.rng.choice(("fail_encoding", "fail_running")), (a,), None, self.stream())

    def foreign(self) -> None:
        a = self.pick()
        if a is not None:
            self.add("foreign_copy", (a,), self.shapes[a], self.stream())

    def memory(self) -> None:
        self.add(self.rng.choice(("clear_cache", "active_memory")))

    def split_over_threads(self) -> None:
        """The second half runs in threads of their own, each over its own copies of the names that live by then."""
        cut = max(4, len(self.steps) // 2)
        head, tail = self.steps[:cut], self.steps[cut:]
        parts = tuple(tuple(tail) for _ in range(self.threads - 1))
        self.steps = [*head, Step("threads", (), -1, parts), *tail]


class RandomProgram:
    """A generated program; calling it runs it and returns what it read and what lives at its end."""

    def __init__(self, seed: int, length: int = 20, threads: int = 1, steps: Sequence[Step] | None = None) -> None:
        self.seed = seed
        self.steps = tuple(Generator(seed, length, threads).build() if steps is None else steps)

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))

    def __call__(self) -> Any:
        device = mx.default_device()
        streams = [mx.new_stream(device) for _ in range(STREAMS)]
        return Run(streams, {}).run(self.steps)


class Run:
    """The state of a running program: arrays by name, and what was read."""

    def __init__(self, streams: list[Any], arrays: dict[int, Any]) -> None:
        self.streams = streams
        self.arrays = arrays
        self.seen: list[Any] = []
        self.threads: list[tuple[Any, Run]] = []

    def run(self, steps: Sequence[Step]) -> Any:
        """Run the steps, and read what lives at the end."""
        for step in steps:
            self.attempt(step)
        for thread, _ in self.threads:
            thread.join()
        self.seen += [self.retry(lambda a=a: self.host(a)) for a in self.arrays.values()]
        self.arrays.clear()
        return [self.seen, [run.seen for _, run in self.threads]]

    def attempt(self, step: Step) -> None:
        """Run a step; one that names an array which a shrunk program no longer makes is passed over."""
        if any(i not in self.arrays for i in step.reads):
            return
        call = getattr(self, f"do_{step.op}")
        made = self.retry(lambda: call(step.parameters, *[self.arrays[i] for i in step.reads]))
        if step.op in ("add_in_place", "assign"):
            self.arrays[step.reads[0]] = made
        elif step.op == "drop":
            del self.arrays[step.reads[0]]
        elif step.makes >= 0:
            self.arrays[step.makes] = made

    @staticmethod
    def retry(call: Any) -> Any:
        """Memory that a fault refuses is there the next time: nothing was lost."""
        for _ in range(LIMIT_RETRIES):
            try:
                return call()
            except (OutOfMemory, DriverFault):
                continue
        return call()

    @staticmethod
    def host(a: Any) -> Any:
        """An array's values; what failed on purpose says so, what failed by an injected fault ends the program."""
        try:
            return np.array(scalars(a))
        except ExecutionError as error:
            if isinstance(error.__cause__, ArithmeticError):
                return "failed"
            raise

    def do_array(self, parameters: Any) -> Any:
        seed, shape, dtype = parameters
        size = int(np.prod(shape, dtype=np.int64))
        values = (np.arange(size) * 7 + seed) % 13
        return mx.array(values.reshape(shape).astype(np.float32)).astype(getattr(mx, dtype))

    def unary(self, name: str, parameters: Any, a: Any) -> Any:
        return getattr(mx, name)(a, stream=self.streams[parameters[0]])

    def binary(self, name: str, parameters: Any, a: Any, b: Any) -> Any:
        return getattr(mx, name)(a, b, stream=self.streams[parameters[0]])

    def __getattr__(self, name: str) -> Any:
        op = name.removeprefix("do_")
        if op in UNARY:
            return functools.partial(self.unary, op)
        if op in BINARY:
            return functools.partial(self.binary, op)
        raise AttributeError(name)

    def do_add_scalar(self, parameters: Any, a: Any) -> Any:
        return mx.add(a, parameters[0], stream=self.streams[parameters[1]])

    def do_transpose(self, parameters: Any, a: Any) -> Any:
        return mx.transpose(a, stream=self.streams[parameters[0]])

    def do_flatten(self, parameters: Any, a: Any) -> Any:
        return mx.reshape(a, (a.size,), stream=self.streams[parameters[0]])

    def do_bits(self, parameters: Any, a: Any) -> Any:
        """The same bits seen as integers and back: twice a view."""
        stream = self.streams[parameters[0]]
        if not a.ndim:
            return a
        integers = mx.uint32 if a.dtype.size == 4 else mx.uint16
        return mx.view(mx.view(a, integers, stream=stream), a.dtype, stream=stream)

    def do_broadcast(self, parameters: Any, a: Any) -> Any:
        return mx.broadcast_to(a, (2, *a.shape), stream=self.streams[parameters[0]])

    def do_part(self, parameters: Any, a: Any) -> Any:
        first = parameters[0]
        return a[first : first + a.shape[0] - 1]

    def do_assign(self, parameters: Any, a: Any, b: Any) -> Any:
        a[: a.shape[0] - 1] = b
        return a

    def do_add_in_place(self, parameters: Any, a: Any, b: Any) -> Any:
        a += b
        return a

    def do_max(self, parameters: Any, a: Any) -> Any:
        return mx.max(a, stream=self.streams[parameters[0]])

    def do_matmul(self, parameters: Any, a: Any, b: Any) -> Any:
        return mx.matmul(a, b, stream=self.streams[parameters[0]])

    def do_take(self, parameters: Any, a: Any) -> Any:
        return mx.take(a, mx.array(list(parameters[0])), axis=0, stream=self.streams[parameters[1]])

    def do_scratched(self, parameters: Any, a: Any) -> Any:
        return apply(Scratched.make(), (a,), layout(a.shape, a.dtype), self.streams[parameters[0]])

    def do_eval(self, parameters: Any, a: Any) -> None:
        self.host(a)

    def do_async_eval(self, parameters: Any, a: Any) -> None:
        mx.async_eval(a)

    def do_drop(self, parameters: Any, a: Any) -> None:
        """The name is dropped by the caller."""

    def do_read(self, parameters: Any, a: Any) -> None:
        self.seen.append(self.host(a))

    def do_synchronize(self, parameters: Any, a: Any) -> None:
        mx.async_eval(a)
        mx.synchronize()

    def do_fail_encoding(self, parameters: Any, a: Any) -> None:
        stream = self.streams[parameters[0]]
        twice = mx.negative(mx.negative(a, stream=stream), stream=stream)
        made = apply(FailsWhenEncoded.make(), (twice,), layout(a.shape, a.dtype), stream)
        for _ in range(2):
            try:
                mx.eval(made)
            except ValueError as error:
                self.seen.append(str(error))

    def do_fail_running(self, parameters: Any, a: Any) -> None:
        made = apply(FailsWhenRun.make(), (a,), layout(a.shape, a.dtype), self.streams[parameters[0]])
        self.seen.append(self.host(mx.add(made, made)))

    def do_foreign_copy(self, parameters: Any, a: Any) -> Any:
        out = mx.zeros(a.shape, a.dtype)
        if isinstance(self.host(a), str):
            return a
        execution.call(_copy_first, self.streams[parameters[0]], [a], [out])
        return out

    def do_clear_cache(self, parameters: Any) -> None:
        mx.clear_cache()

    def do_active_memory(self, parameters: Any) -> None:
        mx.get_active_memory()

    def do_threads(self, parts: Any) -> None:
        platform = state.runtime.platform
        for number, steps in enumerate(parts):
            run = Run(self.streams, {name: mx.array(a) for name, a in self.arrays.items()})
            thread = platform.thread(functools.partial(run.run, steps), f"thread {number + 1}")
            self.threads.append((thread, run))
            thread.start()


def _copy_first(reads: tuple[Any, ...], writes: tuple[Any, ...]) -> None:
    writes[0][...] = reads[0]
