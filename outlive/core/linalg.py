"""Linear algebra: `mx.linalg`."""

from outlive.ops.linalg import *  # noqa: F403
from outlive.ops.linalg import __all__ as _factorizations
from outlive.ops.norm import cross, norm

__all__ = [*_factorizations, "cross", "norm"]  # noqa: PLE0604
