"""A small language for writing kernels: Python expressions over typed values become LLVM IR.

A kernel is written once for vectors of LANES elements; LLVM splits them for narrower machines, so the order in
which an element is summed, and so its bits, do not depend on the width of the machine's registers. Nothing is
contracted behind the writer's back: a fused multiply-add is written `fma`.

    k = Emitter("k_double_f32")
    source, target, count = k.pointer(0), k.pointer(1), k.integer(2)
    with k.parts(count, LANES) as (low, high):
        with k.loop(low, high, LANES) as i:
            value = k.load(source, i, F32, LANES)
            k.store(target, i, value + value, F32)
    text = k.finish()

Values of half precision are widened to float32 when loaded and rounded once, to nearest even, when stored; NaN
stays NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from llvmlite import ir

LANES = 16

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
FLOAT, DOUBLE, HALF, POINTER = ir.FloatType(), ir.DoubleType(), ir.HalfType(), ir.PointerType()


@dataclass(frozen=True)
class Storage:
    """How a type lies in memory and what it is computed in.

    name: as the framework spells it. bytes: of an element. memory, compute: LLVM types. signed: how integers compare,
    divide and widen.
    """

    name: str
    bytes: int
    memory: ir.Type
    compute: ir.Type
    signed: bool = True

    @property
    def is_float(self) -> bool:
        return isinstance(self.compute, (ir.FloatType, ir.DoubleType))


STORAGES = {
    s.name: s
    for s in (
        Storage("bool", 1, I8, I8, False),
        Storage("uint8", 1, I8, I8, False),
        Storage("uint16", 2, I16, I16, False),
        Storage("uint32", 4, I32, I32, False),
        Storage("uint64", 8, I64, I64, False),
        Storage("int8", 1, I8, I8),
        Storage("int16", 2, I16, I16),
        Storage("int32", 4, I32, I32),
        Storage("int64", 8, I64, I64),
        Storage("float16", 2, HALF, FLOAT),
        Storage("bfloat16", 2, I16, FLOAT),
        Storage("float32", 4, FLOAT, FLOAT),
        Storage("float64", 8, DOUBLE, DOUBLE),
    )
}
F32, BF16, F16, BOOL = STORAGES["float32"], STORAGES["bfloat16"], STORAGES["float16"], STORAGES["bool"]


def vector(element: ir.Type, lanes: int) -> ir.Type:
    """The type of `lanes` elements; one lane is a scalar."""
    return element if lanes == 1 else ir.VectorType(element, lanes)


def _element(kind: ir.Type) -> ir.Type:
    return kind.element if isinstance(kind, ir.VectorType) else kind


def transposed(rows: list[Value]) -> list[Value]:
    """A square of LANES vectors turned over its diagonal, by four rounds of interleaving."""
    low = [n // 2 + LANES * (n % 2) for n in range(LANES)]
    high = [n + LANES // 2 for n in low]
    for _ in range(4):
        half = len(rows) // 2
        rows = [
            part
            for a, b in zip(rows[:half], rows[half:], strict=True)
            for part in (a.shuffle(low, b), a.shuffle(high, b))
        ]
    return rows


def deinterleave(vectors: list[Value]) -> list[Value]:
    """From S neighbouring vectors, S vectors: the s-th holds elements s, s + S, s + 2S, ... of their concatenation."""
    if len(vectors) == 1:
        return vectors
    evens, odds = list(range(0, 2 * LANES, 2)), list(range(1, 2 * LANES, 2))
    pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
    even = deinterleave([a.shuffle(evens, b) for a, b in pairs])
    odd = deinterleave([a.shuffle(odds, b) for a, b in pairs])
    return [v for pair in zip(even, odd, strict=True) for v in pair]


def _lanes(kind: ir.Type) -> int:
    return kind.count if isinstance(kind, ir.VectorType) else 1


def _type_suffix(kind: ir.Type) -> str:
    element = _element(kind)
    names = {FLOAT: "f32", DOUBLE: "f64", HALF: "f16"}
    name = f"i{element.width}" if isinstance(element, ir.IntType) else names[element]
    return f"v{_lanes(kind)}{name}" if isinstance(kind, ir.VectorType) else name


Operand: TypeAlias = "Value | int | float"


class Value:
    """A typed value in a kernel being written. Operators act elementwise; integers are signed unless a method says
    not.
    """

    __slots__ = ("k", "ir")

    def __init__(self, k: Emitter, value: ir.Value) -> None:
        self.k, self.ir = k, value

    @property
    def type(self) -> ir.Type:
        return self.ir.type

    @property
    def element(self) -> ir.Type:
        return _element(self.ir.type)

    @property
    def lanes(self) -> int:
        return _lanes(self.ir.type)

    @property
    def is_float(self) -> bool:
        return isinstance(self.element, (ir.FloatType, ir.DoubleType, ir.HalfType))

    def like(self, other: Operand) -> Value:
        """`other` as a value of this one's type: a number becomes a constant, a scalar fills every lane."""
        if not isinstance(other, Value):
            return self.k.constant(other, self.type)
        if other.lanes == 1 and self.lanes > 1:
            return self.k.splat(other, self.lanes)
        return other

    def _binary(self, other: Operand, for_float: str, for_int: str, swapped: bool = False) -> Value:
        other = self.like(other)
        left = other.like(self) if other.lanes > self.lanes else self
        a, b = (other, left) if swapped else (left, other)
        return Value(self.k, getattr(self.k.b, for_float if left.is_float else for_int)(a.ir, b.ir))

    def __add__(self, other: Operand) -> Value:
        return self._binary(other, "fadd", "add")

    def __radd__(self, other: Operand) -> Value:
        return self._binary(other, "fadd", "add", swapped=True)

    def __sub__(self, other: Operand) -> Value:
        return self._binary(other, "fsub", "sub")

    def __rsub__(self, other: Operand) -> Value:
        return self._binary(other, "fsub", "sub", swapped=True)

    def __mul__(self, other: Operand) -> Value:
        return self._binary(other, "fmul", "mul")

    def __rmul__(self, other: Operand) -> Value:
        return self._binary(other, "fmul", "mul", swapped=True)

    def __truediv__(self, other: Operand) -> Value:
        return self._binary(other, "fdiv", "sdiv")

    def __rtruediv__(self, other: Operand) -> Value:
        return self._binary(other, "fdiv", "sdiv", swapped=True)

    def __floordiv__(self, other: Operand) -> Value:
        """Unsigned division of integers that are never negative: sizes, indices."""
        return self._binary(other, "fdiv", "udiv")

    def __mod__(self, other: Operand) -> Value:
        """Unsigned remainder of integers that are never negative: sizes, indices."""
        return self._binary(other, "frem", "urem")

    def __and__(self, other: Operand) -> Value:
        return self._binary(other, "and_", "and_")

    def __or__(self, other: Operand) -> Value:
        return self._binary(other, "or_", "or_")

    def __xor__(self, other: Operand) -> Value:
        return self._binary(other, "xor", "xor")

    def __lshift__(self, other: Operand) -> Value:
        return self._binary(other, "shl", "shl")

    def __rshift__(self, other: Operand) -> Value:
        """Logical shift: zeros enter at the top."""
        return self._binary(other, "lshr", "lshr")

    def __neg__(self) -> Value:
        return Value(self.k, self.k.b.fneg(self.ir) if self.is_float else self.k.b.neg(self.ir))

    def compare(self, operator: str, other: Operand, signed: bool = True) -> Value:
        """One bit a lane. Comparisons with NaN are false, and `!=` is true."""
        other = self.like(other)
        left = other.like(self) if other.lanes > self.lanes else self
        if left.is_float:
            make = self.k.b.fcmp_unordered if operator == "!=" else self.k.b.fcmp_ordered
        else:
            make = self.k.b.icmp_signed if signed else self.k.b.icmp_unsigned
        return Value(self.k, make(operator, left.ir, other.ir))

    def __lt__(self, other: Operand) -> Value:
        return self.compare("<", other)

    def __le__(self, other: Operand) -> Value:
        return self.compare("<=", other)

    def __gt__(self, other: Operand) -> Value:
        return self.compare(">", other)

    def __ge__(self, other: Operand) -> Value:
        return self.compare(">=", other)

    def equals(self, other: Operand) -> Value:
        return self.compare("==", other)

    def differs(self, other: Operand) -> Value:
        return self.compare("!=", other)

    def isnan(self) -> Value:
        return Value(self.k, self.k.b.fcmp_unordered("uno", self.ir, self.ir))

    def bitcast(self, element: ir.Type) -> Value:
        """The same bits, read as elements of another type; lanes follow from the sizes."""

        def width(kind: ir.Type) -> int:
            return kind.width if isinstance(kind, ir.IntType) else {FLOAT: 32, DOUBLE: 64, HALF: 16}[kind]

        lanes = self.lanes * width(self.element) // width(element)
        return Value(self.k, self.k.b.bitcast(self.ir, vector(element, lanes)))

    def convert(self, element: ir.Type, signed: bool = True) -> Value:
        """The same number in another type. Narrowing integers wraps. Float to integer truncates, and the caller
        sees to it that the number fits."""
        return self.k.convert(self, element, signed)

    def lane(self, index: int) -> Value:
        return Value(self.k, self.k.b.extract_element(self.ir, ir.Constant(I32, index)))

    def shuffle(self, indices: list[int], other: Value | None = None) -> Value:
        """The lanes `indices` of this vector (and of `other`, numbered after it)."""
        second = self.ir if other is None else other.ir
        mask = ir.Constant(ir.VectorType(I32, len(indices)), indices)
        return Value(self.k, self.k.b.shuffle_vector(self.ir, second, mask))


class Variable:
    """A place that a loop writes: the optimizer keeps it in a register."""

    __slots__ = ("k", "slot", "kind")

    def __init__(self, k: Emitter, initial: Value) -> None:
        self.k, self.kind = k, initial.type
        self.slot = k.alloca(initial.type)
        self.set(initial)

    def get(self) -> Value:
        return Value(self.k, self.k.b.load(self.slot, typ=self.kind))

    def set(self, value: Value) -> None:
        self.k.b.store(value.ir, self.slot)


class Emitter:
    """Writes one kernel with the signature of abi.py. The k of every expression."""

    def __init__(self, symbol: str) -> None:
        self.symbol = symbol
        self.module = ir.Module(name=symbol)
        self.function = ir.Function(self.module, ir.FunctionType(I64, (POINTER, I64, I64)), symbol)
        self.entry = self.function.append_basic_block("entry")
        body = self.function.append_basic_block("body")
        self.b = ir.IRBuilder(body)
        self._declared: dict[str, ir.Function] = {}
        self.args = Value(self, self.function.args[0])
        self.part, self.part_count = (Value(self, a) for a in self.function.args[1:])

    # -- arguments and shares ---------------------------------------------------------------------------------------
    def integer(self, index: int | Value) -> Value:
        """Argument word `index`, a 64-bit integer."""
        return self.load(self.args, index, STORAGES["int64"])

    def number(self, index: int | Value) -> Value:
        """Argument word `index`, the bits of a float64, as float32."""
        return self.convert(self.integer(index).bitcast(DOUBLE), FLOAT)

    def pointer(self, index: int | Value) -> Value:
        """Argument word `index`, the address of an operand."""
        return Value(self, self.b.load(self.address(self.args, index, 8).ir, typ=POINTER))

    def share(self, count: Value, grain: int = 1) -> tuple[Value, Value]:
        """The half-open range of `count` items that this part does; borders are multiples of `grain`."""
        blocks = (count + (grain - 1)) // grain
        low = blocks * self.part // self.part_count * grain
        high = blocks * (self.part + 1) // self.part_count * grain
        return self.minimum(low, count), self.minimum(high, count)

    # -- constants and memory ---------------------------------------------------------------------------------------
    def constant(self, number: float, kind: ir.Type = I64) -> Value:
        element = _element(kind)
        number = int(number) if isinstance(element, ir.IntType) else float(number)
        if isinstance(kind, ir.VectorType):
            return Value(self, ir.Constant(kind, [ir.Constant(element, number)] * kind.count))
        return Value(self, ir.Constant(kind, number))

    def lanes_constant(self, numbers: list[float], element: ir.Type = I32) -> Value:
        return Value(self, ir.Constant(ir.VectorType(element, len(numbers)), numbers))

    def splat(self, value: Value, lanes: int) -> Value:
        if lanes == 1:
            return value
        one = self.b.insert_element(
            ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined), value.ir, ir.Constant(I32, 0)
        )
        zeros = ir.Constant(ir.VectorType(I32, lanes), [0] * lanes)
        return Value(self, self.b.shuffle_vector(one, one, zeros))

    def alloca(self, kind: ir.Type, count: int = 1, align: int = 64) -> ir.Value:
        slot = ir.IRBuilder(self.entry).alloca(kind, size=count)
        slot.align = align
        return slot

    def scratch(self, byte_count: Value) -> Value:
        """Memory on the stack, 64-byte aligned, freed when the kernel returns."""
        slot = self.b.alloca(I8, size=byte_count.ir)
        slot.align = 64
        slot.type = POINTER
        return Value(self, slot)

    def address(self, pointer: Value, index: Operand, element_bytes: int = 1) -> Value:
        index = index if isinstance(index, Value) else self.constant(index)
        offset = index if element_bytes == 1 else index * element_bytes
        return Value(self, self.b.gep(pointer.ir, [offset.ir], source_etype=I8))

    def load(
        self, pointer: Value, index: Operand, storage: Storage, lanes: int = 1, mask: Value | None = None
    ) -> Value:
        """`lanes` neighbouring elements from element `index` on, in the storage's compute type. Lanes that the mask
        (one bit each) leaves out are not touched and read as zero.
        """
        place = self.address(pointer, index, storage.bytes)
        kind = vector(storage.memory, lanes)
        if mask is None:
            raw = Value(self, self.b.load(place.ir, typ=kind, align=storage.bytes))
        else:
            zero = ir.Constant(kind, None)
            raw = self.call(
                f"llvm.masked.load.{_type_suffix(kind)}.p0",
                kind,
                [place, Value(self, ir.Constant(I32, storage.bytes)), mask, Value(self, zero)],
            )
        return self.widen(raw, storage)

    def store(self, pointer: Value, index: Operand, value: Value, storage: Storage, mask: Value | None = None) -> None:
        place = self.address(pointer, index, storage.bytes)
        raw = self.narrow(value, storage)
        if mask is None:
            self.b.store(raw.ir, place.ir, align=storage.bytes)
        else:
            self.call(
                f"llvm.masked.store.{_type_suffix(raw.type)}.p0",
                ir.VoidType(),
                [raw, place, Value(self, ir.Constant(I32, storage.bytes)), mask],
            )

    def prefetch(self, pointer: Value, index: Operand, element_bytes: int = 1) -> None:
        """Asks for the cache line of an element that will be read soon; never faults."""
        hints = [Value(self, ir.Constant(I32, n)) for n in (0, 3, 1)]  # a read, to every level, data
        self.call("llvm.prefetch.p0", ir.VoidType(), [self.address(pointer, index, element_bytes), *hints])

    def gather(self, pointer: Value, index: Value, stride: Value, storage: Storage, mask: Value | None = None) -> Value:
        """LANES elements from element `index` on, `stride` elements apart."""
        result = Value(self, ir.Constant(vector(storage.memory, LANES), None))
        for lane in range(LANES):

            def read(current: Value, lane: int = lane) -> Value:
                place = self.address(pointer, index + stride * lane, storage.bytes)
                element = self.b.load(place.ir, typ=storage.memory, align=storage.bytes)
                return Value(self, self.b.insert_element(current.ir, element, ir.Constant(I32, lane)))

            result = read(result) if mask is None else self.when_else(mask.lane(lane), result, read)
        return self.widen(result, storage)

    def scatter(
        self, pointer: Value, index: Value, stride: Value, value: Value, storage: Storage, mask: Value | None = None
    ) -> None:
        """The reverse of `gather`."""
        raw = self.narrow(value, storage)
        for lane in range(LANES):
            place = self.address(pointer, index + stride * lane, storage.bytes)
            if mask is None:
                self.b.store(raw.lane(lane).ir, place.ir, align=storage.bytes)
            else:
                with self.when(mask.lane(lane)):
                    self.b.store(raw.lane(lane).ir, place.ir, align=storage.bytes)

    def widen(self, raw: Value, storage: Storage) -> Value:
        if storage is BF16:
            return (raw.convert(I32, signed=False) << 16).bitcast(FLOAT)
        return Value(self, self.b.fpext(raw.ir, vector(FLOAT, raw.lanes))) if storage is F16 else raw

    def narrow(self, value: Value, storage: Storage) -> Value:
        if storage is BF16:
            bits = value.bitcast(I32)
            rounded = bits + (((bits >> 16) & 1) + 0x7FFF)
            quiet = bits | 0x00400000
            return (self.select(value.isnan(), quiet, rounded) >> 16).convert(I16)
        if storage is F16:
            return Value(self, self.b.fptrunc(value.ir, vector(HALF, value.lanes)))
        return value

    # -- arithmetic -------------------------------------------------------------------------------------------------
    def convert(self, value: Value, element: ir.Type, signed: bool = True) -> Value:
        source, kind = value.element, vector(element, value.lanes)
        if source == element:
            return value
        b, to_int = self.b, isinstance(element, ir.IntType)
        if value.is_float and to_int:
            return Value(self, (b.fptosi if signed else b.fptoui)(value.ir, kind))
        if value.is_float:
            wider = element == DOUBLE or source == HALF
            return Value(self, (b.fpext if wider else b.fptrunc)(value.ir, kind))
        if not to_int:
            return Value(self, (b.sitofp if signed else b.uitofp)(value.ir, kind))
        if element.width < source.width:
            return Value(self, b.trunc(value.ir, kind))
        return Value(self, (b.sext if signed and source.width > 1 else b.zext)(value.ir, kind))

    def call(self, name: str, result: ir.Type, args: list[Value]) -> Value:
        """Calls an LLVM intrinsic or a C function by name."""
        function = self._declared.get(name)
        if function is None:
            function = ir.Function(self.module, ir.FunctionType(result, [a.type for a in args]), name)
            self._declared[name] = function
        return Value(self, self.b.call(function, [a.ir for a in args]))

    def address_number(self, pointer: Value) -> Value:
        """A pointer as a 64-bit integer, as argument words hold it."""
        return Value(self, self.b.ptrtoint(pointer.ir, I64))

    def call_kernel(self, address: Value, args: Value) -> None:
        """Runs all of another kernel, one that cannot fail, on argument words at `args`."""
        callee = self.b.inttoptr(address.ir, self.function.function_type.as_pointer())
        self.b.call(callee, [args.ir, ir.Constant(I64, 0), ir.Constant(I64, 1)])

    def intrinsic(self, name: str, value: Value, *others: Operand) -> Value:
        """An LLVM intrinsic over floats or integers of one type, such as `sqrt` or `fabs`."""
        args = [value, *(value.like(o) for o in others)]
        return self.call(f"llvm.{name}.{_type_suffix(value.type)}", value.type, args)

    def fma(self, a: Value, b: Operand, c: Operand) -> Value:
        """a * b + c, rounded once."""
        wide = next((v for v in (a, b, c) if isinstance(v, Value) and v.lanes > 1), a)
        return self.intrinsic("fma", wide.like(a), wide.like(b), wide.like(c))

    def select(self, condition: Value, yes: Operand, no: Operand) -> Value:
        wide = next(v for v in (yes, no) if isinstance(v, Value))
        yes, no = wide.like(yes), wide.like(no)
        return Value(self, self.b.select(condition.ir, yes.ir, no.ir))

    def minimum(self, a: Value, b: Operand, signed: bool = True) -> Value:
        """The smaller of two integers."""
        b = a.like(b)
        return self.select(a.compare("<", b, signed), a, b)

    def maximum(self, a: Value, b: Operand, signed: bool = True) -> Value:
        """The larger of two integers."""
        b = a.like(b)
        return self.select(a.compare(">", b, signed), a, b)

    def float_maximum(self, a: Value, b: Value) -> Value:
        """The larger of two floats; NaN when one is NaN."""
        return self.select((a > b) | a.isnan(), a, b)

    def float_minimum(self, a: Value, b: Value) -> Value:
        """The smaller of two floats; NaN when one is NaN."""
        return self.select((a < b) | a.isnan(), a, b)

    def reduce(self, value: Value, combine: str | None = None) -> Value:
        """Sums the lanes of a float vector by halves, always in the same order."""
        while value.lanes > 1:
            half = value.lanes // 2
            low, high = value.shuffle(list(range(half))), value.shuffle(list(range(half, 2 * half)))
            value = low + high if combine is None else getattr(self, combine)(low, high)
            if half == 1:
                return value.lane(0) if isinstance(value.type, ir.VectorType) else value
        return value

    def first_lanes(self, count: Value, lanes: int = LANES) -> Value:
        """A mask with the first `count` lanes on."""
        numbers = self.lanes_constant(list(range(lanes)), I32)
        return numbers < self.splat(count.convert(I32), lanes)

    # -- control ----------------------------------------------------------------------------------------------------
    def variable(self, initial: Operand) -> Variable:
        return Variable(self, initial if isinstance(initial, Value) else self.constant(initial))

    @contextmanager
    def loop(self, low: Operand, high: Operand, step: Operand = 1) -> Iterator[Value]:
        """Runs the body with i = low, low + step, ... while i < high."""
        low, high, step = (v if isinstance(v, Value) else self.constant(v) for v in (low, high, step))
        before = self.b.block
        head, body, done = (self.function.append_basic_block(n) for n in ("loop", "do", "done"))
        self.b.branch(head)
        self.b.position_at_end(head)
        i = self.b.phi(I64)
        i.add_incoming(low.ir, before)
        self.b.cbranch(self.b.icmp_signed("<", i, high.ir), body, done)
        self.b.position_at_end(body)
        yield Value(self, i)
        i.add_incoming(self.b.add(i, step.ir, flags=("nsw",)), self.b.block)
        self.b.branch(head)
        self.b.position_at_end(done)

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        with self.b.if_then(condition.ir):
            yield

    def when_else(self, condition: Value, otherwise: Value, make) -> Value:
        """`make(otherwise)` where the condition holds, else `otherwise`; nothing of `make` runs in the other case."""
        result = self.variable(otherwise)
        with self.when(condition):
            result.set(make(otherwise))
        return result.get()

    @contextmanager
    def branch(self, condition: Value) -> Iterator[tuple[AbstractContextManager[None], AbstractContextManager[None]]]:
        """`with k.branch(c) as (yes, no): with yes: ...; with no: ...`"""
        with self.b.if_else(condition.ir) as (yes, no):
            yield yes, no

    def fail(self, condition: Value, code: int) -> None:
        """Returns the nonzero `code` at once when the condition holds."""
        with self.when(condition):
            self.b.ret(ir.Constant(I64, code))

    def finish(self) -> str:
        """Ends the kernel and gives the module's text."""
        self.b.ret(ir.Constant(I64, 0))
        ir.IRBuilder(self.entry).branch(self.function.basic_blocks[1])
        return str(self.module)


def row_blocks(
    k: Emitter, first: Value, last: Value, sizes: tuple[int, ...], block: Callable[[Value, int], None]
) -> None:
    """Calls `block(row, size)` in loops that cover [first, last), larger blocks first; the smallest size must be 1."""
    start = first
    for size in sizes:
        whole = start + (last - start) // size * size
        with k.loop(start, whole, size) as row:
            block(row, size)
        start = whole
