"""Quantization in groups along the last axis: `affine` (scale * q + bias) and the microscaling modes mxfp4, mxfp8 and
nvfp4.

A dequantized value is scale * q + bias, rounded once to float32, and then to the type asked for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from outlive.graph.array import apply, apply_many, array
from outlive.graph.primitive import Primitive
from outlive.ops import codes, reduce
from outlive.ops.common import Dtype, as_array, dtypes, layout
from outlive.ops.creation import ones, zeros
from outlive.ops.elementwise import multiply
from outlive.ops.shape import batch_first, batch_size, moveaxis, reshape

AFFINE_BITS = (1, 2, 3, 4, 5, 6, 8)
AFFINE_GROUPS = (32, 64, 128)
SCALE_MIN = 1e-7
"""Smallest affine scale: a constant group keeps its value in the bias."""

NVFP4_RANGE = codes.FP4_MAX * codes.FP8_MAX
"""The largest number of nvfp4 without a global scale; a global scale names the largest number instead."""

BLOCK_ELEMENTS = 1 << 20
"""Elements that a reference kernel works on at one time."""


BLOCK_BYTES_EACH = 64
"""Upper bound of the bytes that encoding or decoding an element takes."""


def block_elements(values: Any) -> int:
    """Elements of values of a layout that are worked on at one time."""
    row = values.shape[-1] if values.ndim else 1
    return min(values.size, max(BLOCK_ELEMENTS, row))


class Scheme(NamedTuple):
    """Group size and bits of a mode; the two numbers that it takes where none are given."""

    mode: str
    group_size: int
    bits: int

    @property
    def affine(self) -> bool:
        return self.mode == "affine"

    def words(self, elements: int) -> int:
        """Words that `elements` codes fill."""
        return elements * self.bits // 32

    def elements(self, words: int) -> int:
        """Codes in `words` words."""
        return words * 32 // self.bits


DEFAULTS = {"affine": (64, 4), "mxfp4": (32, 4), "mxfp8": (32, 8), "nvfp4": (16, 4)}


def scheme(op: str, mode: str, group_size: int | None, bits: int | None) -> Scheme:
    """The checked scheme; raises ValueError for unknown modes and for numbers that the mode does not have."""
    if mode not in DEFAULTS:
        raise ValueError(f"[{op}] Unknown mode {mode!r}; use one of {', '.join(map(repr, DEFAULTS))}.")
    default_group, default_bits = DEFAULTS[mode]
    group = default_group if group_size is None else int(group_size)
    width = default_bits if bits is None else int(bits)
    groups, widths = (AFFINE_GROUPS, AFFINE_BITS) if mode == "affine" else ((default_group,), (default_bits,))
    if group not in groups:
        raise ValueError(f"[{op}] Mode {mode!r} has groups of {_listed(groups)}; got {group}.")
    if width not in widths:
        raise ValueError(f"[{op}] Mode {mode!r} has {_listed(widths)} bits; got {width}.")
    return Scheme(mode, group, width)


def _listed(numbers: tuple[int, ...]) -> str:
    return " or ".join([", ".join(map(str, numbers[:-1])), str(numbers[-1])] if len(numbers) > 1 else map(str, numbers))


def affine_encode(xp: Any, groups: Any, bits: int) -> tuple[Any, Any, Any]:
    """(codes, scales, biases) of float32 groups (..., n).

    The end of the range that is larger in magnitude is a code exactly; so is 0 where the range holds it nearly.
    """
    low, high = groups.min(axis=-1), groups.max(axis=-1)
    top = (1 << bits) - 1
    if bits == 1:
        scales, biases = xp.maximum(high - low, xp.float32(SCALE_MIN)), low
    else:
        from_low = xp.abs(low) > xp.abs(high)
        step = xp.maximum((high - low) / xp.float32(top), xp.float32(SCALE_MIN))
        step = xp.where(from_low, step, -step)
        edge = xp.where(from_low, low, high)
        zero = xp.rint(edge / step)
        exact = zero != 0
        scales = xp.where(exact, edge / xp.where(exact, zero, xp.float32(1)), step)
        biases = xp.where(exact, edge, xp.float32(0))
    found = xp.rint((groups - biases[..., None]) / scales[..., None])
    found = xp.where(xp.isnan(found), xp.float32(0), found)
    return xp.clip(found, 0, top).astype(xp.uint8), scales, biases


def micro_encode(xp: Any, groups: Any, mode: str, ratio: Any, half: str) -> tuple[Any, Any]:
    """(codes, scale codes) of float32 groups (..., n) in a microscaling mode; `ratio` multiplies the values of nvfp4.

    Quotients are rounded to the type `half` that the weights came in, as the format's other implementations do.
    """
    limit = codes.FP8_MAX if mode == "mxfp8" else codes.FP4_MAX
    largest = codes.rounded(xp, xp.abs(groups).max(axis=-1) / xp.float32(limit), half)
    if mode == "nvfp4":
        scales = codes.fp8_encode(xp, largest * ratio)
        value = codes.fp8_decode(xp, scales)
    else:
        scales = codes.e8m0_encode(xp, largest)
        value = codes.e8m0_decode(xp, scales)
    usable = value[..., None] > 0
    divisor = xp.where(usable, value[..., None], xp.float32(1))
    scaled = xp.where(usable, codes.rounded(xp, groups / divisor, half) * ratio, xp.float32(0))
    encode = codes.fp8_encode if mode == "mxfp8" else codes.fp4_encode
    return encode(xp, scaled), scales


def decode(xp: Any, words: Any, scales: Any, biases: Any, plan: Scheme, ratio: Any = None) -> Any:
    """float32 values (..., n) of words and scales (and biases, of affine mode)."""
    found = codes.unpack(xp, words, plan.bits)
    groups = found.reshape(*scales.shape, plan.group_size)
    if plan.affine:
        # one rounding, as a fused multiply-add has
        values = (groups * scales[..., None].astype(xp.float64) + biases[..., None]).astype(xp.float32)
    elif plan.mode == "nvfp4":
        factor = codes.fp8_decode(xp, scales)
        if ratio is not None:
            factor = factor * ratio
        values = codes.fp4_decode(xp, groups) * factor[..., None]
    elif plan.mode == "mxfp4":
        values = codes.fp4_decode(xp, groups) * codes.e8m0_decode(xp, scales)[..., None]
    else:
        values = codes.fp8_decode(xp, groups) * codes.e8m0_decode(xp, scales)[..., None]
    return values.reshape(found.shape)


class Quantize(Primitive):
    """Reads weights (..., n) and, in nvfp4, a global scale; writes words and scales, in affine mode biases too."""

    __slots__ = ("bits", "group_size", "half", "mode")
    name = "quantize"
    bits: int
    group_size: int
    half: str
    mode: str

    def encode(self, encoder: Any, inputs: Any, layouts: Any) -> Any:
        outs = tuple([encoder.output(made, False) for made in layouts])
        encoder.dispatch(self, inputs, outs)
        return outs

    def workspace(self, reads: Any, writes: Any) -> int:
        return super().workspace(reads, writes) + BLOCK_BYTES_EACH * block_elements(reads[0])

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        w = reads[0]
        if not w.size:
            return
        ratio = xp.float32(1)
        if len(reads) > 1:
            ratio = xp.float32(NVFP4_RANGE) / reads[1].astype(xp.float32).reshape(())
        rows = w.reshape(-1, w.shape[-1])
        outs = [out.reshape(-1, out.shape[-1]) for out in writes]
        step = max(1, BLOCK_ELEMENTS // w.shape[-1])
        for start in range(0, rows.shape[0], step):
            stop = start + step
            part = rows[start:stop].astype(xp.float32)
            groups = part.reshape(part.shape[0], -1, self.group_size)
            if self.mode == "affine":
                found, scales, biases = affine_encode(xp, groups, self.bits)
                outs[2][start:stop] = biases
            else:
                found, scales = micro_encode(xp, groups, self.mode, ratio, self.half)
            outs[0][start:stop] = codes.pack(xp, found.reshape(part.shape), self.bits)
            outs[1][start:stop] = scales

    def vmap(self, inputs: Any, axes: Any) -> Any:
        if len(axes) > 1 and axes[1] is not None:
            raise ValueError("[quantize] A batch of global scales has no batching rule.")
        made = _quantized(moveaxis(inputs[0], axes[0], 0), self._plan(), inputs[1] if len(inputs) > 1 else None, None)
        return made, [0] * len(made)

    def _plan(self) -> Scheme:
        return Scheme(self.mode, self.group_size, self.bits)


class Dequantize(Primitive):
    """Reads words, scales, biases in affine mode, and a global scale where there is one; writes values."""

    __slots__ = ("bits", "group_size", "mode", "scaled")
    name = "dequantize"
    donates = False
    bits: int
    group_size: int
    mode: str
    scaled: bool

    def workspace(self, reads: Any, writes: Any) -> int:
        return super().workspace(reads, writes) + BLOCK_BYTES_EACH * block_elements(writes[0])

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        out = writes[0]
        if not out.size:
            return
        plan = self._plan()
        words, scales = reads[:2]
        biases = reads[2] if plan.affine else None
        ratio = reads[-1].astype(xp.float32).reshape(()) / xp.float32(NVFP4_RANGE) if self.scaled else None
        flat = [a.reshape(-1, a.shape[-1]) for a in (words, scales, out)]
        bias_rows = None if biases is None else biases.reshape(-1, biases.shape[-1])
        step = max(1, BLOCK_ELEMENTS // out.shape[-1])
        for start in range(0, flat[0].shape[0], step):
            rows = slice(start, start + step)
            part = None if bias_rows is None else bias_rows[rows]
            flat[2][rows] = decode(xp, flat[0][rows], flat[1][rows], part, plan, ratio)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        if self.mode != "affine" and any(i > 0 for i in argnums):
            raise ValueError(f"[dequantize] There is no derivative for the scales of mode {self.mode!r}.")
        words, scales = primals[:2]
        groups = reshape(cotangents[0], (*scales.shape, self.group_size))
        made: list[Any] = []
        for i in argnums:
            if i == 0:
                made.append(None)
                continue
            terms = groups if i == 2 else multiply(groups, code_values(words, scales, self._plan()))
            made.append(reduce.sum(terms, -1).astype(primals[i].dtype))
        return made

    def vmap(self, inputs: Any, axes: Any) -> Any:
        if self.scaled and axes[-1] is not None:
            raise ValueError("[dequantize] A batch of global scales has no batching rule.")
        size = batch_size(inputs, axes)
        count = 3 if self.mode == "affine" else 2
        moved = [batch_first(a, axis, size) for a, axis in zip(inputs[:count], axes[:count], strict=True)]
        kind = dtypes.float32
        extra = inputs[-1] if self.scaled else None
        biases = moved[2] if count == 3 else None
        return [_dequantized(moved[0], moved[1], biases, self._plan(), extra, kind, None)], [0]

    def _plan(self) -> Scheme:
        return Scheme(self.mode, self.group_size, self.bits)


def code_values(words: array, scales: array, plan: Scheme) -> array:
    """The codes themselves as float32, in groups (..., groups, group_size)."""
    one, none = ones(scales.shape, dtypes.float32), zeros(scales.shape, dtypes.float32)
    return reshape(_dequantized(words, one, none, plan, None, dtypes.float32, None), (*scales.shape, plan.group_size))


class ToFp8(Primitive):
    """E4M3 codes of values."""

    __slots__ = ()
    name = "to_fp8"
    donates = False

    def workspace(self, reads: Any, writes: Any) -> int:
        return super().workspace(reads, writes) + BLOCK_BYTES_EACH * reads[0].size

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        writes[0][...] = codes.fp8_encode(xp, reads[0].astype(xp.float32))

    def vmap(self, inputs: Any, axes: Any) -> Any:
        return [to_fp8(inputs[0])], [axes[0]]


class FromFp8(Primitive):
    """Values of E4M3 codes."""

    __slots__ = ("dtype",)
    name = "from_fp8"
    donates = False
    dtype: Dtype

    def workspace(self, reads: Any, writes: Any) -> int:
        return super().workspace(reads, writes) + BLOCK_BYTES_EACH * reads[0].size

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        writes[0][...] = codes.fp8_decode(xp, reads[0])

    def vmap(self, inputs: Any, axes: Any) -> Any:
        return [from_fp8(inputs[0], self.dtype)], [axes[0]]


def _real(op: str, a: array) -> array:
    if a.dtype.category is not dtypes.floating:
        raise ValueError(f"[{op}] Needs a real floating-point array; got {a.dtype.name}.")
    return a


def _global(op: str, plan: Scheme, global_scale: Any) -> array | None:
    if global_scale is None:
        return None
    if plan.mode != "nvfp4":
        raise ValueError(f"[{op}] Mode {plan.mode!r} has no global scale; only 'nvfp4' has.")
    made = as_array(global_scale)
    if made.size != 1 or made.dtype is not dtypes.float32:
        raise ValueError(
            f"[{op}] The global scale must be one float32 number; got {made.dtype.name} of shape {made.shape}."
        )
    return made


def _quantized(w: array, plan: Scheme, scale: array | None, stream: Any) -> tuple[array, ...]:
    lead, n = w.shape[:-1], w.shape[-1]
    groups = (*lead, n // plan.group_size)
    words = layout((*lead, plan.words(n)), dtypes.uint32)
    if plan.affine:
        results: tuple[Any, ...] = (words, layout(groups, w.dtype), layout(groups, w.dtype))
    else:
        results = (words, layout(groups, dtypes.uint8))
    inputs = (w,) if scale is None else (w, scale)
    op = Quantize.make(plan.bits, plan.group_size, w.dtype.name if w.dtype.half else "", plan.mode)
    return apply_many(op, inputs, results, stream)


def quantize(
    w: Any,
    /,
    group_size: int | None = None,
    bits: int | None = None,
    mode: str = "affine",
    *,
    global_scale: Any = None,
    stream: Any = None,
) -> tuple[array, ...]:
    """`w` (..., n) in groups of `group_size` along the last axis: words (uint32), scales, and biases in affine mode.

    Modes: "affine" (groups of 32, 64 or 128; 1, 2, 3, 4, 5, 6 or 8 bits; scales and biases in `w`'s type; default 64
    and 4), "mxfp4" (32; E2M1 values, power-of-two scales), "mxfp8" (32; E4M3 values, power-of-two scales), "nvfp4" (16;
    E2M1 values, E4M3 scales, optionally under a `global_scale`, the largest magnitude to hold). The formats are those
    of the OCP Microscaling specification. Raises ValueError for fewer than two axes, for a last axis that is no
    multiple of the group and of 32, and for types that are not real floating-point ones.

    >>> w = mx.arange(64, dtype=mx.float32).reshape(2, 32)
    >>> [part.shape for part in mx.quantize(w, group_size=32, bits=4)]
    [(2, 4), (2, 1), (2, 1)]
    >>> [part.dtype for part in mx.quantize(w, mode="mxfp4")]
    [outlive.core.uint32, outlive.core.uint8]
    """
    plan = scheme("quantize", mode, group_size, bits)
    w = _real("quantize", as_array(w))
    if w.ndim < 2:
        raise ValueError(f"[quantize] Needs at least 2 dimensions; got shape {w.shape}.")
    if w.shape[-1] % plan.group_size or w.shape[-1] * plan.bits % 32:
        raise ValueError(
            f"[quantize] The last axis of shape {w.shape} does not divide into groups of {plan.group_size} and whole "
            "32-bit words."
        )
    return _quantized(w, plan, _global("quantize", plan, global_scale), stream)


def check_quantized(op: str, w: array, scales: array, biases: array | None, plan: Scheme) -> int:
    """The number of values in the last axis; raises ValueError where words, scales and biases do not fit each other."""
    if w.dtype is not dtypes.uint32:
        raise ValueError(f"[{op}] Quantized weights are uint32 words; got {w.dtype.name}.")
    if plan.affine != (biases is not None):
        need = "needs biases" if plan.affine else "has no biases"
        raise ValueError(f"[{op}] Mode {plan.mode!r} {need}.")
    if not plan.affine and scales.dtype is not dtypes.uint8:
        raise ValueError(f"[{op}] Scales of mode {plan.mode!r} are uint8 codes; got {scales.dtype.name}.")
    n = plan.elements(w.shape[-1]) if w.ndim else 0
    wanted = (*w.shape[:-1], n // plan.group_size)
    for what, part in (("scales", scales), ("biases", biases)):
        if part is not None and (part.shape != wanted or n % plan.group_size):
            raise ValueError(
                f"[{op}] {what.capitalize()} of shape {part.shape} do not fit words of shape {w.shape} with {plan.bits} "
                f"bits and groups of {plan.group_size}: expected {wanted}."
            )
    return n


def _dequantized(
    w: array, scales: array, biases: array | None, plan: Scheme, scale: array | None, dtype: Dtype, stream: Any
) -> array:
    shape = (*w.shape[:-1], plan.elements(w.shape[-1]))
    inputs = tuple([a for a in (w, scales, biases, scale) if a is not None])
    op = Dequantize.make(plan.bits, plan.group_size, plan.mode, scale is not None)
    return apply(op, inputs, layout(shape, dtype), stream)


def dequantize(
    w: Any,
    /,
    scales: Any,
    biases: Any = None,
    group_size: int | None = None,
    bits: int | None = None,
    mode: str = "affine",
    global_scale: Any = None,
    dtype: Dtype | None = None,
    *,
    stream: Any = None,
) -> array:
    """The values of `quantize`'s result: scale * q + bias in float32, rounded once to `dtype`.

    `dtype` defaults to the scales' type in affine mode, to bfloat16 in the others. Raises ValueError where shapes,
    types and mode do not fit.

    >>> w = mx.arange(64, dtype=mx.float32).reshape(2, 32)
    >>> packed, scales, biases = mx.quantize(w, group_size=32, bits=8)
    >>> mx.allclose(mx.dequantize(packed, scales, biases, 32, 8), w, atol=0.1)
    array(True, dtype=bool)
    """
    plan = scheme("dequantize", mode, group_size, bits)
    w, scales = as_array(w), as_array(scales)
    biases = None if biases is None else as_array(biases)
    check_quantized("dequantize", w, scales, biases, plan)
    kind = dtype or (scales.dtype if plan.affine else dtypes.bfloat16)
    if kind.category is not dtypes.floating:
        raise ValueError(f"[dequantize] Values are real floating-point numbers; got {kind.name}.")
    return _dequantized(w, scales, biases, plan, _global("dequantize", plan, global_scale), kind, stream)


def to_fp8(x: Any, *, stream: Any = None) -> array:
    """E4M3 codes (uint8) of `x`, rounded to nearest even and clipped to 448; NaN stays NaN.

    Raises ValueError for types without fractions.

    >>> mx.to_fp8(mx.array([1.0, 1000.0]))
    array([56, 126], dtype=uint8)
    """
    x = _real("to_fp8", as_array(x))
    return apply(_TO_FP8, (x,), layout(x.shape, dtypes.uint8), stream)


def from_fp8(x: Any, dtype: Dtype = dtypes.bfloat16, *, stream: Any = None) -> array:
    """The values in `dtype` of E4M3 codes (uint8). Raises ValueError for other types.

    >>> mx.from_fp8(mx.to_fp8(mx.array([1.0, 1000.0])), mx.float32)
    array([1, 448], dtype=float32)
    """
    x = as_array(x)
    if x.dtype is not dtypes.uint8:
        raise ValueError(f"[from_fp8] Codes are uint8; got {x.dtype.name}.")
    return apply(FromFp8.make(dtype), (x,), layout(x.shape, dtype), stream)


_TO_FP8 = ToFp8.make()

__all__ = ["dequantize", "from_fp8", "quantize", "to_fp8"]
