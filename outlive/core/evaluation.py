"""`eval` and `async_eval` over trees of arrays."""

from __future__ import annotations

from typing import Any

from outlive.graph.array import array
from outlive.graph.evaluate import evaluate, evaluate_async
from outlive.graph.node import Node


def collect_nodes(tree: Any, nodes: list[Node]) -> None:
    """Append the nodes of the arrays in a tree of lists, tuples and dictionaries to `nodes`."""
    if type(tree) is array:
        nodes.append(tree._node)
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            collect_nodes(item, nodes)
    elif isinstance(tree, dict):
        for item in tree.values():
            collect_nodes(item, nodes)


def eval(*args: Any) -> None:
    """Compute arrays and wait for them.

    `args`: arrays, or lists, tuples and dictionaries of arrays in any nesting (leaves of other types are passed over).
    Raises OutOfMemory when memory cannot be had, and ExecutionError when work of one of the arrays failed; the others
    are computed all the same.

    >>> a = mx.ones((2,)) + 1
    >>> mx.eval(a, {"b": [a * 2]})
    """
    nodes: list[Node] = []
    for tree in args:
        if type(tree) is array:
            nodes.append(tree._node)
        else:
            collect_nodes(tree, nodes)
    evaluate(nodes)


def async_eval(*args: Any) -> None:
    """Start computing arrays and return at once.

    `args` as in `eval`. Work that fails while running raises when an array made by it is read.

    >>> a = mx.ones((2,)) + 1
    >>> mx.async_eval(a)
    >>> a.tolist()
    [2.0, 2.0]
    """
    nodes: list[Node] = []
    collect_nodes(args, nodes)
    evaluate_async(nodes)


__all__ = ["async_eval", "eval"]
