"""Tidiness as a test: files stay short, and the repository speaks of itself alone."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINES_MAX = 700

# The ratchet: a file that is longer for now, and the length that it may not exceed. New ones may not come.
GIANTS: dict[str, int] = {}

# Collected material, kept as it came.
COLLECTED = {"tests/cases/cases.py"}

FORBIDDEN = {
    "a path of somebody's machine": re.compile(
        r"(?<![\w.:}~])/(?:" + "|".join(("work", "farm", "root", "home")) + r")/"
    ),
    "a package index other than the public one": re.compile(
        r"(?:--|PIP_)(?:extra.)?(?:index.url|find.links)[= ]\S", re.IGNORECASE
    ),
    "an address on a private network": re.compile(
        r"\b(?:10\.\d+|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.\d+\.\d+\b|https?://[\w.-]+\.(?:internal|corp|lan)\b"
    ),
}


def tracked_texts() -> dict[str, str]:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    texts = {}
    for name in filter(None, names.split("\0")):
        content = (ROOT / name).read_bytes() if (ROOT / name).is_file() else b""
        if b"\0" not in content[:8192]:
            texts[name] = content.decode("utf-8")
    return texts


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    found = tracked_texts()
    assert "pyproject.toml" in found
    return found


def test_no_source_file_hides_two_subjects_behind_its_length(texts):
    lengths = {name: text.count("\n") for name, text in texts.items() if name.endswith(".py") and name not in COLLECTED}
    too_long = {name: n for name, n in lengths.items() if n > GIANTS.get(name, LINES_MAX)}
    assert not too_long, f"split them by subject: {too_long}"
    shrunk = [name for name in GIANTS if lengths.get(name, 0) <= LINES_MAX]
    assert not shrunk, f"no giants any more, take them off the list: {shrunk}"


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_repository_holds_nothing_of_the_place_where_it_was_written(texts, what):
    found = [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if FORBIDDEN[what].search(line)
    ]
    assert not found, f"{what}: {found}"


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("a path of somebody's machine", "cd " + "/".join(("", "work", "main"))),
        ("a package index other than the public one", "pip install --extra-index-" + "url=file:x"),
        ("an address on a private network", "http://10.0." + "3.4/simple"),
    ],
)
def test_the_expressions_find_what_they_are_for(what, line):
    assert FORBIDDEN[what].search(line)


def test_links_between_pages_lead_somewhere(texts):
    broken = [
        f"{name}: {target}"
        for name, text in texts.items()
        if name.endswith(".md")
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
        if not (ROOT / name).parent.joinpath(target).exists()
    ]
    assert not broken


def test_every_page_of_the_documentation_stands_in_its_index(texts):
    pages = {name.removeprefix("docs/") for name in texts if re.fullmatch(r"docs/[^/]+\.md", name)}
    listed = set(re.findall(r"\]\(([^/)]+\.md)\)", texts["docs/index.md"]))
    assert not pages - listed - {"index.md"}, "add the page to docs/index.md"
