"""What a module with this API offers: names, kinds, parameters. Also a program: `python api_probe.py MODULE` prints JSON.

It is run by the interpreter of another environment too, so it needs the standard library alone.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import types
from typing import Any

NAMESPACES = ("random", "fft", "linalg", "fast", "distributed", "metal", "cuda")


def surface(module: str) -> dict[str, dict[str, Any]]:
    """Each public name of `module`, its namespaces and its array, with what it is.

    A function has "parameters": lists of [name, kind, default], the kind one of "positional", "any", "keyword", "*" and
    "**", the default a text, or None for a required parameter. Overloads and unknown signatures have none.
    """
    core = importlib.import_module(module)
    found = _names(core, "")
    for namespace in NAMESPACES:
        found |= _names(getattr(core, namespace), f"{namespace}.")
    for name in dir(core.array):
        if not name.startswith("_") or _is_operator(core.array, name):
            found[f"array.{name}"] = _of_method(_described(getattr(core.array, name)), name.startswith("__"))
    return dict(sorted(found.items()))


def _of_method(described: dict[str, Any], special: bool) -> dict[str, Any]:
    """Without `self`, whatever it is called; operators are called by position alone."""
    parameters = described.get("parameters")
    if parameters is None:
        return described
    if parameters and parameters[0][0] in ("self", "a", "x") and parameters[0][2] is None:
        parameters = parameters[1:]
    if special:
        parameters = [[name, "positional" if kind == "any" else kind, default] for name, kind, default in parameters]
    return {**described, "parameters": parameters}


_NOT_API = frozenset(
    "__annotations__ __class__ __dict__ __doc__ __firstlineno__ __getattribute__ __getstate__ __init__ __init_subclass__ "
    "__module__ __new__ __slots__ __static_attributes__ __subclasshook__ __weakref__".split()
)


def _is_operator(kind: type, name: str) -> bool:
    """Whether a special method is the class's own."""
    own = name.startswith("__") and name not in _NOT_API
    return own and getattr(kind, name) is not getattr(object, name, None)


def _names(module: Any, prefix: str) -> dict[str, dict[str, Any]]:
    offered = getattr(module, "__all__", None)
    names = [n for n in (dir(module) if offered is None else offered) if not n.startswith("_")]
    return {prefix + name: _described(getattr(module, name)) for name in names}


def _described(value: Any) -> dict[str, Any]:
    if isinstance(value, types.ModuleType):
        return {"kind": "namespace"}
    if isinstance(value, type):
        return {"kind": "class"}
    if isinstance(value, (property, types.MemberDescriptorType)) or type(value).__name__ in (
        "nb_static_property",
        "getset_descriptor",
    ):
        return {"kind": "property"}
    if callable(value) and not hasattr(type(value), "size"):
        parameters = _parameters(value)
        return {"kind": "function"} if parameters is None else {"kind": "function", "parameters": parameters}
    if isinstance(value, (float, types.NoneType)):
        return {"kind": "value", "value": repr(value)}
    name = getattr(value, "name", None)  # a member of an enumeration, or an element type
    return {"kind": "value", "value": name if isinstance(name, str) else repr(value).rpartition(".")[2]}


def _parameters(function: Any) -> list[list[str | None]] | None:
    signatures = getattr(function, "__nb_signature__", None)
    if signatures is not None:
        return _written(*signatures[0][::2]) if len(signatures) == 1 else None
    try:
        return [_parameter(p) for p in inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        return None


_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "positional", inspect.Parameter.POSITIONAL_OR_KEYWORD: "any",
    inspect.Parameter.KEYWORD_ONLY: "keyword", inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**",
}  # fmt: skip


def _parameter(parameter: inspect.Parameter) -> list[str | None]:
    required = parameter.default is inspect.Parameter.empty
    return [parameter.name, _KINDS[parameter.kind], None if required else _default(repr(parameter.default))]


def _written(signature: str, defaults: tuple[Any, ...] | None) -> list[list[str | None]]:
    """Parameters of a signature in text, whose defaults may be numbers of entries of `defaults`, written as characters."""
    found: list[list[str | None]] = []
    kind = "any"
    for text in _split(signature[signature.index("(") + 1 : _closing(signature)]):
        declared, _, default = _cut(text, "=")
        name = _cut(declared, ":")[0].strip()
        if name == "/":
            for parameter in found:
                parameter[1] = "positional"
        elif name == "*":
            kind = "keyword"
        elif name.startswith("*"):
            found.append([name.lstrip("*"), "**" if name.startswith("**") else "*", None])
            kind = "keyword"
        elif name:
            default = default.strip()
            if len(default) == 1 and not default.isprintable():
                default = repr((defaults or ())[ord(default)])
            elif default.startswith("\\"):
                default = repr((defaults or ())[int(default[1:])])
            found.append([name, kind, _default(default) if default else None])
    return found


def _default(text: str) -> str:
    """A default as both sides write it: a type by its name, a list as a tuple, a text in single quotes."""
    if text.startswith(("[", "(")):
        return "(" + ", ".join(part for part in text[1:-1].replace(" ", "").split(",") if part) + ")"
    if text[:1] in "'\"":
        return repr(text[1:-1])
    try:
        return repr(float(text))
    except ValueError:
        return text.rpartition(".")[2]


def _split(text: str) -> list[str]:
    parts, depth, begin = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "[({") - (sign in "])}")
        if sign == "," and not depth:
            parts.append(text[begin:at])
            begin = at + 1
    return [*parts, text[begin:]]


def _cut(text: str, sign: str) -> tuple[str, str, str]:
    """`str.partition` at the first `sign` outside of brackets."""
    depth = 0
    for at, found in enumerate(text):
        depth += (found in "[({") - (found in "])}")
        if found == sign and not depth:
            return text[:at], sign, text[at + 1 :]
    return text, "", ""


def _closing(text: str) -> int:
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign in "[({") - (sign in "])}")
        if sign == ")" and not depth:
            return at
    return len(text)


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file, whose modules are not meant
    json.dump(surface(sys.argv[1]), sys.stdout, indent=0, sort_keys=True)
