"""The folder of fetched models: entries appear whole or not at all, and are made once however many ask.

An entry is a folder. It is filled beside its place while a lock file is held, and renamed when it is complete; whoever
waited for the lock finds it there. The operating system drops the lock of a process that dies, and the next one to
hold it removes what was left half done.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outlive.lm.errors import SourceError
from outlive.lm.progress import Progress

MANIFEST = "manifest.json"


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/outlive``, by default ``~/.cache/outlive``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification has relative paths ignored.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "outlive"


def models_folder() -> Path:
    return cache_folder() / "models"


def find_entry(name: str) -> Path | None:
    """The file of the complete entry ``name``, if it is there and as long as its manifest says."""
    folder = models_folder() / name
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        file = folder / manifest["file"]
        intact = file.stat().st_size == manifest["bytes"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return file if intact else None


def make_entry(name: str, fill: Callable[[Path], dict[str, Any]], progress: Progress) -> Path:
    """The file of entry ``name``, made by ``fill`` unless another process made it meanwhile.

    ``fill`` is given an empty folder; it returns the manifest: at least ``file`` (its name there) and ``bytes``.

    Raises:
        SourceError: if the cache folder cannot be written or is full; what ``fill`` raises, after cleaning up.
    """
    folder = models_folder() / name
    partial = folder.with_name(f".{name}.partial")
    with _storage_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_name(f".{name}.lock"), progress, name):
            if (found := find_entry(name)) is not None:
                return found
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            try:
                manifest = fill(partial)
                (partial / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
                if folder.exists():
                    shutil.rmtree(folder)  # a damaged entry, or find_entry would have found it
                os.rename(partial, folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
            return folder / manifest["file"]


@contextmanager
def _locked(path: Path, progress: Progress, name: str) -> Iterator[None]:
    with open(path, "a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.note(f"waiting for another process that fetches {name}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _storage_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise SourceError(
                f"no space is left for {folder}; free some, or set XDG_CACHE_HOME to a folder with room"
            ) from error
        reason = (error.strerror or str(error)).lower()
        raise SourceError(
            f"cannot write to the cache folder {folder.parent}: {reason}; set XDG_CACHE_HOME to a folder that you can "
            "write, or give the path of a model file"
        ) from error
