"""`CommandEncoder`: all that a primitive gets. It makes outputs and temporaries, and records what runs.

It has no commit, no wait, no handler and no pointer. Whatever a record names is retained by the record; owners of what an op makes stay
with the encoder until the op succeeded, so nothing can be released in its middle. An op is a transaction: accesses enter after it
succeeded, and an error cuts its records off and gives donated buffers back.
"""

from __future__ import annotations

from sys import getrefcount
from typing import TYPE_CHECKING, Any

from outlive.runtime.buffer import Data, Operand, View
from outlive.runtime.builtin import BYTE, COPY, Fill, Workspaced
from outlive.runtime.command_buffer import COMPLETED, CommandBuffer, Record
from outlive.runtime.layout import Layout, layout, strided_layout

if TYPE_CHECKING:
    from outlive.runtime.buffer import Buffer
    from outlive.runtime.stream import Stream

NEVER = -1


def _owner(made: list[Any], result: Operand) -> Any:
    for data in made:
        if data.operand is result:
            return data
    raise RuntimeError("[eval] An op returned an operand that its encoder did not make.")


class Donation:
    """Reference counts at which an input's node and data belong to nobody but the op; `NEVER` until calibrated."""

    node = NEVER
    data = NEVER
    pair_node = NEVER
    pair_data = NEVER

    @classmethod
    def forbid(cls) -> None:
        """Donate nothing from here on."""
        cls.node = cls.data = cls.pair_node = cls.pair_data = NEVER


class CommandEncoder:
    """Records ops into the open command buffer of one stream."""

    __slots__ = (
        "_allocator",
        "_donors",
        "_inputs",
        "_made",
        "_mark",
        "_origin",
        "_records",
        "_stream",
        "command_buffer",
    )

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._allocator = stream.device.allocator
        self._inputs: tuple[Any, ...] = ()
        self._origin: Any = None
        self._made: list[Data | View] = []
        self._donors: list[tuple[Data, Operand]] = []
        self._open(CommandBuffer(stream))

    def _open(self, command_buffer: CommandBuffer) -> None:
        self.command_buffer = command_buffer
        self._records = command_buffer.records
        self._mark = 0

    # What a primitive uses

    def output(self, shape_and_type: Layout, donate: bool = True) -> Operand:
        """An operand for a result, dense; it takes an input's buffer over where nobody else refers to that input.

        `donate=False` for kernels that read an input after writing an output element of another place.
        """
        if donate and Donation.node != NEVER:
            for holder in self._inputs:
                data = holder.data
                if (
                    getrefcount(data) == Donation.data
                    and getrefcount(holder) == Donation.node
                    and type(data) is Data
                    and data.operand is not None
                    and data.operand.layout is shape_and_type
                ):
                    return self._take(data)
        buffer = self._allocator.allocate(shape_and_type.nbytes, self._stream, self._origin)
        operand = Operand(buffer, shape_and_type)
        self._made.append(Data(operand))
        return operand

    def donated(self, index: int) -> Operand | None:
        """Input `index` itself, to be written in place, where nobody else refers to it and it owns a dense buffer; None otherwise."""
        if Donation.node == NEVER:
            return None
        holder = self._inputs[index]
        data = holder.data
        if (
            getrefcount(data) == Donation.data
            and getrefcount(holder) == Donation.node
            and type(data) is Data
            and data.operand is not None
        ):
            return self._take(data)
        return None

    def _take(self, data: Data) -> Operand:
        operand = data.operand
        assert operand is not None
        data.operand = None
        self._donors.append((data, operand))
        self._made.append(Data(operand))
        return operand

    def temporary(self, nbytes: int, dtype: Any) -> Operand:
        """Scratch of `nbytes` for this op alone, seen as a vector of `dtype`."""
        return self.output(layout((nbytes // dtype.itemsize,), dtype), donate=False)

    def view(self, index: int, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Operand:
        """Input `index` in another shape: strides in elements, `offset` in elements from its first. Nothing is copied or run."""
        return self._view(index, strided_layout(shape, strides, self._inputs[index].data.operand.layout.dtype), offset)

    def view_as(self, index: int, seen: Layout) -> Operand:
        """Input `index` under another layout of the same bytes (also another type)."""
        return self._view(index, seen, 0)

    def _view(self, index: int, seen: Layout, offset: int) -> Operand:
        owner = self._inputs[index].data
        source = owner.operand
        operand = Operand(source.buffer, seen, source.offset + offset * source.layout.dtype.itemsize)
        self._made.append(View(operand, owner))
        return operand

    def reshaped(self, operand: Operand, seen: Layout, offset: int = 0) -> Operand:
        """A kernel's view of an operand that this op reads or writes; it owns nothing. `offset` in elements."""
        return Operand(operand.buffer, seen, operand.offset + offset * operand.layout.dtype.itemsize)

    def dispatch(self, kernel: Any, reads: tuple[Operand, ...], writes: tuple[Operand, ...]) -> None:
        """Record `kernel` over operands. Retains every buffer that it names."""
        launch = self._stream.device.select(kernel, reads, writes)
        if isinstance(launch, Workspaced):
            writes = (*writes, self.temporary(launch.workspace, BYTE))
        self._records.append((launch, kernel, reads, writes, self._origin))

    def learn_pair(self, kernel: Any, inputs: tuple[Operand, ...], out: Operand) -> None:
        """Let `pair` find the compiled kernel of the last dispatch by the layouts of `inputs` as they came, before broadcasting."""
        launch = self._records[-1][0]
        if launch is not None and not isinstance(launch, Workspaced):
            a, b = inputs
            self._stream.device.launches[kernel, a.layout, b.layout, out.layout] = launch

    def fill(self, target: Operand, value: Any) -> None:
        """Fill with a number (by value) or with a one-element operand (retained, read on the device)."""
        if isinstance(value, Operand):
            self.dispatch(COPY, (value,), (target,))
        else:
            self.dispatch(Fill(value), (), (target,))

    def copy(self, source: Operand, target: Operand) -> None:
        """Copy elements between layouts of one shape."""
        self.dispatch(COPY, (source,), (target,))

    # What a captured program uses

    @property
    def device(self) -> Any:
        """The device that it encodes for."""
        return self._stream.device

    def replay(self, records: list[Record]) -> None:
        """Record dispatches whose kernels were chosen before. Retains every buffer that they name."""
        self._records.extend(records)

    def part_of(self, operand: Operand, seen: Layout, offset: int) -> Operand:
        """A result that is `operand` (an input, or made by this op) or a part of it; `offset` in bytes."""
        owner = next((d for d in self._made if d.operand is operand), None)
        if owner is not None and seen is operand.layout and not offset:
            return operand
        if owner is None:
            owner = next(i.data for i in self._inputs if i.data.operand is operand)
        part = Operand(operand.buffer, seen, operand.offset + offset)
        self._made.append(View(part, owner))
        return part

    # What the evaluation uses

    def probe(self) -> tuple[int, int]:
        """Reference counts of the first input's node and data, read as `output` reads them."""
        for holder in self._inputs:
            data = holder.data
            return getrefcount(holder), getrefcount(data)
        raise ValueError("[eval] Nothing to probe: the op has no input.")

    def begin(self, inputs: tuple[Any, ...], origin: Any) -> None:
        """Start an op's transaction; `inputs` hold `data`."""
        self._inputs = inputs
        self._origin = origin

    def accept(self, result: Any) -> Any:
        """The op succeeded: enter its accesses, derive its waits, and return the owner of `result` (a tuple: owners of each)."""
        command_buffer = self.command_buffer
        records = self._records
        for i in range(self._mark, len(records)):
            record = records[i]
            for operand in record[2]:
                buffer = operand.buffer
                if buffer.write is not command_buffer and buffer.reads is not command_buffer:
                    self._enter_read(buffer, command_buffer)
            for operand in record[3]:
                buffer = operand.buffer
                if buffer.write is not command_buffer:
                    self._enter_write(buffer, command_buffer)
        self._mark = len(records)
        if self._donors:
            self._donors.clear()
        self._inputs = ()
        made = self._made
        if len(made) == 1 and made[0].operand is result:
            return made.pop()  # popped, not copied: a second reference would hide the owner from donation
        self._made = []
        if type(result) is not tuple:
            return _owner(made, result)
        owners = {id(data.operand): data for data in made}
        return tuple([owners[id(r)] for r in result])

    def pair(self, kernel: Any, inputs: tuple[Any, Any], shape: Layout, origin: Any) -> Data | None:
        """An elementwise op of two inputs in one frame: begin, output, dispatch and accept, for the commonest case.

        None where the case is another one (the general way serves it). Raises before anything is recorded.
        """
        a, b = inputs
        data_a = a.data
        data_b = b.data
        x: Operand = data_a.operand
        y: Operand = data_b.operand
        launch = self._stream.device.launches.get((kernel, x.layout, y.layout, shape))
        if launch is None:
            return None
        command_buffer = self.command_buffer
        if (
            x.layout is shape
            and getrefcount(data_a) == Donation.pair_data
            and getrefcount(a) == Donation.pair_node
            and type(data_a) is Data
        ):
            out = x
            data_a.operand = None
        elif (
            y.layout is shape
            and getrefcount(data_b) == Donation.pair_data
            and getrefcount(b) == Donation.pair_node
            and type(data_b) is Data
        ):
            out = y
            data_b.operand = None
        else:
            out = Operand(self._allocator.allocate(shape.nbytes, self._stream, origin), shape)
        records = self._records
        records.append((launch, kernel, (x, y), (out,), origin))
        self._mark = len(records)
        buffer = x.buffer
        if buffer.write is not command_buffer and buffer.reads is not command_buffer:
            self._enter_read(buffer, command_buffer)
        buffer = y.buffer
        if buffer.write is not command_buffer and buffer.reads is not command_buffer:
            self._enter_read(buffer, command_buffer)
        buffer = out.buffer
        if buffer.write is not command_buffer:
            self._enter_write(buffer, command_buffer)
        return Data(out)

    def roll_back(self) -> None:
        """The op raised: cut its records off, give donated buffers back, release what it made."""
        del self._records[self._mark :]
        for data, operand in self._donors:
            data.operand = operand
        taken = {id(operand) for _, operand in self._donors}
        for made in self._made:
            if type(made) is Data and id(made.operand) in taken:
                made.operand = None
        self._donors.clear()
        self._made.clear()
        self._inputs = ()

    def _enter_read(self, buffer: Buffer, command_buffer: CommandBuffer) -> None:
        write = buffer.write
        stream = self._stream
        if write is not None and write.stream is not stream and write.state < COMPLETED:
            self._wait_for(write)
        reads = buffer.reads
        if reads is None or (type(reads) is CommandBuffer and (reads.stream is stream or reads.state >= COMPLETED)):
            buffer.reads = command_buffer
        elif type(reads) is dict:
            reads[stream] = command_buffer
        else:
            buffer.reads = {reads.stream: reads, stream: command_buffer}  # type: ignore[union-attr,dict-item]

    def _enter_write(self, buffer: Buffer, command_buffer: CommandBuffer) -> None:
        write = buffer.write
        stream = self._stream
        if write is not None and write.stream is not stream and write.state < COMPLETED:
            self._wait_for(write)
        reads = buffer.reads
        if reads is not None:
            if type(reads) is dict or reads.stream is not stream:  # type: ignore[union-attr]
                for earlier in buffer.accesses():
                    self._wait_for(earlier)
            buffer.reads = None
        buffer.write = command_buffer

    def _wait_for(self, earlier: CommandBuffer) -> None:
        """This op comes after `earlier`: implied on its own stream, a wait for its fence on another."""
        stream = earlier.stream
        if stream is self._stream:
            return
        if not earlier.tick:
            stream.commit()
        waits = self.command_buffer.waits
        if waits.get(stream, 0) < earlier.tick:
            waits[stream] = earlier.tick
