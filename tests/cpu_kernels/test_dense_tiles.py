"""Dense bfloat16 products of many rows: on tile registers where the processor has them, else left to BLAS."""

from __future__ import annotations

import numpy as np
import pytest

from outlive.backends.cpu.features import features
from tests.cpu_kernels.support import BF16, bits, float64, run_one, words_of
from tests.cpu_kernels.test_products import assert_product

NAN, INF = float("nan"), float("inf")


@pytest.fixture
def rng():
    return np.random.default_rng(29)


def test_processors_without_tile_registers_leave_them_to_blas():
    a, b = np.zeros((17, 32), BF16), np.zeros((32, 16), BF16)
    assert (words_of("matmul", [a, b], [np.zeros((17, 16), BF16)]) is not None) == features().amx


if features().amx:

    @pytest.mark.parametrize(
        ("batch", "rows", "depth", "columns"),
        [(1, 17, 1, 1), (1, 63, 65, 63), (1, 65, 500, 7), (3, 40, 64, 65), (2, 129, 96, 33), (1, 500, 63, 64)],
    )
    def test_dense_products_on_tile_registers(rng, batch, rows, depth, columns):
        a = rng.standard_normal((batch, rows, depth)).astype(BF16)
        plain = rng.standard_normal((batch, depth, columns)).astype(BF16)
        turned = rng.standard_normal((batch, columns, depth)).astype(BF16).swapaxes(1, 2)
        for b in (plain, turned, plain[0], turned[0]):
            assert_product(run_one("matmul", [a, b], (batch, rows, columns), BF16), a, float64(b))

    def test_rows_on_tile_registers_have_the_same_bits_beside_any_number_of_others(rng):
        a, b = rng.standard_normal((150, 200)).astype(BF16), rng.standard_normal((200, 70)).astype(BF16)
        whole = run_one("matmul", [a, b], (150, 70), BF16)
        for count in (17, 31, 32, 33, 64, 100):
            assert bits(run_one("matmul", [a[:count], b], (count, 70), BF16)) == bits(whole[:count])
            assert bits(run_one("matmul", [a[-count:], b], (count, 70), BF16)) == bits(whole[-count:])
        wide = np.concatenate([a, a], axis=1)
        assert bits(run_one("matmul", [wide[:, :200], b], (150, 70), BF16)) == bits(whole)

    @pytest.mark.parametrize("value", [NAN, INF])
    @pytest.mark.parametrize("depth", [64, 65])
    def test_nan_on_tile_registers_stays_in_its_row_and_column(rng, value, depth):
        a, b = rng.standard_normal((50, depth)).astype(BF16), rng.standard_normal((depth, 40)).astype(BF16)
        clean = run_one("matmul", [a, b], (50, 40), BF16)
        a[33, depth - 1], b[0, 7] = value, value
        for other in (b, np.asfortranarray(b)):
            found = run_one("matmul", [a, other], (50, 40), BF16)
            rest = np.ones(found.shape, bool)
            rest[33], rest[:, 7] = False, False
            assert bits(found[rest]) == bits(clean[rest])
            assert not np.isfinite(float64(found[~rest])).any()
