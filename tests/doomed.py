"""Children that a test kills on purpose, which therefore leave no coverage data: one table, name to reason.

A test starts such a child with the name in the environment variable ``OUTLIVE_DOOMED``. Any other process of the suite
that leaves no data fails CI.
"""

DOOMED: dict[str, str] = {
    "guarded-kernel": "a kernel that reaches past its operand dies on the guard page: the test of the guard itself",
    "endless-kernel": "a kernel that never ends is killed by the check of bare kernels",
    "page-of-kernels": "the page on checking kernels runs kernels that die on the guard page",
}
