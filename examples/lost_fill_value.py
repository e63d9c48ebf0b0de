"""A primitive written wrongly: the value that it fills with is a temporary which no record retains.

The device may read it long after the host gave its memory to somebody else. On a real machine this goes well nearly always; under
`outlive check examples/lost_fill_value.py` it is found in the first schedule, and `--proper` shows that the right way is clean:

    outlive check examples/lost_fill_value.py
    outlive check examples/lost_fill_value.py --proper
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


class PadWrongly(Primitive):
    """Pads a vector on the right with `value`, read from memory that nobody retains."""

    __slots__ = ("count", "value")
    name = "pad wrongly"
    count: int
    value: float

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        out = encoder.output(layout, donate=False)
        n = inputs[0].layout.size
        encoder.copy(inputs[0], encoder.reshaped(out, inputs[0].layout.dense))
        tail = encoder.reshaped(out, dense((self.count,), layout.dtype), n)
        self.fill(encoder, tail)
        return out

    def fill(self, encoder: Any, tail: Any) -> None:
        """The mistake: the scalar lives in a buffer whose owner is gone when this returns, and the record does not name it."""
        if not hasattr(encoder, "_stream"):  # the sequential evaluation, which has nothing to lose
            encoder.fill(tail, self.value)
            return
        values = np.array(self.value, tail.layout.dtype.storage)
        scalar, owner = unsafe.host_filled(encoder, values, dense((), tail.layout.dtype))
        unsafe.dispatch_unretained(encoder, COPY, (scalar,), (tail,))
        del owner


class PadProperly(PadWrongly):
    """The same with the encoder's own fill, which takes the number by value: there is no temporary to lose."""

    __slots__ = ("count", "value")
    name = "pad properly"

    def fill(self, encoder: Any, tail: Any) -> None:
        encoder.fill(tail, self.value)


def padded(a: mx.array, count: int, value: float, primitive: type[PadWrongly]) -> mx.array:
    """`a` with `count` times `value` after it."""
    return apply(primitive.make(count, value), (a,), dense((a.size + count,), a.dtype))


def main() -> None:
    primitive = PadProperly if "--proper" in sys.argv else PadWrongly
    x = mx.ones((5,))
    y = padded(x, 3, 2.0, primitive)
    mx.async_eval(y)
    other = mx.array(7.0)  # gets the memory of the lost scalar
    print(mx.sum(y).item(), other.item())


if __name__ == "__main__":
    main()
