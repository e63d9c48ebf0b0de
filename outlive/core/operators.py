"""Puts operators and methods on `array`. They are the public functions themselves wherever the arguments agree: a call costs one frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outlive.graph.array import array

BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "div": "divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "left_shift", "rshift": "right_shift",
}  # fmt: skip
"""Special name (without underscores) of each arithmetic operator, with the function that it calls."""

REFLECTED = ("add", "sub", "mul", "truediv", "div", "floordiv", "mod", "pow")

COMPARISONS = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal"}

METHODS = (
    "abs", "all", "any", "argmax", "argmin", "astype", "conj", "cos", "cummax", "cummin", "cumprod", "cumsum", "diag", "diagonal", "exp",
    "flatten", "log", "log10", "log1p", "log2", "logcumsumexp", "logsumexp", "max", "mean", "min", "moveaxis", "prod", "reciprocal",
    "round", "rsqrt", "sin", "split", "sqrt", "square", "squeeze", "std", "sum", "swapaxes", "var", "view",
)  # fmt: skip
"""Functions of the namespace that are methods with the same arguments."""


def install(functions: dict[str, Any]) -> None:
    """Give `array` its operators and methods, from the namespace's functions."""
    for name in METHODS:
        if name in functions:
            setattr(array, name, functions[name])
    for special, name in BINARY.items():
        if name not in functions:
            continue
        setattr(array, f"__{special}__", functions[name])
        setattr(array, f"__i{special}__", _in_place(functions[name]))
        if special in REFLECTED:
            setattr(array, f"__r{special}__", _reflected(functions[name]))
    for special, name in COMPARISONS.items():
        if name in functions:
            setattr(array, f"__{special}__", functions[name])
    array.__hash__ = object.__hash__  # type: ignore[method-assign]  # == makes arrays, so handles hash by identity


def _in_place(function: Callable[..., array]) -> Callable[[array, Any], array]:
    def operator(self: array, other: Any) -> array:
        self._node = function(self, other)._node
        return self

    return operator


def _reflected(function: Callable[..., array]) -> Callable[[array, Any], array]:
    def operator(self: array, other: Any) -> array:
        return function(other, self)

    return operator
