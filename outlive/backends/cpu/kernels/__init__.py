"""Compiled CPU kernels, by op. Nothing is compiled or loaded before a call asks for it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from outlive.backends.cpu.abi import Selection

Route = Callable[[list, list, Any], "Selection | None"]


@functools.cache
def _routes() -> dict[str, Route]:
    from outlive.backends.cpu.features import features
    from outlive.backends.cpu.kernels import (
        attention,
        dense,
        elementwise,
        fused,
        gated_delta,
        gather,
        gather_products,
        normalize,
        quantized,
        reduce,
        rope,
        slices,
    )

    if not features().vector:
        return {}
    families = (
        *(attention, dense, elementwise, fused, gated_delta, gather, gather_products, normalize),
        *(quantized, reduce, rope, slices),
    )
    return {op: route for family in families for op, route in family.ROUTES.items()}


def lookup(op_name: str, reads: list, writes: list, params: Any) -> Selection | None:
    """The compiled kernel that a call takes, or None: the reference kernel serves it.

    op_name: the op's name. reads, writes: operands in order, each with a `layout` (shape, strides in elements,
    dtype, size, contiguous); an absent operand is None. params: the primitive, with the op's attributes. Returns
    the kernel, the largest number of shares worth making (0: do not share), and the static words that follow the
    pointers of the operands that are present.
    """
    route = _routes().get(op_name)
    if route is None or not any(operand.layout.size for operand in writes):
        return None  # a result without elements leaves nothing to share among threads
    return route(reads, writes, params)
