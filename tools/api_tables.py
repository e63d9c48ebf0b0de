#!/usr/bin/env python3
"""Write the tables of docs/**/*.md that list public names: each name with its parameters and the first sentence of its docstring.

usage: api_tables.py [--check]

A table stands between `<!-- names: MODULE ... -->` and `<!-- end of names -->` and lists what these modules of `outlive`
define and the public namespaces offer. With --check nothing is written, and the exit status says whether all are current.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import outlive.core as mx  # noqa: E402  (from this checkout)

NAMESPACES = {
    "mx": mx,
    "mx.random": mx.random,
    "mx.linalg": mx.linalg,
    "mx.fft": mx.fft,
    "mx.fast": mx.fast,
    "mx.distributed": mx.distributed,
    "mx.metal": mx.metal,
    "mx.cuda": mx.cuda,
}
TABLE = re.compile(r"<!-- names: (?P<modules>[\w. ]+) -->\n(?P<rows>.*?)<!-- end of names -->", re.DOTALL)
SENTENCE = re.compile(r"(.*?\.)(?=\s|$)(?!\s+[a-z])", re.DOTALL)


def public_names() -> dict[int, tuple[Any, list[str]]]:
    """Every public callable by identity, with all its names."""
    found: dict[int, tuple[Any, list[str]]] = {}
    for prefix, namespace in NAMESPACES.items():
        for name in sorted(getattr(namespace, "__all__", None) or vars(namespace)):
            value = getattr(namespace, name)
            if not name.startswith("_") and callable(value):
                found.setdefault(id(value), (value, []))[1].append(f"{prefix}.{name}")
    return found


def call(name: str, value: Any) -> str:
    """The name with the parameters that callers pass, but for `stream`, which every op has."""
    if inspect.isclass(value):
        return name
    parts = [
        str(parameter.replace(annotation=parameter.empty, default=parameter.empty))
        for i, parameter in enumerate(inspect.signature(value).parameters.values())
        if parameter.name != "stream" or not i  # as the first it is what the function is about
    ]
    return f"{name}({', '.join(parts)})"


def sentence(name: str, value: Any) -> str:
    """The first sentence of a docstring. Raises ValueError where it does not begin with one."""
    paragraph = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
    found = SENTENCE.match(paragraph)
    if found is None:
        raise ValueError(f"{name}: its docstring does not begin with a sentence")
    return found.group(1).replace("|", "\\|")


def members(modules: list[str]) -> Iterator[str]:
    """The rows of a class's own methods and properties, for classes that the modules define."""
    for value, names in public_names().values():
        if inspect.isclass(value) and value.__module__ in modules and value is not mx.Stream:
            yield from class_rows(names[0], value)


def class_rows(owner: str, value: type) -> Iterator[str]:
    known = public_names()
    for attribute, member in sorted(vars(value).items()):
        explained = callable(member) or isinstance(member, property)
        if explained and not attribute.startswith("_") and id(member) not in known:
            shown = f"{owner}.{attribute}" + ("" if isinstance(member, property) else "()")
            yield f"| `{shown}` | {sentence(shown, member)} |\n"


def rows(modules: list[str]) -> str:
    """A table of what the modules (without the package's name) define. Raises ValueError where that is nothing."""
    modules = [f"outlive.{module}" for module in modules]
    found = [(names, value) for value, names in public_names().values() if value.__module__ in modules]
    if not found:
        raise ValueError(f"no public names in {modules}")
    lines = []
    for names, value in sorted(found, key=lambda pair: pair[0][0].lower()):
        shown = ", ".join(f"`{n}`" for n in [call(names[0], value), *names[1:]])
        lines.append(f"| {shown} | {sentence(names[0], value)} |\n")
    return "| name | what it gives |\n|---|---|\n" + "".join(lines) + "".join(members(modules))


def pages() -> dict[Path, str]:
    """Every page that has a table, with the text that it should have."""
    texts = {}
    for path in sorted(ROOT.glob("docs/**/*.md")):
        text = path.read_text(encoding="utf-8")
        if TABLE.search(text):
            texts[path] = TABLE.sub(
                lambda m: f"<!-- names: {m['modules']} -->\n{rows(m['modules'].split())}<!-- end of names -->", text
            )
    return texts


def main() -> int:
    stale = [path for path, text in pages().items() if path.read_text(encoding="utf-8") != text]
    for path in stale:
        if "--check" in sys.argv[1:]:
            print(f"{path.relative_to(ROOT)} is not current: run python tools/api_tables.py")
        else:
            path.write_text(pages()[path], encoding="utf-8")
    return 1 if stale and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
