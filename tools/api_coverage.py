#!/usr/bin/env python3
"""Write docs/coverage.md: every name of the reference's API, and how it stands here.

usage: api_coverage.py [--check] [--reference PYTHON]

With --check nothing is written, and the exit status says whether the page is current. With --reference the surface kept in
outlive/cli/api_reference.json is first asked anew of an interpreter that has the reference installed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from outlive.cli.api_coverage import DIFFERENT, EQUAL, MISSING, RAISES, REFERENCE, Coverage, coverage, kept_reference  # noqa: E402

PAGE = ROOT / "docs" / "coverage.md"
CLI = ROOT / "outlive" / "cli"

HEAD = """# The API, name by name

Written by `tools/api_coverage.py`. `outlive doctor --api` computes the same from what is installed; with
`--against mlx==VERSION` beside any version of MLX. A name is *equal* when every call that MLX {version} takes is taken, with
the same defaults. What differs on purpose is told in [differences.md](differences.md).

{counts}
"""


def ask(python: str) -> None:
    """Keep the surface that an interpreter's reference has."""
    names = json.loads(subprocess.check_output([python, str(CLI / "api_probe.py"), "mlx.core"], text=True))
    version = subprocess.check_output([python, "-c", "import mlx.core as mx; print(mx.__version__)"], text=True).strip()
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(described)}" for name, described in names.items())
    (CLI / REFERENCE).write_text(f'{{"version": "{version}", "names": {{\n{lines}\n}}}}\n', encoding="utf-8")


def page() -> str:
    """The page's text."""
    version, reference = kept_reference()
    rows = coverage(reference)
    counts = Counter(row.status for row in rows)
    told = ", ".join(f"{counts[status]} {status}" for status in (EQUAL, DIFFERENT, RAISES, MISSING))
    parts = [HEAD.format(version=version, counts=f"{len(rows)} names: {told}.")]
    groups: dict[str, list[Coverage]] = {}
    for row in rows:
        groups.setdefault(row.name.rpartition(".")[0] or "mx", []).append(row)
    for group, members in sorted(groups.items(), key=lambda item: (item[0] != "mx", item[0])):
        parts.append(f"\n## {'mx' if group == 'mx' else f'mx.{group}'}\n")
        equal = [f"`{row.name.rpartition('.')[2]}`" for row in members if row.status == EQUAL]
        parts.append(f"Equal ({len(equal)}): {', '.join(equal)}\n" if equal else "")
        others = [row for row in members if row.status != EQUAL]
        if others:
            parts.append("\n| name | | |\n|---|---|---|\n")
            parts += [f"| `{row.name.rpartition('.')[2]}` | {row.status} | {row.note} |\n" for row in others]
    return "".join(parts)


def main() -> int:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--reference", metavar="PYTHON")
    options = parser.parse_args()
    if options.reference:
        ask(options.reference)
    text = page()
    if options.check:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
