"""The kernel that writes a block at a start read on the device."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu_kernels.support import BF16, bits, poisoned, run, words_of

CASES = [  # shape, axis, length of the block
    ((1, 3, 256, 64), 2, 1),
    ((2, 3, 63, 7), 2, 5),
    ((5, 65), 0, 3),
    ((5, 7), 1, 7),
    ((500,), 0, 1),
    ((1, 1, 1), 1, 1),
    ((3, 4), 1, 0),
]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def expected_start(start: int, size: int, count: int) -> int:
    """As the op states it: from the end if negative, and moved so that the block lies inside."""
    return max(0, min(start + size if start < 0 else start, size - count))


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int8, np.int64, np.bool_])
@pytest.mark.parametrize("index", [np.int32, np.uint32, np.int64])
@pytest.mark.parametrize(("shape", "axis", "count"), CASES)
def test_a_block_lands_at_its_start_and_nothing_else_changes(rng, dtype, index, shape, axis, count):
    size = shape[axis]
    block_shape = (*shape[:axis], count, *shape[axis + 1 :])
    for start in {0, 1, size - 1, size, size + 9, -1, -size, -size - 9}:
        if start < 0 and index is np.uint32:
            continue
        target = rng.integers(0, 2, shape).astype(dtype)
        block = rng.integers(0, 2, block_shape).astype(dtype)
        want = target.copy()
        first = expected_start(start, size, count)
        want[(*[slice(None)] * axis, slice(first, first + count))] = block
        run("dynamic_slice_update", [block, np.array([start], index)], [target], axes=(axis,), parts=3)
        assert bits(target) == bits(want), start


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_shares_write_the_same(rng, parts):
    block = rng.standard_normal((9, 2, 5)).astype(np.float32)
    target = poisoned((9, 500, 5), np.float32)
    run("dynamic_slice_update", [block, np.array([498], np.int32)], [target], axes=(1,), parts=parts)
    assert bits(target[:, 498:]) == bits(block)
    assert bits(target[:, :498]) == bits(poisoned((9, 498, 5), np.float32))


def test_what_the_kernel_does_not_serve_is_left_to_the_reference(rng):
    target, start = np.zeros((4, 6), np.float32), np.array([0], np.int32)
    two = np.array([0, 0], np.int32)
    partial = np.zeros((2, 3), np.float32)
    strided = np.zeros((6, 2), np.float32).T
    assert words_of("dynamic_slice_update", [partial, start], [target], axes=(0,)) is None
    assert words_of("dynamic_slice_update", [partial, two], [target], axes=(0, 1)) is None
    assert words_of("dynamic_slice_update", [strided, start], [target], axes=(0,)) is None
    assert words_of("dynamic_slice_update", [strided.copy(), start.astype(np.uint8)], [target], axes=(0,)) is None
