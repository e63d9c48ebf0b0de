"""Models of the Hugging Face hub: ``hf:ORG/NAME``, or ``hf:ORG/NAME/FILE.gguf`` for one file of a repository.

The ``huggingface_hub`` library fetches into its own cache, shared with other programs, under the user's own login; it
resumes what was interrupted and falls back on what is cached where there is no network (``HF_HUB_OFFLINE=1`` forbids
it). Only configuration, text and safetensors are fetched: no code, no pickles.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outlive.lm.errors import SourceError
from outlive.lm.progress import Progress

_REPOSITORY = re.compile(r"([A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})(?:/([\w./-]+\.gguf))?", re.ASCII)
_FETCHED = ["*.json", "*.safetensors", "*.jinja", "README.md"]


def parse_repository(text: str) -> tuple[str, str | None] | None:
    """The repository and the GGUF file in it that ``ORG/NAME`` or ``ORG/NAME/FILE.gguf`` names; None for other text."""
    match = _REPOSITORY.fullmatch(text)
    if match is None or ".." in text or (match[2] is None and text.endswith((".gguf", ".safetensors"))):
        return None
    return match[1], match[2]


def is_cached(text: str, revision: str | None) -> bool:
    """Whether anything of the repository is in the cache already."""
    from huggingface_hub import try_to_load_from_cache

    parsed = parse_repository(text)
    if parsed is None:
        return False
    repository, file = parsed
    return isinstance(try_to_load_from_cache(repository, file or "config.json", revision=revision), str)


def fetch_hub_model(text: str, revision: str | None, progress: Progress) -> Path:
    """The folder (or the GGUF file) of ``ORG/NAME[/FILE.gguf]`` at ``revision``, by default its main branch.

    Raises:
        SourceError: if ``text`` names no repository, or it cannot be fetched and is not cached.
    """
    parsed = parse_repository(text)
    if parsed is None:
        raise SourceError(
            f"hf:{text} names no repository; write hf:ORG/NAME, or hf:ORG/NAME/FILE.gguf for one file of it"
        )
    repository, file = parsed
    from huggingface_hub import hf_hub_download, snapshot_download
    from huggingface_hub.utils import disable_progress_bars, enable_progress_bars

    (enable_progress_bars if progress.on_terminal else disable_progress_bars)()
    # What the library logs on its way to an error is in the error's sentence.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    with _explained(repository, file, revision):
        if file is not None:
            return Path(hf_hub_download(repository, file, revision=revision))
        return Path(snapshot_download(repository, revision=revision, allow_patterns=_FETCHED))


@contextmanager
def _explained(repository: str, file: str | None, revision: str | None) -> Iterator[None]:
    """One sentence from what the library raises."""
    from huggingface_hub import errors

    at = f" at {revision!r}" if revision else ""
    try:
        yield
    except errors.GatedRepoError as error:
        raise SourceError(
            f"hf:{repository} asks for its terms to be accepted; do so on its page, then run 'hf auth login'"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise SourceError(
            f"there is no model hf:{repository}, or it is private; check the name, or run 'hf auth login'"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise SourceError(f"hf:{repository} has no revision{at}; check the branch, tag or commit") from error
    except errors.LocalEntryNotFoundError as error:
        raise SourceError(
            f"cannot reach the hub for hf:{repository}{at}, which is not in its cache as a whole; check the network and "
            "HF_HUB_OFFLINE, or give a model's path"
        ) from error
    except errors.EntryNotFoundError as error:
        raise SourceError(f"hf:{repository} has no file {file}{at}; check the name on its page") from error
    except OSError as error:
        raise SourceError(f"cannot fetch hf:{repository}: {_reason(error)}") from error
    except Exception as error:
        # The library's transport is one of several, each with its own errors; all that is known is who raised.
        if not type(error).__module__.startswith(("huggingface_hub", "httpx", "httpcore", "requests", "urllib3")):
            raise
        raise SourceError(
            f"cannot fetch hf:{repository}: {_reason(error)}; try again, what came already is kept"
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "no space is left; free some, or set HF_HOME to a folder with room"
    if isinstance(error, PermissionError):
        return f"cannot write to {error.filename}; set HF_HOME to a folder that you can write"
    return (str(error).strip().partition(os.linesep)[0] or type(error).__name__)[:200]
