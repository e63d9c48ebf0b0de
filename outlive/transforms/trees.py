"""Trees of arrays: nested lists, tuples and dictionaries, taken apart into leaves and put together again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from outlive.graph.array import array

LEAF = object()
"""Stands for a leaf in a structure."""


def leaves(tree: Any) -> Iterator[Any]:
    """The leaves from left to right; dictionaries in the order of insertion."""
    if isinstance(tree, (list, tuple)):
        for item in tree:
            yield from leaves(item)
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from leaves(item)
    else:
        yield tree


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with `function` applied to each leaf; tuples stay (named) tuples, lists and dictionaries become plain
    new ones.
    """
    if isinstance(tree, dict):
        return {key: tree_map(function, item) for key, item in tree.items()}
    if isinstance(tree, list):
        return [tree_map(function, item) for item in tree]
    if isinstance(tree, tuple):
        items = [tree_map(function, item) for item in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else tuple(items)
    return function(tree)


def rebuild(tree: Any, values: Iterator[Any]) -> Any:
    """The tree with its leaves replaced, in order, by `values`."""
    return tree_map(lambda _: next(values), tree)


def arrays_of(op: str, tree: Any) -> list[array]:
    """All leaves; raises ValueError where one is not an array."""
    found = list(leaves(tree))
    for leaf in found:
        if type(leaf) is not array:
            raise ValueError(
                f"[{op}] Expected arrays, or lists, tuples and dictionaries of arrays; found a {type(leaf).__name__}."
            )
    return found


def paired(op: str, what: str, tree: Any, prefix: Any) -> list[tuple[Any, Any]]:
    """Each leaf of `tree` with the leaf of `prefix` above it; raises ValueError where `prefix` is not a prefix of the
    tree.

    A sequence of `prefix` matches a list or a tuple of its length.
    """
    if isinstance(prefix, (list, tuple)):
        if not isinstance(tree, (list, tuple)) or len(tree) != len(prefix):
            raise ValueError(
                f"[{op}] {what} must be a prefix of the tree that it describes; {prefix!r} does not fit {_shape(tree)}."
            )
        return [pair for item, part in zip(tree, prefix, strict=True) for pair in paired(op, what, item, part)]
    if isinstance(prefix, dict):
        if not isinstance(tree, dict) or tree.keys() != prefix.keys():
            raise ValueError(
                f"[{op}] {what} must be a prefix of the tree that it describes; {prefix!r} does not fit {_shape(tree)}."
            )
        return [pair for key, item in tree.items() for pair in paired(op, what, item, prefix[key])]
    return [(leaf, prefix) for leaf in leaves(tree)]


def _shape(tree: Any) -> str:
    if isinstance(tree, dict):
        return f"a dictionary with keys {list(tree)}"
    if isinstance(tree, (list, tuple)):
        return f"a {type(tree).__name__} of {len(tree)}"
    return f"a {type(tree).__name__}"
