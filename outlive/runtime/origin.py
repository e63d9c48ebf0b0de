"""The place in the user's program that made an array, kept as code object and instruction offset and resolved only on error."""

from __future__ import annotations

import itertools
import os
import sys
from types import CodeType

Origin = tuple[CodeType, int]

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def user_origin(depth: int = 1) -> Origin | None:
    """The innermost frame outside this package, starting `depth` frames above the caller."""
    frame = sys._getframe(depth + 1)
    while frame.f_code.co_filename.startswith(PACKAGE):
        back = frame.f_back
        if back is None:
            return None
        frame = back
    return frame.f_code, frame.f_lasti


def place(origin: Origin | None) -> str:
    """`file:line in function` of an origin."""
    if origin is None:
        return "an unknown place"
    code, offset = origin
    position = next(itertools.islice(code.co_positions(), offset // 2, None), (None,))
    return f"{code.co_filename}:{position[0] or code.co_firstlineno} in {code.co_name}"
