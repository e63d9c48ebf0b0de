"""`check.kernel`: bare kernels in child processes with guarded memory."""

from __future__ import annotations

import numpy as np
import pytest

from outlive import check
from outlive.check.kernel import Out
from tests.check.kernels import numba_kernels, triton_kernels

N = 65
X = np.arange(N, dtype=np.float32)
Y = np.full(N, 0.5, np.float32)
GRID = (5,)


def triton_report(name: str, **options: object) -> check.KernelReport:
    kernel = getattr(triton_kernels, name)
    return check.kernel(kernel, GRID, [X, Y, Out((N,), np.float32), N], constants={"BLOCK": 16}, **options)  # type: ignore[arg-type]


def numba_report(name: str, **options: object) -> check.KernelReport:
    return check.kernel(getattr(numba_kernels, name), None, [X, Out((N,), np.float32)], **options)  # type: ignore[arg-type]


def test_a_right_triton_kernel_is_clean() -> None:
    report = triton_report("add", expected=[X + Y])
    assert report.ok, str(report)
    assert len(report.runs) == 6
    np.testing.assert_array_equal(report.results[0], X + Y)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("add_loads_beyond", "loads 1 elements beyond the end of operand 0"),
        ("add_stores_beyond", "stores 1 elements beyond the end of operand 2"),
        ("add_misses_the_last", "depends on what memory held before"),
    ],
)
def test_a_wrong_triton_kernel_is_found(name: str, words: str) -> None:
    report = triton_report(name)
    assert not report.ok
    assert words in report.findings[0]


def test_programs_that_write_to_one_place_are_found() -> None:
    report = check.kernel(
        triton_kernels.last_program_wins, GRID, [X[:16], Y[:16], Out((16,), np.float32), 16], constants={"BLOCK": 16}
    )
    assert "depends on the order of the programs" in report.findings[0]


def test_a_right_numba_kernel_is_clean() -> None:
    report = numba_report("double", expected=[2 * X])
    assert report.ok, str(report)
    assert len(report.runs) == 4


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("reads_beyond", "Operand 0 is read or written beyond its end"),
        ("reads_before", "Operand 0 is read or written beyond its"),
        ("writes_beyond", "Operand 1 is read or written beyond its end"),
        ("forgets_one", "depends on what memory held before"),
    ],
)
def test_a_wrong_numba_kernel_is_found(name: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLIVE_DOOMED", "guarded-kernel")
    report = numba_report(name)
    assert not report.ok
    assert words in report.findings[0]


def test_a_kernel_without_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLIVE_DOOMED", "endless-kernel")
    report = numba_report("never_ends", timeout_s=6)
    assert "had not ended after 6 s" in report.findings[0]


def test_wrong_bits_are_found() -> None:
    report = numba_report("double", expected=[2 * X + 1])
    assert report.findings == ["Outputs [0] do not hold the expected bits."]


def test_a_kernel_that_a_child_cannot_find_is_refused() -> None:
    def local(x: np.ndarray) -> None:
        x[0] = 1

    with pytest.raises(ValueError, match="top level of a Python file"):
        check.kernel(local, None, [X])


def test_a_triton_kernel_without_grid_is_refused() -> None:
    with pytest.raises(ValueError, match="needs its grid"):
        check.kernel(triton_kernels.add, None, [X])
