"""Linear algebra: `mx.linalg`."""

from outlive.ops.linalg import *  # noqa: F403
from outlive.ops.linalg import __all__ as __all__
