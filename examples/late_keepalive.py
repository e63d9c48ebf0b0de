"""A primitive written wrongly: it takes the command buffer, evaluates something inside, and then attaches its keep-alive to the old one.

What it meant to keep is released when the old command buffer completes, which it has already, while the new one still uses it.

    outlive check examples/late_keepalive.py
    outlive check examples/late_keepalive.py --proper
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import outlive.core as mx
from outlive.check import unsafe
from outlive.graph.array import apply
from outlive.graph.primitive import Primitive
from outlive.runtime.builtin import COPY
from outlive.runtime.layout import layout as dense


class ScaleWrongly(Primitive):
    """Adds a table of its own to a vector, and keeps the table alive by a handler on the wrong command buffer."""

    __slots__ = ()
    name = "scale wrongly"

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        out = encoder.output(layout, donate=False)
        if not hasattr(encoder, "_stream"):  # the sequential evaluation, which has nothing to lose
            encoder.fill(out, 3.0)
            return out
        taken = unsafe.command_buffer(encoder)
        table, owner = unsafe.host_filled(encoder, np.full(layout.shape, 3.0, np.float32), layout)
        unsafe.synchronize(
            encoder
        )  # stands for an evaluation inside: the command buffer that was taken is committed by it
        unsafe.dispatch_unretained(encoder, COPY, (table,), (out,))
        unsafe.attach(taken, lambda owner=owner: None)  # too late: nobody will ever run this
        return out


class ScaleProperly(Primitive):
    """The same through the encoder: a temporary is retained by the records that name it, whatever happens in between."""

    __slots__ = ()
    name = "scale properly"

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        table = encoder.temporary(layout.nbytes, layout.dtype)
        encoder.fill(table, 3.0)
        out = encoder.output(layout, donate=False)
        encoder.copy(encoder.reshaped(table, layout), out)
        return out


def main() -> None:
    primitive = ScaleProperly if "--proper" in sys.argv else ScaleWrongly
    x = mx.ones((5,))
    before = mx.add(x, 1)
    y = apply(primitive.make(), (before,), dense((5,), x.dtype))
    mx.async_eval(y)
    others = [mx.array([float(i)] * 5) for i in range(3)]
    print(mx.sum(y).item(), [mx.sum(o).item() for o in others])


if __name__ == "__main__":
    main()
