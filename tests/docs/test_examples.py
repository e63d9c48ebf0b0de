"""`help(mx.anything)` explains and shows: every public callable has a docstring with an example, and the examples run."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import outlive.core as mx
from tests.docs.api_tables import load

NOT_CALLED = {"__slots__", "__weakref__", "__module__", "__doc__", "__annotations__", "__init__", "__hash__", "_node"}
"""Attributes of a class that are no methods of its user; the class's own docstring tells how it is made."""


def members(name: str, owner: type) -> Iterator[tuple[str, Any]]:
    """Methods and properties that a public class defines; of `array` the special methods too."""
    for attribute, value in vars(owner).items():
        called = callable(value) or isinstance(value, property)
        if called and attribute not in NOT_CALLED and (owner is mx.array or not attribute.startswith("_")):
            yield f"{name}.{attribute}", value


def surface() -> dict[str, Any]:
    """Every public callable by its name; one that has several names by the first."""
    found: dict[str, Any] = {}
    for value, names in load().public_names().values():
        found[names[0]] = value
        if inspect.isclass(value) and value is not mx.Stream:  # its methods are the runtime's
            found.update(members(names[0], value))
    return found


SURFACE = surface()


def failures(name: str, text: str) -> list[str]:
    """What doctest reports of the examples in a docstring, which find the namespace as `mx`."""
    report: list[str] = []
    test = doctest.DocTestParser().get_doctest(text, {"mx": mx}, name, None, 0)
    doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    return report


def test_the_surface_is_the_whole_one():
    assert len(SURFACE) > 400
    assert {"mx.add", "mx.random.key", "mx.linalg.inv", "mx.fft.rfft", "mx.fast.rope", "mx.array.__getitem__"} <= set(
        SURFACE
    )


@pytest.mark.parametrize("name", SURFACE)
def test_help_explains_and_shows(name: str, tmp_path, monkeypatch):
    text = inspect.getdoc(SURFACE[name])
    assert text, "has no docstring"
    assert text.split("\n\n")[0].rstrip().endswith((".", ":")), "begins with something that is no sentence"
    assert ">>> " in text, "shows no example"
    monkeypatch.chdir(tmp_path)  # some examples write files
    reported = failures(name, text)
    assert not reported, "".join(reported)


def test_a_wrong_example_is_found():
    assert failures("wrong", ">>> mx.array([1, 2]).sum()\narray(4, dtype=int32)\n")
    assert failures("raises", ">>> mx.array([1, 2]).reshape(3)\n")
