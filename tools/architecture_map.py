#!/usr/bin/env python3
"""Write docs/architecture-map.md: every source file with one sentence on what it is for, taken from the file itself.

usage: architecture_map.py [--check]

The sentence is the first of the file's own docstring (of its head comment, for shell). With --check nothing is written,
and the exit status says whether the page is current.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture-map.md"

# In the order in which data flows, top to bottom; a file belongs to the first room that is a prefix of its path.
ROOMS: dict[str, str] = {
    "outlive/cli": "The command line",
    "outlive/lm": "Language models",
    "outlive/compat": "Other names for the same API",
    "outlive/check": "The proof: simulated schedules and their oracles",
    "outlive/nn": "Layers",
    "outlive/optimizers": "Optimizers",
    "outlive/io": "Files",
    "outlive/distributed": "Several processes and machines",
    "outlive/core": "The public namespace",
    "outlive/transforms": "Functions of functions",
    "outlive/ops": "Ops, one place each",
    "outlive/graph": "Arrays, nodes and their evaluation",
    "outlive/kernels": "Routes and the kernel library",
    "outlive/backends/cpu": "The CPU device",
    "outlive/backends/cuda": "The CUDA device",
    "outlive/backends/sim": "The simulated device",
    "outlive/backends": "Devices",
    "outlive/host": "The platform of a real machine",
    "outlive/runtime": "The runtime",
    "outlive": "The package",
    "tests": "Tests",
    "benchmarks": "Benchmarks",
    "examples": "Examples",
    "tools": "Tools",
    ".ci": "Continuous integration",
}
HEAD = """# Architecture map

Every source file with one sentence on what it is for, in the order in which data flows: from the command line and the
public namespace down to the device. [The walk](architecture.md) tells the same in prose. The page is written by
`python tools/architecture_map.py` from the files' own first sentences; a test keeps it current.
"""


class NoPurposeError(ValueError):
    """A file does not begin with a sentence on what it is for."""


def source_files() -> list[str]:
    """Paths of all source files from the root: what is under version control and not empty, sorted."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "*.py", ".ci/*", "tools/*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return sorted(path for path in set(listed) if (ROOT / path).is_file() and (ROOT / path).stat().st_size)


def purpose(path: str) -> str:
    """The first sentence of a file's docstring or head comment.

    Raises:
        NoPurposeError: there is none, or it has fewer than three words.
    """
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".py") or "python" in text.partition("\n")[0]:
        doc = ast.get_docstring(ast.parse(text)) or ""
    else:
        comment = [line.lstrip("#").strip() for line in text.splitlines() if line.startswith("#")]
        doc = "\n".join(comment[1:])
    paragraph = " ".join(doc.strip().partition("\n\n")[0].split())
    sentence, stop, _ = paragraph.partition(". ")
    sentence = sentence + "." if stop else paragraph
    if len(sentence.split()) < 3 or sentence[-1] not in ".:":
        raise NoPurposeError(f"{path}: begin it with one sentence that says what the file is for (found {sentence!r})")
    return sentence.rstrip(":.") + "."


def room(path: str) -> str:
    """The first room of ``ROOMS`` that holds the path."""
    return next(name for name in ROOMS if path.startswith(name + "/"))


def page() -> str:
    """The whole page as text."""
    rooms: dict[str, list[str]] = {name: [] for name in ROOMS}
    for path in source_files():
        rooms[room(path)].append(path)
    parts = [HEAD]
    for name, paths in rooms.items():
        if paths:
            rows = "\n".join(f"| `{path}` | {purpose(path)} |" for path in paths)
            parts.append(f"## {ROOMS[name]}: `{name}/`\n\n| file | what it is for |\n|---|---|\n{rows}\n")
    return "\n".join(parts)


def main() -> int:
    try:
        wanted = page()
    except NoPurposeError as error:
        print(error, file=sys.stderr)
        return 1
    if "--check" in sys.argv[1:]:
        current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == wanted
        print(
            "current" if current else f"{PAGE.relative_to(ROOT)} is not current: run python tools/architecture_map.py"
        )
        return 0 if current else 1
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
