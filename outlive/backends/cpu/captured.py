"""A compiled function's program as one launch: its word list is made once, and only addresses are filled in when it runs.

The program's buffers are those of the record: the arguments (its reads), then what the program makes (its first writes).
"""

from __future__ import annotations

from array import array as words_array
from typing import Any

import numpy as np

from outlive.backends.cpu.abi import HEADER_WORDS
from outlive.backends.cpu.device import CapturedFailure, CapturedLaunch, Launch

MINIMUM_LAUNCHES = 8
"""Shorter programs are as quick record by record."""


def captured(program: Any) -> CapturedLaunch | None:
    """The launch of a program; None where a reference kernel is part of it, or where there is too little to gain."""
    if len(program.records) < MINIMUM_LAUNCHES or not all(type(record[0]) is Launch for record in program.records):
        return None
    words: list[int] = []
    places: list[int] = []
    bases: list[int] = []
    starts: list[int] = []
    for launch, _, reads, writes, _ in program.records:
        starts.append(len(words))
        words += (launch.address, launch.count, launch.parallel)
        for number in (*reads, *writes):
            operand = program.operands[number]
            places.append(len(words))
            bases.append(operand.base)
            words.append(operand.offset)
        words += launch.static
        assert len(words) == starts[-1] + HEADER_WORDS + launch.count
    sources = tuple([
        (launch.kernel.failure, kernel.name, ", ".join([repr(program.operands[n].layout) for n in reads]) or "none", origin)
        for launch, kernel, reads, _, origin in program.records
    ])  # fmt: skip
    return _Words(np.array(words, np.int64), np.array(places), np.array(bases), starts, sources)


class _Words(CapturedLaunch):
    """`template`: the word list with offsets in place of pointers; `places`: where they stand; `bases`: whose they are.

    `starts`: where each kernel's record begins; `sources`: what its failure means, its op, operands and origin.
    """

    __slots__ = ("bases", "places", "sources", "starts", "template")

    def __init__(
        self,
        template: np.ndarray,
        places: np.ndarray,
        bases: np.ndarray,
        starts: list[int],
        sources: tuple[tuple[str, str, str, Any], ...],
    ) -> None:
        self.template = template
        self.places = places
        self.bases = bases
        self.starts = starts
        self.sources = sources

    def words(self, reads: Any, writes: Any) -> Any:
        pointers = np.array([o.pointer for o in (*reads, *writes)], np.int64)
        filled = self.template.copy()
        filled[self.places] += pointers[self.bases]
        return words_array("q", filled.tobytes())

    def failure_at(self, offset: int) -> CapturedFailure:
        return CapturedFailure(*self.sources[self.starts.index(offset)])
