"""The page of routes says what the device chooses."""

from __future__ import annotations

from tools import cuda_routes


def test_the_page_of_routes_is_up_to_date() -> None:
    assert cuda_routes.PAGE.read_text() == cuda_routes.table(), "run tools/cuda_routes.py"
