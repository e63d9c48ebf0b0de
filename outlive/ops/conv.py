"""Convolutions over one to three spatial axes, channels last, with strides, dilations of both operands, groups and
uneven padding.

The padded input is made by the encoder itself: a fill by value and a copy into the middle. There is no padding array to
lose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from outlive.graph.array import apply, array
from outlive.graph.primitive import Primitive
from outlive.ops.common import Dtype, as_array, dtypes, layout, strided_layout
from outlive.ops.elementwise import add
from outlive.ops.join import flip
from outlive.ops.matmul import cast, inexact_type
from outlive.ops.shape import batch_size, moveaxis, reshape, swapaxes
from outlive.ops.slicing import one_by_one

BLOCK_BYTES = 1 << 22
"""Input windows gathered at one time in the reference kernel."""


class Geometry(NamedTuple):
    """Of each spatial axis: stride, padding before and after, dilation of the kernel and of the input; then groups and
    mirroring.
    """

    strides: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    kernel_dilation: tuple[int, ...]
    input_dilation: tuple[int, ...]
    groups: int
    flip: bool


class Conv(Primitive):
    """Reads input (N, spatial..., C) and weight (O, spatial..., C / groups); writes (N, spatial..., O)."""

    __slots__ = ("geometry",)
    name = "conv_general"
    donates = False
    geometry: Geometry

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        out = encoder.output(layout, False)
        padded = self._padded(encoder, inputs[0])
        kernel = Window.make(
            self.geometry.strides, self.geometry.kernel_dilation, self.geometry.groups, self.geometry.flip
        )
        encoder.dispatch(kernel, (padded, inputs[1]), (out,))
        return out

    def _padded(self, encoder: Any, operand: Any) -> Any:
        """The input spread by its dilation within zeros; elements that a negative padding cuts off are left out."""
        g = self.geometry
        source = operand.layout
        if not any(g.low) and not any(g.high) and all(d == 1 for d in g.input_dilation):
            return operand
        spread = [d * (n - 1) + 1 if n else 0 for n, d in zip(source.shape[1:-1], g.input_dilation, strict=True)]
        spatial = [max(n + a + b, 0) for n, a, b in zip(spread, g.low, g.high, strict=True)]
        shape = (source.shape[0], *spatial, source.shape[-1])
        whole = encoder.temporary(_elements(shape) * source.dtype.itemsize, source.dtype)
        target = encoder.reshaped(whole, layout(shape, source.dtype))
        encoder.fill(target, 0)
        kept = [
            _kept(n, d, a, m) for n, d, a, m in zip(source.shape[1:-1], g.input_dilation, g.low, spatial, strict=True)
        ]
        if all(count for _, _, count in kept) and source.size:
            inner = (source.shape[0], *[count for _, _, count in kept], source.shape[-1])
            dense = target.layout.strides
            offset = sum([to * s for (_, to, _), s in zip(kept, dense[1:-1], strict=True)])
            begin = sum([first * s for (first, _, _), s in zip(kept, source.strides[1:-1], strict=True)])
            steps = (dense[0], *[s * d for s, d in zip(dense[1:-1], g.input_dilation, strict=True)], dense[-1])
            part = encoder.reshaped(operand, strided_layout(inner, source.strides, source.dtype), begin)
            encoder.copy(part, encoder.reshaped(target, strided_layout(inner, steps, source.dtype), offset))
        return target

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        x, w = primals
        return [
            _input_cotangent(x, w, cotangents[0], self.geometry)
            if i == 0
            else _weight_cotangent(x, w, cotangents[0], self.geometry)
            for i in argnums
        ]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        x, w = primals
        terms = [
            _conv(t, w, self.geometry) if i == 0 else _conv(x, t, self.geometry)
            for i, t in zip(argnums, tangents, strict=True)
        ]
        return [terms[0] if len(terms) == 1 else add(*terms)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        x, w = inputs
        g = self.geometry
        size = batch_size(inputs, axes)
        if axes[1] is None:
            x = moveaxis(x, axes[0], 0)
            made = _conv(reshape(x, (-1, *x.shape[2:])), w, g)
            return [reshape(made, (size, -1, *made.shape[1:]))], [0]
        w = moveaxis(w, axes[1], 0)
        if axes[0] is None and g.groups == 1:
            made = _conv(x, reshape(w, (-1, *w.shape[2:])), g)
            return [reshape(made, (*made.shape[:-1], size, -1))], [made.ndim - 1]

        return one_by_one(lambda a, b: _conv(a, b, g), inputs, axes)


class Window(Primitive):
    """The convolution of an input that needs no padding: for each block of places, windows are gathered and multiplied."""

    __slots__ = ("strides", "dilation", "groups", "flip")
    name = "conv_window"
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    flip: bool

    def workspace(self, reads: Any, writes: Any) -> int:
        x, w = reads
        out = writes[0]
        width = 8 if x.dtype.itemsize == 8 else 4
        taps = w.size // max(w.shape[0], 1)
        row = width * (out.size // max(out.shape[0] * out.shape[1], 1)) // max(out.shape[-1], 1) * taps * self.groups
        block = min(max(BLOCK_BYTES, row), row * max(out.shape[1], 1))
        return super().workspace(reads, writes) + 2 * block

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        x, w = reads
        out = writes[0]
        if not out.size:
            return
        spatial = w.shape[1:-1]
        if self.flip:
            w = w[(slice(None), *[slice(None, None, -1)] * len(spatial))]
        if not w.size:
            out[...] = 0
            return
        groups, each = self.groups, w.shape[0] // self.groups
        channels = w.shape[-1]
        taps = w.reshape(groups, each, -1).transpose(0, 2, 1)
        windows = self._windows(xp, x, spatial, out.shape[1:-1])
        row_bytes = windows[0, :1].size * x.dtype.itemsize
        rows = max(1, BLOCK_BYTES // max(row_bytes, 1))
        for n in range(out.shape[0]):
            for start in range(0, out.shape[1], rows):
                self._block(xp, windows[n, start : start + rows], taps, out[n, start : start + rows], channels)

    def _windows(self, xp: Any, x: Any, taps: tuple[int, ...], places: tuple[int, ...]) -> Any:
        """A view (N, places..., groups, taps..., C / groups) of the input: no element is copied."""
        steps = x.strides
        spatial = steps[1:-1]
        channels = x.shape[-1] // self.groups
        shape = (x.shape[0], *places, self.groups, *taps, channels)
        strides = (
            steps[0],
            *[s * k for s, k in zip(spatial, self.strides, strict=True)],
            steps[-1] * channels,
            *[s * k for s, k in zip(spatial, self.dilation, strict=True)],
            steps[-1],
        )
        return xp.lib.stride_tricks.as_strided(x, shape, strides)

    def _block(self, xp: Any, windows: Any, taps: Any, out: Any, channels: int) -> None:
        ndim = out.ndim - 1
        places = windows.shape[:ndim]
        count = _elements(places)
        for g in range(self.groups):
            part = windows[(*[slice(None)] * ndim, g)].reshape(count, taps.shape[1])
            each = taps.shape[2]
            out[..., g * each : (g + 1) * each] = xp.matmul(part, taps[g]).reshape(*places, each)


def _elements(shape: Sequence[int]) -> int:
    made = 1
    for n in shape:
        made *= n
    return made


def _kept(n: int, dilation: int, low: int, length: int) -> tuple[int, int, int]:
    """(first kept element, its place, number of kept elements) of an axis of `n` elements put at `low + i * dilation`."""
    first = 0 if low >= 0 else -(low // dilation)
    at = low + first * dilation
    if at >= length:
        return first, at, 0
    return first, at, max(0, min(n - first, (length - 1 - at) // dilation + 1))


def _input_cotangent(x: array, w: array, cotangent: array, g: Geometry) -> array:
    """The transposed convolution: the cotangent, spread by the strides, with the mirrored kernel whose channels are
    exchanged.
    """
    taps = w.shape[1:-1]
    low, high = [], []
    for i, k in enumerate(taps):
        reach = g.kernel_dilation[i] * (k - 1)
        spread = g.input_dilation[i] * (x.shape[i + 1] - 1) + 1 if x.shape[i + 1] else 0
        places = g.strides[i] * (cotangent.shape[i + 1] - 1) + 1 if cotangent.shape[i + 1] else 0
        low.append(reach - g.low[i])
        high.append(spread - places + g.low[i])
    back = Geometry(g.input_dilation, tuple(low), tuple(high), g.kernel_dilation, g.strides, g.groups, not g.flip)
    return _conv(cotangent, _exchanged(w, g.groups), back)


def _exchanged(w: array, groups: int) -> array:
    """Weights (O, taps..., C / groups) as (C, taps..., O / groups), within each group."""
    outputs, *taps, channels = w.shape
    grouped = reshape(w, (groups, outputs // groups, *taps, channels))
    return reshape(swapaxes(grouped, 1, -1), (groups * channels, *taps, outputs // groups))


def _weight_cotangent(x: array, w: array, cotangent: array, g: Geometry) -> array:
    """The input convolved with the cotangent: batch and channels change places, strides and dilations too."""
    _, *taps, channels = w.shape
    groups = g.groups
    # (C / groups, spatial..., groups * N) against (O, places..., N), in groups
    batch = x.shape[0]
    spatial = x.shape[1:-1]
    left = reshape(x, (batch, *spatial, groups, channels))
    left = moveaxis(moveaxis(left, -1, 0), 1, -1)
    left = reshape(left, (channels, *spatial, groups * batch))
    right = moveaxis(cotangent, -1, 0)
    right = moveaxis(right, 1, -1)
    high = []
    for i, k in enumerate(taps):
        spread = g.input_dilation[i] * (spatial[i] - 1) + 1 if spatial[i] else 0
        places = g.strides[i] * (cotangent.shape[i + 1] - 1)
        high.append(g.kernel_dilation[i] * (k - 1) + places + 1 - spread - g.low[i])
    over = Geometry(g.kernel_dilation, g.low, tuple(high), g.strides, g.input_dilation, groups, False)
    made = moveaxis(_conv(left, right, over), 0, -1)
    made = moveaxis(made, -2, 0)
    return flip(made, list(range(1, 1 + len(taps)))) if g.flip else made


def _conv(x: array, w: array, g: Geometry, stream: Any = None) -> array:
    shape = [x.shape[0]]
    for i, k in enumerate(w.shape[1:-1]):
        n = x.shape[i + 1]
        length = (g.input_dilation[i] * (n - 1) + 1 if n else 0) + g.low[i] + g.high[i]
        reach = g.kernel_dilation[i] * (k - 1) + 1
        if length < reach:
            raise ValueError(
                f"[conv] Axis {i + 1} of input {x.shape} has length {max(length, 0)} after padding, less than "
                f"the {reach} that the weight {w.shape} reaches over."
            )
        shape.append((length - reach) // g.strides[i] + 1)
    result = layout((*shape, w.shape[0]), x.dtype)
    return apply(Conv.make(g), (x, w), result, stream)


def _per_axis(name: str, value: int | Sequence[int], count: int, at_least: int | None) -> tuple[int, ...]:
    made = (value,) * count if isinstance(value, int) else tuple(int(v) for v in value)
    if len(made) == 1:
        made *= count
    if len(made) != count:
        raise ValueError(f"[conv] {name} {value} does not fit {count} spatial axes.")
    if at_least is not None and any(v < at_least for v in made):
        raise ValueError(f"[conv] {name} must be at least {at_least}; got {made}.")
    return made


def _checked(x: Any, w: Any, groups: int, ndim: int | None) -> tuple[array, array, int]:
    x, w = as_array(x), as_array(w)
    count = x.ndim - 2 if ndim is None else ndim
    if not 1 <= count <= 3 or x.ndim != count + 2 or w.ndim != count + 2:
        raise ValueError(
            f"[conv] Needs 1 to 3 spatial axes, as in input (N, H, W, C) and weight (O, H, W, C); got shapes "
            f"{x.shape} and {w.shape}."
        )
    kind: Dtype = inexact_type("conv", x, w)
    if kind is dtypes.complex64:
        raise ValueError("[conv] Needs real floating-point arrays; convolve real and imaginary parts.")
    if groups < 1 or w.shape[0] % groups or w.shape[-1] * groups != x.shape[-1]:
        raise ValueError(
            f"[conv] Channels do not fit: input {x.shape}, weight {w.shape}, {groups} groups (the input's channels must be "
            "groups times the weight's, and the outputs a multiple of the groups)."
        )
    return cast(x, kind), cast(w, kind), count


Number = int | Sequence[int]


def conv_general(
    input: Any,
    weight: Any,
    /,
    stride: Number = 1,
    padding: Number | tuple[Sequence[int], Sequence[int]] = 0,
    kernel_dilation: Number = 1,
    input_dilation: Number = 1,
    groups: int = 1,
    flip: bool = False,
    *,
    stream: Any = None,
) -> array:
    """The convolution (as in learning: without mirroring the kernel unless `flip`) of `input` (N, spatial..., C) with
    `weight` (O, spatial..., C / groups): shape (N, spatial..., O).

    `padding`: zeros on both sides of each spatial axis, or (before, after); negative numbers cut. The dilations spread
    the kernel's and the input's elements apart. Raises ValueError where numbers or shapes do not fit, and for types
    that are not real floating-point ones.

    >>> signal, kernel = mx.array([1.0, 2.0, 3.0]).reshape(1, 3, 1), mx.array([1.0, 10.0]).reshape(1, 2, 1)
    >>> mx.conv_general(signal, kernel, padding=([1], [0])).flatten()
    array([10, 21, 32], dtype=float32)
    >>> mx.conv_general(signal, kernel, flip=True).flatten()
    array([12, 23], dtype=float32)
    """
    x, w, count = _checked(input, weight, groups, None)
    before: Any = padding
    after: Any = padding
    if not isinstance(padding, int) and len(padding) == 2 and not isinstance(padding[0], int):
        before, after = padding
    low, high = _per_axis("Padding", before, count, None), _per_axis("Padding", after, count, None)
    geometry = Geometry(
        _per_axis("Stride", stride, count, 1),
        low,
        high,
        _per_axis("Kernel dilation", kernel_dilation, count, 1),
        _per_axis("Input dilation", input_dilation, count, 1),
        groups,
        bool(flip),
    )
    return _conv(x, w, geometry, stream)


def _forward(
    x: Any, w: Any, ndim: int, stride: Number, padding: Number, dilation: Number, groups: int, stream: Any
) -> array:
    x, w, _ = _checked(x, w, groups, ndim)
    sides = _per_axis("Padding", padding, ndim, None)
    return conv_general(x, w, stride, (sides, sides), dilation, 1, groups, stream=stream)


def conv1d(
    input: Any,
    weight: Any,
    /,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    *,
    stream: Any = None,
) -> array:
    """The convolution of `input` (N, L, C) with `weight` (O, K, C / groups); see `conv_general`.

    >>> signal, kernel = mx.array([1.0, 2.0, 3.0]).reshape(1, 3, 1), mx.array([1.0, 10.0]).reshape(1, 2, 1)
    >>> mx.conv1d(signal, kernel).flatten()
    array([21, 32], dtype=float32)
    """
    return _forward(input, weight, 1, stride, padding, dilation, groups, stream)


def conv2d(
    input: Any,
    weight: Any,
    /,
    stride: Number = 1,
    padding: Number = 0,
    dilation: Number = 1,
    groups: int = 1,
    *,
    stream: Any = None,
) -> array:
    """The convolution of `input` (N, H, W, C) with `weight` (O, KH, KW, C / groups); see `conv_general`.

    >>> mx.conv2d(mx.ones((1, 8, 8, 3)), mx.ones((16, 3, 3, 3)), stride=2, padding=1).shape
    (1, 4, 4, 16)
    """
    return _forward(input, weight, 2, stride, padding, dilation, groups, stream)


def conv3d(
    input: Any,
    weight: Any,
    /,
    stride: Number = 1,
    padding: Number = 0,
    dilation: Number = 1,
    groups: int = 1,
    *,
    stream: Any = None,
) -> array:
    """The convolution of `input` (N, D, H, W, C) with `weight` (O, KD, KH, KW, C / groups); see `conv_general`.

    >>> mx.conv3d(mx.ones((1, 4, 8, 8, 3)), mx.ones((16, 3, 3, 3, 3))).shape
    (1, 2, 6, 6, 16)
    """
    return _forward(input, weight, 3, stride, padding, dilation, groups, stream)


def _transposed(
    x: Any,
    w: Any,
    ndim: int,
    stride: Number,
    padding: Number,
    dilation: Number,
    output_padding: Number,
    groups: int,
    stream: Any,
) -> array:
    x, w, _ = _checked(x, w, groups, ndim)
    strides = _per_axis("Stride", stride, ndim, 1)
    sides = _per_axis("Padding", padding, ndim, 0)
    spread = _per_axis("Dilation", dilation, ndim, 1)
    extra = _per_axis("Output padding", output_padding, ndim, 0)
    low = [d * (k - 1) - p for d, k, p in zip(spread, w.shape[1:-1], sides, strict=True)]
    high = [a + e for a, e in zip(low, extra, strict=True)]
    return conv_general(x, w, 1, (low, high), spread, strides, groups, True, stream=stream)


def conv_transpose1d(
    input: Any,
    weight: Any,
    /,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    output_padding: int = 0,
    groups: int = 1,
    *,
    stream: Any = None,
) -> array:
    """The transposed convolution of `input` (N, L, C) with `weight` (O, K, C / groups): `stride` spreads the input,
    `padding` cuts the result, `output_padding` adds to its end. Raises as `conv_general` does.

    >>> signal, kernel = mx.array([1.0, 2.0]).reshape(1, 2, 1), mx.array([1.0, 10.0]).reshape(1, 2, 1)
    >>> mx.conv_transpose1d(signal, kernel, stride=2).flatten()
    array([1, 10, 2, 20], dtype=float32)
    """
    return _transposed(input, weight, 1, stride, padding, dilation, output_padding, groups, stream)


def conv_transpose2d(
    input: Any,
    weight: Any,
    /,
    stride: Number = 1,
    padding: Number = 0,
    dilation: Number = 1,
    output_padding: Number = 0,
    groups: int = 1,
    *,
    stream: Any = None,
) -> array:
    """The transposed convolution of `input` (N, H, W, C) with `weight` (O, KH, KW, C / groups); see `conv_transpose1d`.

    >>> mx.conv_transpose2d(mx.ones((1, 4, 4, 3)), mx.ones((16, 3, 3, 3)), stride=2).shape
    (1, 9, 9, 16)
    """
    return _transposed(input, weight, 2, stride, padding, dilation, output_padding, groups, stream)


def conv_transpose3d(
    input: Any,
    weight: Any,
    /,
    stride: Number = 1,
    padding: Number = 0,
    dilation: Number = 1,
    output_padding: Number = 0,
    groups: int = 1,
    *,
    stream: Any = None,
) -> array:
    """The transposed convolution of `input` (N, D, H, W, C) with `weight` (O, KD, KH, KW, C / groups); see
    `conv_transpose1d`.

    >>> mx.conv_transpose3d(mx.ones((1, 2, 4, 4, 3)), mx.ones((16, 2, 2, 2, 3)), stride=2).shape
    (1, 4, 8, 8, 16)
    """
    return _transposed(input, weight, 3, stride, padding, dilation, output_padding, groups, stream)


def convolve(a: Any, v: Any, /, mode: str = "full", *, stream: Any = None) -> array:
    """The discrete convolution of two vectors. `mode`: "full" (length n + m - 1), "same" (max(n, m)) or "valid" (|n -
    m| + 1).

    Raises ValueError for other modes, for empty vectors or arrays that are not vectors, and for types that are not
    floating-point.

    >>> mx.convolve(mx.array([1.0, 2.0, 3.0]), mx.array([1.0, 10.0]))
    array([1, 12, 23, 30], dtype=float32)
    >>> mx.convolve(mx.array([1.0, 2.0, 3.0]), mx.array([1.0, 10.0]), mode="valid")
    array([12, 23], dtype=float32)
    """
    a, v = as_array(a), as_array(v)
    if a.ndim != 1 or v.ndim != 1 or not a.size or not v.size:
        raise ValueError(f"[convolve] Needs two vectors with elements; got shapes {a.shape} and {v.shape}.")
    if a.size < v.size:
        a, v = v, a
    n = v.size
    if mode == "full":
        sides = (n - 1, n - 1)
    elif mode == "same":
        sides = (n // 2, n - 1 - n // 2)
    elif mode == "valid":
        sides = (0, 0)
    else:
        raise ValueError(f"[convolve] Unknown mode {mode!r}; use 'full', 'same' or 'valid'.")
    x, w = reshape(a, (1, -1, 1), stream=stream), reshape(v, (1, -1, 1), stream=stream)
    return reshape(conv_general(x, w, 1, ([sides[0]], [sides[1]]), flip=True, stream=stream), (-1,), stream=stream)


__all__ = [
    "conv1d", "conv2d", "conv3d", "conv_general", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "convolve",
]  # fmt: skip
