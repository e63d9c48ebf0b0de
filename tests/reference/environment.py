"""The environment of the reference: a virtual environment of its own, made once, kept in the user's cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REQUIREMENTS = ("mlx[cpu]==0.32.4", "numpy>=2.1")
READY = "ready"


class ReferenceUnavailableError(RuntimeError):
    """The reference's environment could not be made; the message says at which step and how to make it by hand."""


def reference_python(requirements: tuple[str, ...] = REQUIREMENTS) -> Path:
    """The interpreter of an environment with ``requirements``, which is made on the first call.

    It lives under ``$XDG_CACHE_HOME/outlive/reference`` (default ``~/.cache``), in a folder named by the requirements
    and this Python's version. Sessions that come at the same time wait for the first; an unfinished environment is made
    anew.

    Raises:
        ReferenceUnavailableError: venv or pip failed.
    """
    identity = "\n".join((sys.version, *requirements))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outlive" / "reference"
    folder = cache / hashlib.sha256(identity.encode()).hexdigest()[:16]
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_suffix(".lock")):
        if not (folder / READY).exists():
            shutil.rmtree(folder, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(folder)])
            _run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *requirements])
            (folder / READY).write_text(identity, encoding="utf-8")
    return folder / "bin" / "python"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-5:])
        raise ReferenceUnavailableError(
            f"[reference] `{' '.join(command)}` ended with status {done.returncode}: {last}\n"
            "The differential tests need it: see that pip reaches a package index, then run them again."
        )
