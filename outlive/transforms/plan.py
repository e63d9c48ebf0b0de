"""`Plan`: a traced function as a flat list of steps over numbered values, without repeated or needless work.

Values are numbered: the arguments first, then the constants, then what the steps make.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from outlive.graph.node import Node
from outlive.graph.primitive import Pick, Primitive
from outlive.graph.tracing import trace_of
from outlive.runtime.layout import Layout
from outlive.runtime.origin import Origin
from outlive.runtime.stream import Stream
from outlive.transforms.tape import Identity, Opaque, is_group

LIMIT_FOLDED_BYTES = 1 << 20
"""A result that depends on no argument is computed once and kept up to this size; a larger one is computed in each
call.
"""


class Step(NamedTuple):
    """One op: its primitive, numbers of its inputs and outputs, layout (a tuple of them where it makes several),
    stream, place.
    """

    primitive: Primitive
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    layout: Any
    stream: Stream | None
    origin: Origin | None


class Plan(NamedTuple):
    """`argument_count`: values that are arguments. `constants`: nodes of the values after them. `layouts`: of all
    values. `stream`: of all steps; None where they differ.
    """

    argument_count: int
    constants: tuple[Node, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    layouts: tuple[Layout, ...]
    stream: Stream | None


def _inputs(node: Node) -> tuple[Node, ...]:
    """The inputs that matter when no other transform is at work."""
    primitive = node.primitive
    return primitive.followed("compile", node.inputs) if isinstance(primitive, Opaque) else node.inputs


def _post_order(roots: Sequence[Node], is_leaf: Callable[[Node], bool]) -> list[Node]:
    """Nodes that are no leaves, each after its inputs; iterative."""
    seen: set[Node] = set()
    order: list[Node] = []
    stack = list(roots)
    while stack:
        node = stack[-1]
        if node in seen or is_leaf(node):
            stack.pop()
            continue
        waiting = [i for i in _inputs(node) if i not in seen and not is_leaf(i)]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        seen.add(node)
        order.append(node)
    return order


def _needed(arguments: Sequence[Node], outputs: Sequence[Node]) -> list[Node]:
    """The tape of `outputs`, cut where a small part depends on no argument."""
    depends = dict.fromkeys(arguments, True)
    for node in _post_order(outputs, lambda n: n.data is not None or n.primitive is None):
        depends[node] = any(depends.get(i, False) for i in _inputs(node))

    def is_leaf(node: Node) -> bool:
        if node.data is not None or node.primitive is None:
            return True
        return not depends[node] and not is_group(node) and node.layout.nbytes <= LIMIT_FOLDED_BYTES

    return _post_order(outputs, is_leaf)


class _Builder:
    """Numbers values and drops repeated steps."""

    def __init__(self, arguments: Sequence[Node]) -> None:
        self.numbers: dict[Any, int] = {}
        self.layouts: list[Layout] = []
        self.steps: list[Step] = []
        self.constants: list[Node] = []
        self.known: dict[Any, tuple[int, ...]] = {}
        self.groups: dict[Node, tuple[int, ...]] = {}
        for node in arguments:
            self.numbers[node] = self._new(node.layout)

    def _new(self, layout: Layout) -> int:
        self.layouts.append(layout)
        return len(self.layouts) - 1

    def constant(self, node: Node) -> None:
        """A leaf that is no argument."""
        if node not in self.numbers:
            self.numbers[node] = self._new(node.layout)
            self.constants.append(node)

    def step(self, node: Node) -> None:
        """The next node of the tape; inputs are known."""
        primitive = node.primitive
        assert primitive is not None
        if type(primitive) is Pick:
            self.numbers[node] = self.groups[node.inputs[0]][primitive.index]
            return
        inputs = tuple([self.numbers[i] for i in _inputs(node)])
        if isinstance(primitive, Opaque):
            self.groups[node] = inputs
            return
        if type(primitive) is Identity:
            self.numbers[node] = inputs[0]
            return
        several = is_group(node)
        key = (primitive, inputs, node.layout, node.stream)
        outputs = self.known.get(key)
        if outputs is None:
            layouts: Any = node.layout if several else (node.layout,)
            outputs = self.known[key] = tuple([self._new(made) for made in layouts])
            self.steps.append(Step(primitive, inputs, outputs, node.layout, node.stream, node.origin))
        if several:
            self.groups[node] = outputs
        else:
            self.numbers[node] = outputs[0]


def make_plan(arguments: Sequence[Node], outputs: Sequence[Node]) -> Plan | None:
    """The plan of `outputs`, traced from `arguments`; None where they depend on another transform that is at work."""
    tape = _needed(arguments, outputs)
    builder = _Builder(arguments)
    inner = {*tape}
    for node in [i for n in tape for i in _inputs(n)] + list(outputs):
        if node not in inner and node not in builder.numbers:
            if node.traced and node.traced.live:  # type: ignore[union-attr]
                return None
            builder.constant(node)
    for node in tape:
        builder.step(node)
    streams = {step.stream for step in builder.steps}
    return Plan(
        len(arguments),
        tuple(builder.constants),
        tuple(builder.steps),
        tuple([builder.numbers[o] for o in outputs]),
        tuple(builder.layouts),
        streams.pop() if len(streams) == 1 else None,
    )


def unrolled(plan: Plan, arguments: Sequence[Node]) -> list[Node]:
    """The plan's outputs as nodes of the graph, one a step."""
    nodes: dict[int, Node] = dict(enumerate([*arguments, *plan.constants]))
    for step in plan.steps:
        made = Node(step.primitive, tuple([nodes[i] for i in step.inputs]), step.layout, step.stream, step.origin)
        made.traced = trace_of(made.inputs)
        if not is_group(made):
            nodes[step.outputs[0]] = made
            continue
        for index, number in enumerate(step.outputs):
            picked = nodes[number] = Node(Pick.make(index), (made,), step.layout[index], step.stream, step.origin)
            picked.traced = made.traced
    return [nodes[o] for o in plan.outputs]
