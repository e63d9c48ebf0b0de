"""E2M1 codes (mxfp4, nvfp4) as whole numbers, for products in exact integers: twice their value, -12 to 12."""

from __future__ import annotations

from llvmlite import ir

from outlive.backends.cpu.features import features
from outlive.backends.cpu.kernels.emit import I8, I32, Emitter, Value, vector
from outlive.backends.cpu.kernels.quantized_values import FP4_VALUES, fp8, power_of_two

OFFSET = 12
"""What makes the numbers unsigned, where an instruction wants them so."""


def twice(k: Emitter, nibbles: Value, offset: int = 0) -> Value:
    """Twice the value, plus `offset`, of the code in each byte (8, 16 or 64 bytes, whose high halves are zero)."""
    table = [int(2 * v) for v in FP4_VALUES]
    table = [v + offset for v in (*table, *(-v for v in table))]
    codes = nibbles.bitcast(I8)
    if codes.lanes <= 16:
        filled = codes.shuffle([n % codes.lanes for n in range(16)])
        found = _look_up(k, "llvm.x86.ssse3.pshuf.b.128", table, filled)
        return found.shuffle(list(range(codes.lanes)))
    if features().avx512:
        return _look_up(k, "llvm.x86.avx512.pshuf.b.512", table, codes)
    halves = [codes.shuffle(list(range(n, n + 32))) for n in (0, 32)]
    low, high = (_look_up(k, "llvm.x86.avx2.pshuf.b", table, half) for half in halves)
    return low.shuffle(list(range(64)), high)


def _look_up(k: Emitter, name: str, table: list[int], codes: Value) -> Value:
    """Entries of a table of 16 bytes."""
    entries = Value(k, ir.Constant(vector(I8, codes.lanes), table * (codes.lanes // 16)))
    return k.call(name, codes.type, [entries, codes])


def half_scale(k: Emitter, mode: str, code: Value) -> Value:
    """Half of the scales that codes (of 8 bits) stand for: what goes with twice the values."""
    wide = code.convert(I32, signed=False)
    return (fp8(k, wide) if mode == "nvfp4" else power_of_two(k, wide)) * 0.5
