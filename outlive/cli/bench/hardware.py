"""What a result was measured on."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from outlive import __version__


def describe() -> dict[str, Any]:
    """Hardware, versions, commit and date, for results that are kept."""
    return {
        "processor": _processor(),
        "processors_usable": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "gpus": _gpus(),
        "load_average_1min": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "outlive": __version__,
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _gpus() -> list[str]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return _output(query).splitlines()


def _commit() -> str | None:
    """The commit of the checkout that this package lies in, marked if files differ; None for an installed package."""
    folder = str(Path(__file__).parent)
    commit = _output(["git", "-C", folder, "rev-parse", "--short=12", "HEAD"])
    if not commit or not _output(["git", "-C", folder, "ls-files", "--", "__init__.py"]):
        return None
    changed = _output(["git", "-C", folder, "status", "--porcelain", "--untracked-files=no"])
    return f"{commit}+changes" if changed else commit


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
