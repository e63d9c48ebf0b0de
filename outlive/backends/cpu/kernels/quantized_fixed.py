"""Activations in fixed point, for products in exact integers.

Each group of x becomes 24-bit fixed point relative to the group's largest exponent: exact for every element whose
lowest bit is not below 2^-22 (8-bit weights: 2^-21) of that exponent's power, and otherwise off by at most half of
that. Its three bytes, the planes, are multiplied with the weights' bytes in integers, so that the sum over a group
is exact. Rows that hold infinities, NaN or a group whose largest element lies outside [2^-100, 2^100) take the
float order instead: it depends on the row alone.

Order class `q_groups`, the same on vector and on tile registers and for any number of rows: for group g, in order,
    total[g % 16] = fma(bias, sum of x over g, total[g % 16])
    total[g % 16] = fma(high * 65536 + (middle * 256 + low), scale * 2^e, total[g % 16])
where the parenthesis is an exact integer below 2^31 and high, middle, low are the exact sums of q times each plane; the
16 totals are added by halves. Weights without biases (E2M1 codes, as the whole numbers of quantized_fp4.py, with half
their scale) leave the first line out.
"""

from __future__ import annotations

from typing import NamedTuple

from outlive.backends.cpu.kernels.emit import FLOAT, I8, I32, LANES, STORAGES, Emitter, Value, vector
from outlive.backends.cpu.kernels.quantized_float import Geometry, Operands, float_columns, prepare_float
from outlive.backends.cpu.kernels.quantized_values import Format, group_values

PLANES = 3
_INT32 = STORAGES["int32"]


class PreparedGroup(NamedTuple):
    """A group of x in fixed point: the value of its unit, the sum of its numbers, the sum of their highest bytes, and
    whether it needs the float order.
    """

    unit: Value
    total: Value
    high: Value
    outside: Value


def prepare_group(k: Emitter, o: Operands, fixed_at: Value, row: Value, group: Value) -> PreparedGroup:
    """Writes the fixed-point numbers of one group of a row to its place in `fixed_at`."""
    first = group * o.g.group
    values = [k.load(o.x, row * o.depth + first + n, o.x_type, LANES) for n in range(0, o.g.group, LANES)]
    sizes = [v.bitcast(I32) & 0x7FFFFFFF for v in values]
    largest = sizes[0]
    for size in sizes[1:]:
        largest = k.maximum(largest, size)
    largest = k.reduce(largest, "maximum")
    exponent = largest >> 23
    outside = (exponent >= 227) | ((exponent < 27) & largest.differs(0))
    exponent = k.select(outside | largest.equals(0), exponent.like(127), exponent)
    shift = ((254 + o.g.fixed_bits - exponent) << 23).bitcast(FLOAT)
    limit = (2 << o.g.fixed_bits) - 1
    total = high = k.constant(0, vector(I32, LANES))
    for n, value in enumerate(values):
        scaled = k.select(outside, 0.0, k.intrinsic("rint", value * shift))
        fixed = k.maximum(k.minimum(scaled.convert(I32), limit), -limit)
        total = total + fixed
        high = high + Value(k, k.b.ashr(fixed.ir, k.constant(16, fixed.type).ir))
        k.store(fixed_at, first + n * LANES, fixed, _INT32)
    unit = ((exponent - o.g.fixed_bits) << 23).bitcast(FLOAT)
    return PreparedGroup(unit, k.reduce(total).convert(FLOAT) * unit, k.reduce(high), outside)


def digits(k: Emitter, g: Geometry, fixed: Value) -> list[Value]:
    """The three bytes of each number, highest first. Where weights fit a signed byte the lower two are unsigned, the
    plain bytes; 8-bit weights do not, so there every digit is signed.
    """
    if g.bits < 8:
        return [fixed >> 16, fixed >> 8, fixed]
    low = fixed.convert(I8).convert(I32)
    rest = Value(k, k.b.ashr((fixed - low).ir, k.constant(8, fixed.type).ir))
    middle = rest.convert(I8).convert(I32)
    return [Value(k, k.b.ashr((rest - middle).ir, k.constant(8, fixed.type).ir)), middle, low]


def whole_sum(k: Emitter, high: Value, rest: Value) -> Value:
    """high * 65536 + rest, both exact integers, as float32."""
    return k.fma(high.convert(FLOAT), 65536.0, rest.convert(FLOAT))


def extreme_row(k: Emitter, o: Operands, scratch: Value, row: Value, low: Value, high: Value) -> None:
    """Columns [low, high) of a row in the float order. scratch: for the row as float32, padded."""
    if o.g.affine:
        prepare_float(k, o, row, scratch)
        float_columns(k, o, [scratch], [row], low, high)
        return
    f = Format(o.g.mode, o.g.bits, o.g.group, o.scale_type)
    with k.loop(low, high) as column:
        total = k.variable(k.constant(0.0, vector(FLOAT, LANES)))
        with k.loop(0, o.groups) as group:
            for n, values in enumerate(group_values(k, f, o.w, o.scales, None, column * o.groups + group)):
                x = k.load(o.x, row * o.depth + group * o.g.group + n * LANES, o.x_type, LANES)
                total.set(k.fma(values, x, total.get()))
        k.store(o.out, row * o.columns + column, k.reduce(total.get()), o.x_type)
