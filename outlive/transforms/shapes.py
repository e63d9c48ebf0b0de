"""The shapes of a plan's values for arguments of other shapes, by one rule an op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from outlive.graph.primitive import Primitive
from outlive.ops.broadcast import Elementwise
from outlive.ops.common import broadcast_shapes
from outlive.runtime.layout import Layout, layout
from outlive.transforms.plan import Plan

Rule = Callable[[Any, Sequence[Layout], Layout, Sequence[Layout]], tuple[int, ...]]
"""(primitive, input layouts, traced layout, traced input layouts) -> shape of the result."""


def _first(primitive: Any, inputs: Sequence[Layout], traced: Layout, before: Sequence[Layout]) -> tuple[int, ...]:
    return inputs[0].shape


def _broadcast(primitive: Any, inputs: Sequence[Layout], traced: Layout, before: Sequence[Layout]) -> tuple[int, ...]:
    return broadcast_shapes(primitive.name, *[i.shape for i in inputs])


def _reduced(primitive: Any, inputs: Sequence[Layout], traced: Layout, before: Sequence[Layout]) -> tuple[int, ...]:
    axes = _axes(primitive, inputs[0].ndim)
    if traced.ndim == before[0].ndim:
        return tuple([1 if k in axes else n for k, n in enumerate(inputs[0].shape)])
    return tuple([n for k, n in enumerate(inputs[0].shape) if k not in axes])


def _axes(primitive: Any, ndim: int) -> tuple[int, ...]:
    """The axes that a reduction names, as `axes` or as one `axis`."""
    if "axes" in type(primitive).__slots__:
        return tuple([a % ndim for a in primitive.axes])
    return (primitive.axis % ndim,)


def _transposed(primitive: Any, inputs: Sequence[Layout], traced: Layout, before: Sequence[Layout]) -> tuple[int, ...]:
    return tuple([inputs[0].shape[a] for a in primitive.axes])


def _concatenated(
    primitive: Any, inputs: Sequence[Layout], traced: Layout, before: Sequence[Layout]
) -> tuple[int, ...]:
    shape = list(inputs[0].shape)
    shape[primitive.axis] = sum([i.shape[primitive.axis] for i in inputs])
    return tuple(shape)


def _product(primitive: Any, inputs: Sequence[Layout], traced: Layout, before: Sequence[Layout]) -> tuple[int, ...]:
    a, b = inputs[0].shape, inputs[1].shape
    if a[-1] != b[-2]:
        raise ValueError(f"[{primitive.name}] Shapes {a} and {b} do not fit: the inner lengths differ.")
    return (*broadcast_shapes(primitive.name, a[:-2], b[:-2]), a[-2], b[-1])


def _taken(primitive: Any, inputs: Sequence[Layout], traced: Layout, before: Sequence[Layout]) -> tuple[int, ...]:
    a, axis = inputs[0].shape, primitive.axis
    return (*a[:axis], *inputs[1].shape, *a[axis + 1 :])


def _merged(primitive: Any, inputs: Sequence[Layout], traced: Layout, before: Sequence[Layout]) -> tuple[int, ...]:
    """A reshape that drops or adds axes of length 1, or joins neighbours; axes traced with length 1 keep it."""
    old, new, target = before[0].shape, inputs[0].shape, traced.shape
    axes = [k for k, n in enumerate(old) if n != 1]
    if any(new[k] != 1 for k, n in enumerate(old) if n == 1):
        raise _unknown(primitive, inputs, before)
    shape = []
    for n in target:
        length = product = 1
        while product != n and axes:
            product *= old[axes[0]]
            length *= new[axes.pop(0)]
        if product != n:
            raise _unknown(primitive, inputs, before)
        shape.append(length)
    if axes:
        raise _unknown(primitive, inputs, before)
    return tuple(shape)


def _unknown(primitive: Primitive, inputs: Sequence[Layout], before: Sequence[Layout]) -> ValueError:
    return ValueError(
        f"[{primitive.name}] The op was traced for {list(before)} and cannot be used for {list(inputs)}: it has no "
        "rule for other shapes. Trace the function for each shape (`exporter` puts several traces into one file)."
    )


_RULES: dict[Rule, str] = {
    _first: "astype view stop_gradient contiguous softmax sort argsort partition argpartition cumsum cumprod cummax "
    "cummin logcumsumexp rms_norm layer_norm rope scaled_dot_product_attention round",
    _reduced: "sum prod max min all any mean var logsumexp argmax argmin",
    _transposed: "transpose",
    _concatenated: "concatenate",
    _product: "matmul",
    _taken: "take",
    _merged: "reshape",
}
RULES: dict[str, Rule] = {name: rule for rule, names in _RULES.items() for name in names.split()}


def _shape(
    primitive: Primitive, inputs: Sequence[Layout], traced: Any, before: Sequence[Layout]
) -> Layout | tuple[Layout, ...]:
    # the shape that broadcast_to was traced with may come from an argument: it is not known to hold for another one
    if primitive.name != "broadcast_to" and all(i.same(b) for i, b in zip(inputs, before, strict=True)):
        return traced
    rule = _broadcast if isinstance(primitive, Elementwise) else RULES.get(primitive.name)
    if rule is None or type(traced) is tuple:
        raise _unknown(primitive, inputs, before)
    return layout(rule(primitive, inputs, traced, before), traced.dtype)


def reshaped_plan(plan: Plan, arguments: Sequence[Layout]) -> Plan:
    """The plan for arguments of other shapes and the same types; raises ValueError where an op has no rule for that."""
    if all(a.same(b) for a, b in zip(arguments, plan.layouts, strict=False)):
        return plan
    layouts = [*arguments, *plan.layouts[plan.argument_count : plan.argument_count + len(plan.constants)]]
    steps = []
    for step in plan.steps:
        before = [plan.layouts[i] for i in step.inputs]
        made = _shape(step.primitive, [layouts[i] for i in step.inputs], step.layout, before)
        layouts += cast("Sequence[Layout]", made if type(made) is tuple else (made,))
        primitive = step.primitive
        if primitive.name == "reshape":
            primitive = type(primitive).make(made.shape)  # type: ignore[union-attr]
        steps.append(step._replace(primitive=primitive, layout=made))
    return plan._replace(steps=tuple(steps), layouts=tuple(layouts))
