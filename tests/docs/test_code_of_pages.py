"""The Python code of the documentation runs: the blocks of a page, in order, are one program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def program(page: Path) -> str:
    """The page's blocks, each at its own line, so that an error names the page's line."""
    text = page.read_text()
    lines = [""] * text.count("\n")
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        for i, line in enumerate(block.group(1).splitlines()):
            lines[first + i] = line
    return "\n".join(lines)


PAGES = [p for p in sorted(ROOT.glob("docs/**/*.md")) if BLOCK.search(p.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])
def test_code_of_the_page_runs(page: Path, tmp_path: Path):
    code = f"exec(compile({program(page)!r}, {str(page)!r}, 'exec'))"
    doomed = {"OUTLIVE_DOOMED": "page-of-kernels"} if page.name == "checking-a-kernel.md" else {}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=240, cwd=tmp_path, env=os.environ | doomed
    )
    assert done.returncode == 0, done.stderr
