"""The namespace beside the one of the API's reference: every name equal, different on purpose, raising by design, or missing.

The reference's surface (names, kinds, parameters) is kept in `api_reference.json`, which `tools/api_coverage.py` writes; any
version of it is installed into an environment of its own and asked there.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from outlive.cli.api_differences import NAMES, RAISING
from outlive.cli.api_probe import surface
from outlive.io.errors import UserError
from outlive.lm.store import cache_folder

EQUAL, DIFFERENT, RAISES, MISSING = "equal", "different on purpose", "raising by design", "missing"
REFERENCE = "api_reference.json"
Surface = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Coverage:
    """How one name stands: `status` is one of the four above, `note` the reason or what is missing."""

    name: str
    status: str
    note: str = ""


def kept_reference() -> tuple[str, Surface]:
    """The version and the surface of the reference that this version of Outlive is written for."""
    kept = json.loads(resources.files("outlive.cli").joinpath(REFERENCE).read_text(encoding="utf-8"))
    return kept["version"], kept["names"]


def coverage(reference: Surface) -> list[Coverage]:
    """Every name of `reference`, in order, with how `outlive.core` stands to it."""
    ours = surface("outlive.core")
    return [_of_name(name, wanted, ours.get(name)) for name, wanted in reference.items()]


def _of_name(name: str, wanted: dict[str, Any], found: dict[str, Any] | None) -> Coverage:
    if found is None:
        return Coverage(name, MISSING, "there is no such name")
    if name in RAISING:
        return Coverage(name, RAISES, RAISING[name])
    if problem := _mismatch(wanted, found):
        return Coverage(name, MISSING, problem)
    return Coverage(name, DIFFERENT, NAMES[name]) if name in NAMES else Coverage(name, EQUAL)


def _mismatch(wanted: dict[str, Any], found: dict[str, Any]) -> str:
    if wanted["kind"] != found["kind"]:
        return f"it is a {found['kind']}, not a {wanted['kind']}"
    if wanted.get("value") != found.get("value"):
        return f"it is {found['value']}, not {wanted['value']}"
    if "parameters" in wanted and "parameters" in found:
        return _refused(wanted["parameters"], found["parameters"])
    return ""


def _refused(wanted: list[list[Any]], found: list[list[Any]]) -> str:
    """Why some call of the reference's function would not be one of ours, or would mean another; "" where none."""
    named = {name: default for name, kind, default in found if kind in ("any", "keyword")}
    places = [(name, default) for name, kind, default in found if kind in ("any", "positional")]
    kinds = {kind for _, kind, _ in found}
    place = 0
    for name, kind, default in wanted:
        if kind in ("*", "**"):
            if kind not in kinds:
                return f"it takes no {kind}{name}"
            continue
        if kind in ("any", "positional"):
            if place >= len(places) and "*" not in kinds:
                return f"argument {place + 1}, {name}, is not taken by position"
            ours = places[place][1] if place < len(places) else default
            place += 1
            if default not in (None, ours):
                return f"the default of {name} is {ours}, not {default}"
        if kind in ("any", "keyword"):
            if name not in named and "**" not in kinds:
                return f"{name} is not taken by name"
            if default not in (None, named.get(name, default)):
                return f"the default of {name} is {named[name]}, not {default}"
    known = {name for name, _, _ in wanted}
    extra = [
        name
        for name, kind, default in found[place:]
        if default is None and kind in ("any", "keyword") and name not in known
    ]
    return f"it needs {extra[0]}, which the reference does not have" if extra else ""


def report(against: str | None) -> int:
    """Print how every name stands; the number of missing ones."""
    version, reference = kept_reference() if against is None else _installed(against)
    rows = coverage(reference)
    for row in rows:
        if row.status != EQUAL:
            print(f"{row.name}: {row.status}: {row.note}")
    counts = Counter(row.status for row in rows)
    print(
        f"{len(rows)} names of MLX {version}: "
        + ", ".join(f"{counts[status]} {status}" for status in (EQUAL, DIFFERENT, RAISES, MISSING))
    )
    return counts[MISSING]


def _installed(requirement: str) -> tuple[str, Surface]:
    """The surface of the package that `requirement` (such as "mlx==0.32.4") names, installed in the cache folder."""
    name, sign, version = requirement.partition("==")
    if name != "mlx" or not sign or not version:
        raise UserError(f"--against {requirement!r} names no version; write --against mlx==0.32.4, for instance")
    wanted = f"mlx[cpu]=={version}"
    identity = hashlib.sha256(f"{sys.version}\n{wanted}".encode()).hexdigest()[:16]
    folder = cache_folder() / "api" / identity
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted, "numpy"])
        (folder / "ready").touch()
    return version, json.loads(_run([str(python), str(Path(__file__).with_name("api_probe.py")), "mlx.core"]))


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UserError(f"`{' '.join(command)}` failed: {last}; check the version and that pip reaches a package index")
    return done.stdout
