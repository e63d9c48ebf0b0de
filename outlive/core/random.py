"""Random numbers: `mx.random`. The global state is `mx.random.state`, a list of one key."""

from outlive.ops.random import *  # noqa: F403
from outlive.ops.random import __all__ as __all__
