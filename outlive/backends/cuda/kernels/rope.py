"""Route of the rotary position embedding."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

from outlive.backends.cuda.kernels.rows import FLOAT32_TYPES, POINTERS, block_of, compiled, divisible, launch
from outlive.backends.cuda.launches import NativeLaunch

if TYPE_CHECKING:
    from outlive.backends.cuda.kernels import Library


def select_rope(library: Library, kernel: Any, reads: Any, writes: Any, aligned: bool) -> NativeLaunch | None:
    """x (batch, heads, length, width) of any outer strides, an offset of one element or one a batch, and perhaps
    frequencies.
    """
    x, offset, out = reads[0].layout, reads[1].layout, writes[0].layout
    freqs = reads[2].layout if len(reads) > 2 else None
    half = kernel.dims // 2
    served = (
        x.ndim in (3, 4)
        and x.strides[-1] == 1
        and out.contiguous
        and x.dtype is out.dtype
        and x.dtype.name in FLOAT32_TYPES
        and offset.dtype.name in ("int32", "int64")
        and kernel.dims % 2 == 0
        and 0 < kernel.dims <= x.shape[-1]
        and (freqs is None or (freqs.contiguous and freqs.shape == (half,) and freqs.dtype.name in FLOAT32_TYPES))
    )
    if not served:
        return None
    shape, strides = (
        (x.shape, x.strides) if x.ndim == 4 else ((x.shape[0], 1, *x.shape[1:]), (x.strides[0], 0, *x.strides[1:]))
    )
    batch, heads, length, width = shape
    if offset.size not in (1, batch):
        return None
    s_offset = offset.strides[0] if offset.ndim and offset.size > 1 else 0
    rest = width - kernel.dims
    constants = {
        "HALF": half, "BLOCK": block_of(half, 1 << 16), "TRADITIONAL": bool(kernel.traditional), "GIVEN": freqs is not None,
        "REST": block_of(rest, 1 << 16) if rest else 0,
    }  # fmt: skip
    arguments = {"p_x": POINTERS[x.dtype.name], "p_offset": POINTERS[offset.dtype.name]}
    arguments["p_freqs"] = POINTERS[freqs.dtype.name] if freqs is not None else "constexpr"
    if freqs is None:
        constants["p_freqs"] = None
    arguments["p_out"] = POINTERS[out.dtype.name]
    pointers = [name for name, kind in arguments.items() if kind != "constexpr"]
    numbers = {
        "heads": heads, "length": length, "width": width, "s_batch": strides[0], "s_head": strides[1], "s_step": strides[2],
        "s_offset": s_offset,
    }  # fmt: skip
    arguments |= dict.fromkeys(numbers, "i64") | {"scale": "fp64", "log2_base": "fp64"}
    arguments |= {name: "constexpr" for name in constants if name != "p_freqs"}
    known = divisible(aligned, pointers, width=width, s_batch=strides[0], s_head=strides[1], s_step=strides[2])
    source = compiled("rope", "rope", arguments, constants, known, 1 if half <= 64 else 4)
    words = (
        *numbers.values(),
        _double_word(kernel.scale),
        _double_word(math.log2(kernel.base) if kernel.base else 0.0),
    )
    return launch(library, source, (batch * heads * length, 1, 1), len(pointers), words)


def _double_word(value: float) -> int:
    return struct.unpack("<q", struct.pack("<d", value))[0]


ROUTES = {"rope": select_rope}
