"""Every source file stands in the architecture map, with the sentence that it gives itself."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("architecture_map", ROOT / "tools" / "architecture_map.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_source_file_stands_in_the_map_and_nothing_else(tool):
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", tool.PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    written = dict(rows)
    assert len(written) == len(rows), "a file stands in the map twice"
    files = tool.source_files()
    assert "outlive/__init__.py" in files
    missing, stale = sorted(set(files) - set(written)), sorted(set(written) - set(files))
    assert not missing, f"run python tools/architecture_map.py; missing: {missing}"
    assert not stale, f"run python tools/architecture_map.py; no such files: {stale}"


def test_the_sentences_of_the_map_are_those_of_the_files(tool):
    assert tool.PAGE.read_text(encoding="utf-8") == tool.page(), "run python tools/architecture_map.py"


def test_a_file_without_a_sentence_is_refused_by_name(tool, tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    (tmp_path / "a.py").write_text('"""Utilities."""\n')
    with pytest.raises(tool.NoPurposeError, match=r"a\.py.*one sentence"):
        tool.purpose("a.py")
    (tmp_path / "b.py").write_text('"""Turns a graph into a tape. And more."""\n')
    assert tool.purpose("b.py") == "Turns a graph into a tape."
