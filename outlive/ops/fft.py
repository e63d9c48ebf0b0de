"""Fourier transforms over any axes, by pocketfft, in complex64; short-time transforms built on them.

All transforms are linear, and each is the adjoint of another: cotangents go through the transform in the other
direction, with the scaling
moved to the other side. Cotangents of complex arrays follow the convention d/d(real) + i d/d(imaginary).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from outlive.graph.array import apply, array
from outlive.graph.primitive import Primitive
from outlive.ops.common import Dtype, as_array, constant, dtypes, layout
from outlive.ops.creation import arange, ones, zeros
from outlive.ops.elementwise import where
from outlive.ops.gather import scatter_along, take
from outlive.ops.join import pad, roll
from outlive.ops.shape import broadcast_to, checked_axis, expand_dims, moveaxis, reshape, swapaxes
from outlive.ops.slicing import axis_range
from outlive.ops.unary import astype, real, square

NORMS = ("backward", "ortho", "forward")
ADJOINT_NORM = {"backward": "forward", "ortho": "ortho", "forward": "backward"}
"""A transform scaled by 1 (backward), 1/sqrt(N) or 1/N (forward) has its adjoint scaled alike, on the other side."""

WEIGHT_MIN = 1e-10
"""Squared window weights below this leave a sample of `istft` undetermined; it is 0 there."""

Axes = Sequence[int] | None


class Transform(Primitive):
    """Complex to complex over `axes`, forward or inverse."""

    __slots__ = ("axes", "inverse", "norm")
    name = "fft"
    donates = False
    axes: tuple[int, ...]
    inverse: bool
    norm: str

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        transform = xp.fft.ifftn if self.inverse else xp.fft.fftn
        writes[0][...] = transform(reads[0], axes=self.axes, norm=self.norm)

    def workspace(self, reads: Any, writes: Any) -> int:
        return 16 * 3 * max(reads[0].size, writes[0].size)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return [_complex(cotangents[0], self.axes, not self.inverse, ADJOINT_NORM[self.norm])]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        return [_complex(tangents[0], self.axes, self.inverse, self.norm)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        return [_complex(moveaxis(inputs[0], axes[0], 0), _after_one(self.axes), self.inverse, self.norm)], [0]


class RealTransform(Primitive):
    """Real to the first half of its Hermitian transform, n // 2 + 1 elements along the last of `axes`."""

    __slots__ = ("axes", "norm")
    name = "rfft"
    donates = False
    axes: tuple[int, ...]
    norm: str

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        writes[0][...] = xp.fft.rfftn(reads[0], axes=self.axes, norm=self.norm)

    def workspace(self, reads: Any, writes: Any) -> int:
        return 16 * 3 * max(reads[0].size, writes[0].size)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        last, ct = self.axes[-1], cotangents[0]
        widths = [(0, 0)] * ct.ndim
        widths[last] = (0, primals[0].shape[last] - ct.shape[last])
        return [real(_complex(pad(ct, widths), self.axes, True, ADJOINT_NORM[self.norm]))]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        return [_from_real(tangents[0], self.axes, self.norm)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        return [_from_real(moveaxis(inputs[0], axes[0], 0), _after_one(self.axes), self.norm)], [0]


class RealInverse(Primitive):
    """The first half of a Hermitian transform to the `length` real elements along the last of `axes`."""

    __slots__ = ("axes", "length", "norm")
    name = "irfft"
    donates = False
    axes: tuple[int, ...]
    length: int
    norm: str

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        lengths = [writes[0].shape[i] for i in self.axes]
        writes[0][...] = xp.fft.irfftn(reads[0], s=lengths, axes=self.axes, norm=self.norm)

    def workspace(self, reads: Any, writes: Any) -> int:
        return 16 * 3 * max(reads[0].size, writes[0].size)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        # every element but the first (and the middle one of an even length) stands for its mirror image too
        last = self.axes[-1]
        half = primals[0].shape[last]
        place = arange(half)
        alone = (place == 0) if self.length % 2 else (place == 0) | (2 * place == self.length)
        shape = [1] * primals[0].ndim
        shape[last] = half
        weights = where(reshape(alone, shape), 1.0, 2.0)
        return [_from_real(cotangents[0], self.axes, ADJOINT_NORM[self.norm]) * weights]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        return [_to_real(tangents[0], self.axes, self.length, self.norm)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        return [_to_real(moveaxis(inputs[0], axes[0], 0), _after_one(self.axes), self.length, self.norm)], [0]


def _after_one(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(i + 1 for i in axes)


def _complex(a: array, axes: tuple[int, ...], inverse: bool, norm: str, stream: Any = None) -> array:
    return apply(Transform.make(axes, inverse, norm), (a,), a._node.layout, stream)


def _from_real(a: array, axes: tuple[int, ...], norm: str, stream: Any = None) -> array:
    shape = list(a.shape)
    shape[axes[-1]] = shape[axes[-1]] // 2 + 1
    return apply(RealTransform.make(axes, norm), (a,), layout(tuple(shape), dtypes.complex64), stream)


def _to_real(a: array, axes: tuple[int, ...], length: int, norm: str, stream: Any = None) -> array:
    shape = list(a.shape)
    shape[axes[-1]] = length
    return apply(RealInverse.make(axes, length, norm), (a,), layout(tuple(shape), dtypes.float32), stream)


def _resized(a: array, axis: int, length: int) -> array:
    """`a` cut or padded with zeros at the end of an axis."""
    have = a.shape[axis]
    if have >= length:
        return a if have == length else axis_range(a, axis, 0, length)
    widths = [(0, 0)] * a.ndim
    widths[axis] = (0, length - have)
    return pad(a, widths)


def _prepared(
    op: str, a: Any, s: Axes, axes: Axes, norm: str, dtype: Dtype, halved: bool
) -> tuple[array, tuple[int, ...], int]:
    """The operand in its type and lengths, its axes, and the output length of the last one (`halved`: it shows half of
    a transform).
    """
    if norm not in NORMS:
        raise ValueError(f"[{op}] norm is one of {', '.join(NORMS)}; got {norm!r}.")
    a = as_array(a)
    if s is not None and axes is None:
        raise ValueError(f"[{op}] Lengths s={tuple(s)} need the axes that they are for.")
    used = tuple(checked_axis(op, i, a.ndim) for i in (range(a.ndim) if axes is None else axes))
    if len(set(used)) != len(used):
        raise ValueError(f"[{op}] Axes {tuple(axes or ())} name one axis twice.")
    lengths = [a.shape[i] for i in used]
    if halved and lengths:
        lengths[-1] = 2 * (lengths[-1] - 1)
    if s is not None:
        if len(s) != len(used):
            raise ValueError(f"[{op}] Lengths s={tuple(s)} and axes {used} differ in number.")
        lengths = [int(n) for n in s]
    if any(n < 1 for n in lengths):
        raise ValueError(f"[{op}] A transform has at least one element along each axis; got lengths {tuple(lengths)}.")
    last = lengths[-1] if lengths else 0
    if halved and lengths:
        lengths[-1] = last // 2 + 1
    a = astype(a, dtype)
    for axis, length in zip(used, lengths, strict=True):
        a = _resized(a, axis, length)
    return a, used, last


def _transformed(op: str, a: Any, s: Axes, axes: Axes, norm: str, inverse: bool, stream: Any) -> array:
    a, used, _ = _prepared(op, a, s, axes, norm, dtypes.complex64, halved=False)
    return _complex(a, used, inverse, norm, stream) if used else a


def fftn(a: array, s: Axes = None, axes: Axes = None, norm: str = "backward", stream: Any = None) -> array:
    """Discrete Fourier transform X[k] = sum over n of x[n] exp(-2 pi i k n / N) along each of `axes` (None: all);
    complex64.

    `s`: lengths to which those axes are cut or padded with zeros first. `norm`: where the factor 1/N goes: "backward"
    (to the inverse),
    "forward", or "ortho" (1/sqrt(N) to both). Raises ValueError for another norm, lengths below 1, repeated axes, or
    `s` without `axes`;
    IndexError for an axis out of range.

    >>> mx.fft.fftn(mx.ones((2, 2))).tolist()
    [[(4+0j), 0j], [0j, 0j]]
    """
    return _transformed("fftn", a, s, axes, norm, False, stream)


def ifftn(a: array, s: Axes = None, axes: Axes = None, norm: str = "backward", stream: Any = None) -> array:
    """Inverse of `fftn`, with its arguments; complex64.

    >>> mx.fft.ifftn(mx.fft.fftn(mx.ones((2, 2)))).tolist()
    [[(1+0j), (1+0j)], [(1+0j), (1+0j)]]
    """
    return _transformed("ifftn", a, s, axes, norm, True, stream)


def rfftn(a: array, s: Axes = None, axes: Axes = None, norm: str = "backward", stream: Any = None) -> array:
    """`fftn` of real input: the last axis keeps its first n // 2 + 1 elements, which determine the rest; complex64.

    Arguments and errors as in `fftn`.

    >>> mx.fft.rfftn(mx.ones((4, 6))).shape
    (4, 4)
    """
    a, used, _ = _prepared("rfftn", a, s, axes, norm, dtypes.float32, halved=False)
    return _from_real(a, used, norm, stream) if used else astype(a, dtypes.complex64)


def irfftn(a: array, s: Axes = None, axes: Axes = None, norm: str = "backward", stream: Any = None) -> array:
    """Inverse of `rfftn`; float32. The last axis has 2 (n - 1) elements where `s` does not tell.

    >>> mx.fft.irfftn(mx.fft.rfftn(mx.ones((2, 2)))).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    a, used, last = _prepared("irfftn", a, s, axes, norm, dtypes.complex64, halved=True)
    return _to_real(a, used, last, norm, stream) if used else real(a)


def _one_length(n: int | None) -> Axes:
    return None if n is None else [n]


def fft(a: array, n: int | None = None, axis: int = -1, norm: str = "backward", stream: Any = None) -> array:
    """`fftn` along one axis, cut or padded to `n` elements; errors as there.

    >>> mx.fft.fft(mx.array([1.0, 1.0, 1.0, 1.0]))
    array([4+0j, 0+0j, 0+0j, 0+0j], dtype=complex64)
    >>> mx.fft.fft(mx.array([1.0, 1.0]), n=8).shape
    (8,)
    """
    return _transformed("fft", a, _one_length(n), [axis], norm, False, stream)


def ifft(a: array, n: int | None = None, axis: int = -1, norm: str = "backward", stream: Any = None) -> array:
    """`ifftn` along one axis, cut or padded to `n` elements; errors as there.

    >>> mx.fft.ifft(mx.array([4.0, 0.0, 0.0, 0.0]))
    array([1+0j, 1+0j, 1+0j, 1+0j], dtype=complex64)
    """
    return _transformed("ifft", a, _one_length(n), [axis], norm, True, stream)


def rfft(a: array, n: int | None = None, axis: int = -1, norm: str = "backward", stream: Any = None) -> array:
    """`rfftn` along one axis, cut or padded to `n` elements; errors as there.

    >>> mx.fft.rfft(mx.array([1.0, 1.0, 1.0, 1.0]))
    array([4+0j, 0+0j, 0+0j], dtype=complex64)
    """
    return rfftn(a, _one_length(n), [axis], norm, stream)


def irfft(a: array, n: int | None = None, axis: int = -1, norm: str = "backward", stream: Any = None) -> array:
    """`irfftn` along one axis, to `n` real elements; errors as there.

    >>> mx.fft.irfft(mx.array([4.0, 0.0, 0.0]))
    array([1, 1, 1, 1], dtype=float32)
    """
    return irfftn(a, _one_length(n), [axis], norm, stream)


def fft2(a: array, s: Axes = None, axes: Axes = (-2, -1), norm: str = "backward", stream: Any = None) -> array:
    """`fftn` along two axes, the last ones by default; errors as there.

    >>> mx.fft.fft2(mx.ones((5, 2, 2))).shape
    (5, 2, 2)
    """
    return fftn(a, s, axes, norm, stream)


def ifft2(a: array, s: Axes = None, axes: Axes = (-2, -1), norm: str = "backward", stream: Any = None) -> array:
    """`ifftn` along two axes, the last ones by default; errors as there.

    >>> mx.fft.ifft2(mx.fft.fft2(mx.ones((2, 2)))).tolist()
    [[(1+0j), (1+0j)], [(1+0j), (1+0j)]]
    """
    return ifftn(a, s, axes, norm, stream)


def rfft2(a: array, s: Axes = None, axes: Axes = (-2, -1), norm: str = "backward", stream: Any = None) -> array:
    """`rfftn` along two axes, the last ones by default; errors as there.

    >>> mx.fft.rfft2(mx.ones((5, 4, 6))).shape
    (5, 4, 4)
    """
    return rfftn(a, s, axes, norm, stream)


def irfft2(a: array, s: Axes = None, axes: Axes = (-2, -1), norm: str = "backward", stream: Any = None) -> array:
    """`irfftn` along two axes, the last ones by default; errors as there.

    >>> mx.fft.irfft2(mx.fft.rfft2(mx.ones((2, 2)))).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    return irfftn(a, s, axes, norm, stream)


def _checked_count(op: str, n: int) -> int:
    if n < 1:
        raise ValueError(f"[{op}] n must be at least 1; got {n}.")
    return n


def fftfreq(n: int, d: float = 1.0, stream: Any = None) -> array:
    """Frequencies of the `n` elements of `fft`, in cycles per unit of the sample spacing `d`, negative ones last;
    float32. Raises ValueError for `n` below 1.

    >>> mx.fft.fftfreq(4, d=0.5)
    array([0, 0.5, -1, -0.5], dtype=float32)
    """
    half = (_checked_count("fftfreq", n) + 1) // 2
    places = arange(n)
    return (where(places < half, places, places - n) / (n * d)).astype(dtypes.float32, stream=stream)


def rfftfreq(n: int, d: float = 1.0, stream: Any = None) -> array:
    """Frequencies of the n // 2 + 1 elements of `rfft`, in cycles per unit of the sample spacing `d`; float32.

    Raises ValueError for `n` below 1.

    >>> mx.fft.rfftfreq(4, d=0.5)
    array([0, 0.5, 1], dtype=float32)
    """
    return (arange(_checked_count("rfftfreq", n) // 2 + 1) / (n * d)).astype(dtypes.float32, stream=stream)


def _shift(op: str, a: Any, axes: int | Sequence[int] | None, inverse: bool, stream: Any) -> array:
    a = as_array(a)
    given = range(a.ndim) if axes is None else [axes] if isinstance(axes, int) else axes
    used = [checked_axis(op, i, a.ndim) for i in given]
    return (
        roll(
            a,
            tuple((n + 1) // 2 if inverse else n // 2 for n in (a.shape[i] for i in used)),
            tuple(used),
            stream=stream,
        )
        if used
        else a
    )


def fftshift(a: array, axes: int | Sequence[int] | None = None, stream: Any = None) -> array:
    """The zero frequency moved to the middle of `axes` (None: all). Raises IndexError for an axis out of range.

    >>> mx.fft.fftshift(mx.array([0, 1, -2, -1]))
    array([-2, -1, 0, 1], dtype=int32)
    """
    return _shift("fftshift", a, axes, False, stream)


def ifftshift(a: array, axes: int | Sequence[int] | None = None, stream: Any = None) -> array:
    """Inverse of `fftshift`. Raises IndexError for an axis out of range.

    >>> mx.fft.ifftshift(mx.array([-2, -1, 0, 1]))
    array([0, 1, -2, -1], dtype=int32)
    """
    return _shift("ifftshift", a, axes, True, stream)


def _window(op: str, n_fft: int, hop: int | None, length: int | None, window: array | None) -> tuple[array, int]:
    """The window, centred in n_fft points, and the hop."""
    if n_fft < 1:
        raise ValueError(f"[{op}] n_fft must be at least 1; got {n_fft}.")
    hop = n_fft // 4 if hop is None else hop
    if hop < 1:
        raise ValueError(f"[{op}] hop_length must be at least 1; got {hop}.")
    if window is not None and window.ndim != 1:
        raise ValueError(f"[{op}] A window has one axis; got shape {window.shape}.")
    length = (n_fft if window is None else window.size) if length is None else length
    if not 1 <= length <= n_fft:
        raise ValueError(f"[{op}] A window of {length} points does not fit n_fft = {n_fft}.")
    window = ones((length,)) if window is None else window
    if window.size != length:
        raise ValueError(f"[{op}] win_length is {length}, the window has {window.size} points.")
    left = (n_fft - length) // 2
    return pad(astype(window, dtypes.float32), [(left, n_fft - length - left)]), hop


def _frame_places(frames: int, n_fft: int, hop: int) -> array:
    """Sample of each point of each frame, (frames, n_fft)."""
    return expand_dims(arange(frames) * hop, 1) + arange(n_fft)


def stft(
    x: array,
    n_fft: int = 2048,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: array | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    norm: str = "backward",
    onesided: bool | None = None,
    stream: Any = None,
) -> array:
    """Short-time Fourier transform of the last axis: (..., frequencies, frames), complex64.

    Frames of `n_fft` samples, `hop_length` (n_fft // 4) apart, times `window` (ones; `win_length` points, centred in
    the frame). `center`
    pads n_fft // 2 samples at both ends by `pad_mode`. `onesided` keeps n_fft // 2 + 1 frequencies, by default for real
    input.
    Raises ValueError where the sizes do not fit.

    >>> mx.fft.stft(mx.ones((64,)), n_fft=16).shape
    (9, 17)
    """
    x = as_array(x)
    if x.ndim < 1:
        raise ValueError(f"[stft] Expected at least one axis; got shape {x.shape}.")
    window, hop = _window("stft", n_fft, hop_length, win_length, window)
    is_complex = x.dtype is dtypes.complex64
    onesided = not is_complex if onesided is None else onesided
    if is_complex and onesided:
        raise ValueError("[stft] The transform of complex input has no mirrored half: use onesided=False.")
    x = x if is_complex else astype(x, dtypes.float32)
    if center:
        x = pad(x, [(0, 0)] * (x.ndim - 1) + [(n_fft // 2, n_fft // 2)], pad_mode)
    if x.shape[-1] < n_fft:
        raise ValueError(f"[stft] {x.shape[-1]} samples are fewer than n_fft = {n_fft}.")
    frames = 1 + (x.shape[-1] - n_fft) // hop
    cut = take(x, _frame_places(frames, n_fft, hop), -1) * window
    return swapaxes((rfft if onesided else fft)(cut, norm=norm, stream=stream), -1, -2)


def istft(
    stft_matrix: array,
    n_fft: int | None = None,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: array | None = None,
    center: bool = True,
    norm: str = "backward",
    onesided: bool | None = None,
    length: int | None = None,
    stream: Any = None,
) -> array:
    """Inverse of `stft` by weighted overlap-add: the signal (..., samples), float32, whose frames are nearest to
    `stft_matrix`.

    Arguments as in `stft`; `n_fft` is found from the frequencies where it is not given, `length` cuts or pads the
    signal with zeros.
    Raises ValueError where the sizes do not fit.

    >>> window = mx.hanning(17)[:16]
    >>> frames = mx.fft.stft(mx.ones((64,)), n_fft=16, window=window)
    >>> mx.allclose(mx.fft.istft(frames, window=window, length=64), mx.ones((64,)), atol=1e-5)
    array(True, dtype=bool)
    """
    spectrum = as_array(stft_matrix)
    if spectrum.ndim < 2:
        raise ValueError(f"[istft] Expected frequencies and frames as the last two axes; got shape {spectrum.shape}.")
    count = spectrum.shape[-2]
    if onesided is None:
        onesided = n_fft is None or count == n_fft // 2 + 1 or count != n_fft
    n_fft = n_fft or (2 * (count - 1) if onesided else count)
    window, hop = _window("istft", n_fft, hop_length, win_length, window)
    spectrum = swapaxes(spectrum, -1, -2)
    cut = irfft(spectrum, n_fft, norm=norm) if onesided else real(ifft(spectrum, n_fft, norm=norm))
    frames = cut.shape[-2]
    total = n_fft + hop * (frames - 1)
    places = reshape(_frame_places(frames, n_fft, hop), (-1,))
    signal = _overlapped(cut * window, places, total)
    weight = _overlapped(broadcast_to(square(window), (frames, n_fft)), places, total)
    signal = where(weight > WEIGHT_MIN, signal / where(weight > WEIGHT_MIN, weight, 1.0), constant(0, dtypes.float32))
    start = n_fft // 2 if center else 0
    kept = total - 2 * start if length is None else min(length, total - start)
    signal = axis_range(signal, signal.ndim - 1, start, max(kept, 0), stream=stream)
    return signal if length is None else _resized(signal, signal.ndim - 1, length)


def _overlapped(frames: array, places: array, total: int) -> array:
    """Frames (..., count, n) added up at their places in a signal of `total` samples."""
    lead = frames.shape[:-2]
    flat = reshape(frames, (*lead, math.prod(frames.shape[-2:])))
    return scatter_along(zeros((*lead, total)), broadcast_to(places, flat.shape), flat, flat.ndim - 1, "add")


__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "ifft", "ifft2", "ifftn", "ifftshift", "irfft", "irfft2",
    "irfftn", "istft", "rfft", "rfft2", "rfftfreq", "rfftn", "stft",
]  # fmt: skip
