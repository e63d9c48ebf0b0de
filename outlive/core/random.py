"""Random numbers: `mx.random`. The global state is `mx.random.state`, a list of one key."""

import sys
from types import ModuleType
from typing import Any

from outlive.ops import random as _random
from outlive.ops.random import *  # noqa: F403
from outlive.ops.random import __all__ as __all__


class _Namespace(ModuleType):
    """Lets `mx.random.state = [key]` set the state that the functions use, instead of hiding it."""

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), "state"]

    @property
    def state(self) -> list[Any]:
        return _random.state

    @state.setter
    def state(self, keys: Any) -> None:
        _random.set_state(keys)


del globals()["state"]
sys.modules[__name__].__class__ = _Namespace
