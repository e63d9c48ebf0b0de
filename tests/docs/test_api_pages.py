"""The pages of the array API list every public name, once, with the sentence of its docstring."""

import collections

import pytest

from tests.docs.api_tables import ROOT, load

TOOL = load()
PAGES = TOOL.pages()


@pytest.mark.parametrize("path", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])
def test_the_tables_of_the_page_are_current(path):
    assert path.read_text(encoding="utf-8") == PAGES[path], "run python tools/api_tables.py"


def test_every_public_name_stands_on_one_page():
    listed = collections.Counter(
        f"outlive.{module}"
        for text in PAGES.values()
        for table in TOOL.TABLE.finditer(text)
        for module in table["modules"].split()
    )
    assert not [module for module, count in listed.items() if count > 1]
    missing = [names[0] for value, names in TOOL.public_names().values() if value.__module__ not in listed]
    assert not missing, "put the module of these names on a page of docs/api"


def test_every_page_of_the_api_stands_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert not [p.name for p in (ROOT / "docs" / "api").glob("*.md") if f"(api/{p.name})" not in index]


def test_a_row_shows_all_names_the_parameters_and_the_first_sentence():
    table = TOOL.rows(["ops.norm"])
    assert "| `mx.linalg.cross(a, b, axis)` | Cross products of vectors" in table
    assert "`mx.matrix_norm(a, ord, axis, keepdims)`, `mx.linalg.norm` |" in table
    assert (
        TOOL.sentence("x", type("X", (), {"__doc__": "As a .npy file, |a| <= 1. More."}))
        == "As a .npy file, \\|a\\| <= 1."
    )


def test_names_without_a_sentence_or_a_home_are_refused():
    with pytest.raises(ValueError, match="does not begin with a sentence"):
        TOOL.sentence("mx.nothing", type("X", (), {"__doc__": None}))
    with pytest.raises(ValueError, match="no public names"):
        TOOL.rows(["ops.nothing"])
