"""Route of scaled dot-product attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outlive.backends.cpu.kernels.layouts import broadcast_strides
from outlive.backends.cuda.kernels.rows import (
    FLOAT32_TYPES,
    POINTERS,
    block_of,
    compiled,
    divisible,
    float_word,
    launch,
)
from outlive.backends.cuda.launches import NativeLaunch

if TYPE_CHECKING:
    from outlive.backends.cuda.kernels import Library

LIMIT_WIDTH = 256
SHARED_BYTES = 88 << 10
"""What a block of keys and values, twice, and a block of queries may take: any chip has 99 KB."""

NUMBERS = (
    "heads group queries keys width value_width s_q_batch s_q_head s_query s_k_batch s_k_head s_key s_v_batch s_v_head s_value"
    " s_mask_batch s_mask_head s_mask_query s_mask_key"
).split()


def select_attention(library: Library, kernel: Any, reads: Any, writes: Any, aligned: bool) -> NativeLaunch | None:
    """q (B, H, Lq, D), k (B, Hkv, Lk, D), v (B, Hkv, Lk, Dv) of one half or float32 type, their last axes contiguous."""
    q, k, v = (o.layout for o in reads[:3])
    out = writes[0].layout
    mask = reads[3].layout if kernel.has_mask else None
    sinks = reads[-1].layout if kernel.has_sinks else None
    if not _served(q, k, v, out, mask, sinks):
        return None
    batch, heads, queries, width = q.shape
    keys, value_width = k.shape[2], v.shape[3]
    seen = (0, 0, 0, 0) if mask is None else broadcast_strides(mask, (batch, heads, queries, keys))
    if seen is None:
        return None
    blocks = _blocks(queries, block_of(width, LIMIT_WIDTH), block_of(value_width, LIMIT_WIDTH), q.dtype.itemsize)
    arguments, constants = _pointers(q, k, v, mask, sinks, out)
    values = (
        heads, heads // k.shape[1], queries, keys, width, value_width, *q.strides[:3], *k.strides[:3], *v.strides[:3], *seen,
    )  # fmt: skip
    numbers = dict(zip(NUMBERS, values, strict=True))
    pointers = [name for name, kind in arguments.items() if kind != "constexpr"]
    kind = "none" if mask is None else "boolean" if mask.dtype.name == "bool" else "additive"
    constants |= {"CAUSAL": bool(kernel.causal), "MASK": kind, "SINKS": sinks is not None, **blocks}
    arguments |= dict.fromkeys(NUMBERS, "i64") | {"scale": "fp32"}
    arguments |= {name: "constexpr" for name in constants if name not in arguments}
    strides = {
        name: value for name, value in numbers.items() if name.startswith("s_") and not name.startswith("s_mask")
    }
    known = divisible(aligned, pointers, **strides)
    source = compiled("attention", "attention", arguments, constants, known, 4)
    grid = (-(-queries // blocks["BLOCK_M"]), heads, batch)
    return launch(library, source, grid, len(pointers), (*values, float_word(kernel.scale)))


def _served(q: Any, k: Any, v: Any, out: Any, mask: Any, sinks: Any) -> bool:
    return bool(
        q.dtype is k.dtype is v.dtype is out.dtype
        and q.dtype.name in FLOAT32_TYPES
        and q.strides[-1] == k.strides[-1] == v.strides[-1] == 1
        and out.contiguous
        and k.size
        and max(q.shape[-1], v.shape[-1]) <= LIMIT_WIDTH
        and (mask is None or mask.dtype.name in (*FLOAT32_TYPES, "bool"))
        and (sinks is None or (sinks.contiguous and sinks.dtype.name in FLOAT32_TYPES))
    )


def _blocks(queries: int, width: int, value_width: int, itemsize: int) -> dict[str, int]:
    """Sizes of blocks, at least 16 in each axis: what the matrix units take."""
    width, value_width = max(16, width), max(16, value_width)
    rows = 16 if queries <= 16 else 64 if itemsize == 2 else 32
    keys = 64
    while keys > 16 and itemsize * (2 * keys * (width + value_width) + rows * width) > SHARED_BYTES:
        keys //= 2
    return {"BLOCK_M": rows, "BLOCK_N": keys, "BLOCK_D": width, "BLOCK_E": value_width}


def _pointers(q: Any, k: Any, v: Any, mask: Any, sinks: Any, out: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """The pointer arguments in order with their types, and the constants that stand for absent ones."""
    given = {"p_q": q, "p_k": k, "p_v": v, "p_mask": mask, "p_sinks": sinks, "p_out": out}
    arguments = {name: "constexpr" if seen is None else POINTERS[seen.dtype.name] for name, seen in given.items()}
    return arguments, {name: None for name, seen in given.items() if seen is None}


ROUTES = {"scaled_dot_product_attention": select_attention}
