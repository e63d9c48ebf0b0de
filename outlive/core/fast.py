"""Fused ops: `mx.fast`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from outlive.ops.attention import scaled_dot_product_attention
from outlive.ops.cross_entropy import cross_entropy
from outlive.ops.gated_delta import gated_delta_update
from outlive.ops.normalize import layer_norm, rms_norm
from outlive.ops.rope import rope


def _no_custom_kernels(op: str) -> RuntimeError:
    return RuntimeError(f"[{op}] Custom kernels need a GPU backend that compiles them, which is not at hand.")


def metal_kernel(
    name: str,
    input_names: Sequence[str],
    output_names: Sequence[str],
    source: str,
    header: str = "",
    ensure_row_contiguous: bool = True,
    atomic_outputs: bool = False,
    compile_options: Any = None,
) -> Callable[..., list[Any]]:
    """A kernel from Metal source. Raises RuntimeError where no backend compiles it.

    >>> mx.fast.metal_kernel("double", ["x"], ["y"], "y[i] = 2 * x[i];")
    Traceback (most recent call last):
        ...
    RuntimeError: [metal_kernel] Custom kernels need a GPU backend that compiles them, which is not at hand.
    """
    raise _no_custom_kernels("metal_kernel")


def cuda_kernel(
    name: str,
    input_names: Sequence[str],
    output_names: Sequence[str],
    source: str,
    header: str = "",
    ensure_row_contiguous: bool = True,
    shared_memory: int = 0,
) -> Callable[..., list[Any]]:
    """A kernel from CUDA source. Raises RuntimeError where no backend compiles it.

    >>> mx.fast.cuda_kernel("double", ["x"], ["y"], "y[i] = 2 * x[i];")
    Traceback (most recent call last):
        ...
    RuntimeError: [cuda_kernel] Custom kernels need a GPU backend that compiles them, which is not at hand.
    """
    raise _no_custom_kernels("cuda_kernel")


def precompiled_cuda_kernel(
    *,
    name: str,
    compiled_source: bytes,
    inputs: Sequence[Any],
    output_shapes: Sequence[Sequence[int]],
    output_dtypes: Sequence[Any],
    scalars: Sequence[Any],
    grid: tuple[int, int, int],
    threadgroup: tuple[int, int, int],
    shared_memory: int = 0,
    init_value: float | None = None,
    ensure_row_contiguous: bool = False,
    stream: Any = None,
) -> list[Any]:
    """Run a compiled CUDA kernel. Raises RuntimeError where no backend runs it.

    >>> mx.fast.precompiled_cuda_kernel(
    ...     name="double", compiled_source=b"", inputs=[], output_shapes=[], output_dtypes=[], scalars=[],
    ...     grid=(1, 1, 1), threadgroup=(1, 1, 1),
    ... )
    Traceback (most recent call last):
        ...
    RuntimeError: [precompiled_cuda_kernel] Custom kernels need a GPU backend that compiles them, which is not at hand.
    """
    raise _no_custom_kernels("precompiled_cuda_kernel")


__all__ = [
    "cross_entropy",
    "cuda_kernel",
    "gated_delta_update",
    "layer_norm",
    "metal_kernel",
    "precompiled_cuda_kernel",
    "rms_norm",
    "rope",
    "scaled_dot_product_attention",
]
