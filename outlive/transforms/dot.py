"""`export_to_dot`: a picture of what is not computed yet, in Graphviz's language."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from outlive.graph.array import array
from outlive.graph.node import Node
from outlive.graph.primitive import Pick
from outlive.transforms.trees import arrays_of


def _tape(roots: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """Leaves and unevaluated nodes that `roots` need, each after its inputs; iterative."""
    seen: set[Node] = set()
    found: tuple[list[Node], list[Node]] = ([], [])
    stack = list(roots)
    while stack:
        node = stack[-1]
        if node in seen:
            stack.pop()
            continue
        leaf = node.data is not None or node.primitive is None
        waiting = [] if leaf else [i for i in node.inputs if i not in seen]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        seen.add(node)
        found[not leaf].append(node)
    return found


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def graph_text(outputs: Sequence[array], names: dict[str, array]) -> str:
    """The graph of `outputs` in DOT: ops as boxes, arrays with shape and type as ovals, under `names` where given."""
    given = {a._node: name for name, a in names.items()}
    roots = [o._node for o in outputs]
    leaves, tape = _tape(roots)
    labels: dict[Node, str] = {}

    def label(node: Node) -> str:
        if node not in labels:
            held = node.layout
            labels[node] = f"{given.get(node, f'v{len(labels)}')}: {held.dtype.name}{list(held.shape)}"
        return _quoted(labels[node])

    lines = ["digraph {"]
    lines += [f"  {{ rank=source; {label(node)}; }}" for node in leaves]
    ops: dict[Node, str] = {}
    for node in tape:
        primitive = node.primitive
        if type(primitive) is Pick:
            lines.append(f"  {ops[node.inputs[0]]} -> {label(node)};")
            continue
        op = ops[node] = f"op{len(ops)}"
        assert primitive is not None
        lines.append(f"  {op} [label={_quoted(primitive.name)}, shape=rectangle];")
        lines += [f"  {label(i)} -> {op};" for i in node.inputs]
        if type(node.layout) is not tuple:
            lines.append(f"  {op} -> {label(node)};")
    lines += [f"  {{ rank=sink; {label(node)}; }}" for node in roots if node not in leaves]
    return "\n".join([*lines, "}", ""])


def export_to_dot(file: Any, *args: Any, **kwargs: array) -> None:
    """Write the graph of what `args` (arrays or trees of them) still need to a file, or to an object with `write`.

    `kwargs`: names for arrays of the graph. Arrays that have a value are leaves. Raises OSError where the file cannot be
    written.

    >>> import io
    >>> x = mx.array([1.0, 2.0])
    >>> file = io.StringIO()
    >>> mx.export_to_dot(file, mx.exp(x + 1), x=x)
    >>> file.getvalue().startswith("digraph")
    True
    """
    text = graph_text(arrays_of("export_to_dot", args), kwargs)
    if isinstance(file, (str, os.PathLike)):
        with open(file, "w", encoding="utf-8") as opened:
            opened.write(text)
    else:
        file.write(text)


__all__ = ["export_to_dot"]
