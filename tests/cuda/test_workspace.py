"""Scratch memory of library calls: pieces never overlap, come back, and are never more than there is."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.backends.cuda.arrays import OutOfWorkspace, Workspace

SIZE = 1 << 16


@given(st.lists(st.one_of(st.integers(0, 20_000), st.integers(0, 30).map(lambda n: -1 - n)), max_size=60))
def test_pieces_do_not_overlap_and_all_come_back(steps: list[int]) -> None:
    workspace = Workspace(1 << 20, SIZE, 0)
    held: list = []
    for step in steps:
        if step < 0:
            if held:
                held.pop(step % len(held))
            continue
        try:
            held.append(workspace.take(step))
        except OutOfWorkspace:
            assert max((n for _, n in workspace._free), default=0) < max(step, 1) + Workspace.ALIGNMENT
        spans = sorted((p.start, p.start + p.length) for p in held)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
        assert all(start >= 0 and end <= SIZE for start, end in spans)
        assert sum(p.length for p in held) + sum(n for _, n in workspace._free) == SIZE
    held.clear()
    assert workspace._free == [(0, SIZE)]


def test_a_loop_that_lets_go_needs_one_piece_only() -> None:
    workspace = Workspace(1 << 20, 1024, 0)
    for _ in range(100):
        piece = workspace.take(1000)
        assert workspace.address(piece) == 1 << 20
        del piece


def test_more_than_there_is_says_how_much_is_free() -> None:
    workspace = Workspace(1 << 20, 2048, 0)
    kept = workspace.take(700)
    with pytest.raises(OutOfWorkspace, match=r"5,000 bytes.*2,048 bytes 1,024 are free"):
        workspace.take(5000)
    assert kept.length == 1024
