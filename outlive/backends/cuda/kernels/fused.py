"""Fused elementwise kernels: the members of a group in one generated kernel, each result rounded to its own type.

Every member uses the expression that its own kernel uses, and the compiler contracts nothing, so the bits are those of
the separate kernels.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from outlive.backends.cuda.kernels.cuda_c import TYPES, Type, rounded
from outlive.backends.cuda.kernels.elementwise import expression_of, generated
from outlive.backends.cuda.launches import NativeLaunch

if TYPE_CHECKING:
    from outlive.backends.cuda.kernels import Library

UNFUSED = frozenset({"copy", "contiguous", "fill"})
_NAME = re.compile(r"\bx(\d)\b")


def serves(primitive: Any, reads: Sequence[Any], write: Any) -> bool:
    """Whether a fused kernel may hold `primitive` for operands of these layouts."""
    names = [s.dtype.name for s in (*reads, write)]
    if primitive.name in UNFUSED or not all(name in TYPES for name in names):
        return False
    types = [TYPES[name] for name in names]
    return expression_of(primitive.name, types[:-1], types[-1], primitive) is not None


def ends(primitive: Any, reads: Sequence[Any], write: Any) -> bool:
    """Whether a group may end in this reduction: no generated kernel reduces yet."""
    return False


def _renamed(names: list[str], match: re.Match[str]) -> str:
    return names[int(match[1])]


def select_fused(library: Library, kernel: Any, reads: Any, writes: Any) -> NativeLaunch | None:
    """The kernel of a group; None where it cannot be made for these operands."""
    names_of_types = [o.layout.dtype.name for o in reads], [s.dtype.name for s in kernel.layouts]
    if not all(name in TYPES for names in names_of_types for name in names):
        return None
    inputs, made = ([TYPES[name] for name in names] for names in names_of_types)
    lines: list[str] = []
    for number, (primitive, refs) in enumerate(kernel.members):
        sources: list[Type] = [inputs[r] if r >= 0 else made[-1 - r] for r in refs]
        kind = made[number]
        expression = expression_of(primitive.name, sources, kind, primitive)
        if expression is None:
            return None
        names = [f"x{r}" if r >= 0 else f"m{-1 - r}" for r in refs]
        value = _NAME.sub(functools.partial(_renamed, names), expression)
        lines.append(f"      const {kind.compute} m{number} = {rounded(kind, f'({kind.compute})({value})')};\n")
    for place, number in enumerate(kernel.results):
        lines.append(f"      const {made[number].compute} r{place} = m{number};\n")
    types = [*inputs, *[made[r] for r in kernel.results]]
    return generated(library, "fused", "".join(lines), reads, writes, types)


ROUTES = {"fused": select_fused}
