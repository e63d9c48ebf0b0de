"""Functions in files: `export_function`, `exporter`, `import_function`.

A file is a magic line, the SHA-256 of all that follows, the length of a JSON header, the header, and the bytes of the
constants. The header lists traces: arguments, constants, steps (ops with their parameters) and outputs. Reading checks
everything before it is used; ops are found by name among the library's own, and nothing in a file is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from outlive.graph import state
from outlive.graph.array import array, from_host, host_view, wrap
from outlive.graph.dtypes import Dtype, dtype_by_name
from outlive.graph.node import Node
from outlive.graph.primitive import Primitive
from outlive.graph.tracing import Trace
from outlive.runtime.layout import Layout, layout
from outlive.transforms.plan import Plan, Step, make_plan, unrolled
from outlive.transforms.shapes import reshaped_plan
from outlive.transforms.tape import outputs_of, placeholder

MAGIC = b"OUTLIVEFN\x00"
VERSION = 1
LIMIT_HEADER_BYTES = 1 << 30
_OPS = "outlive.ops."


class Exported(NamedTuple):
    """One trace: its plan, how many of the plan's arguments are positional, and the keywords of the others."""

    plan: Plan
    positional: int
    keywords: tuple[str, ...]
    shapeless: bool

    def signature(self) -> tuple[Any, ...]:
        """What tells traces apart: the arguments' types and shapes (their number of axes alone where shapeless)."""
        seen = self.plan.layouts[: self.plan.argument_count]
        shapes = [(n.dtype.name, n.ndim if self.shapeless else n.shape) for n in seen]
        return (self.positional, self.keywords, tuple(shapes))


def _arguments(op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[array], dict[str, array]]:
    """Positional and keyword arrays, given as such or as one sequence and one dictionary; raises ValueError
    otherwise.
    """
    positional, named = list(args), dict(kwargs)
    if args and isinstance(args[0], (list, tuple)) and not kwargs:
        if len(args) == 2 and isinstance(args[1], dict):
            positional, named = list(args[0]), dict(args[1])
        elif len(args) == 1:
            positional = list(args[0])
    elif len(args) == 1 and isinstance(args[0], dict) and not kwargs:
        positional, named = [], dict(args[0])
    for value in [*positional, *named.values()]:
        if type(value) is not array:
            raise ValueError(
                f"[{op}] Inputs are arrays, by position and by keyword, or one tuple and one dictionary of arrays; "
                f"found a {type(value).__name__}."
            )
    return positional, named


def _trace(fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], shapeless: bool) -> Exported:
    positional, named = _arguments("export_function", args, kwargs)
    keywords = tuple(sorted(named))
    with Trace() as trace:
        given = [*positional, *[named[k] for k in keywords]]
        arguments = [placeholder(a._node.layout, trace) for a in given]
        handles = [wrap(a) for a in arguments]
        called = dict(zip(keywords, handles[len(positional) :], strict=True))
        outs = outputs_of("export_function", fun(*handles[: len(positional)], **called))
        plan = make_plan(arguments, [o._node for o in outs])
    if plan is None:
        raise ValueError(
            "[export_function] Export outside of grad, vmap and compile: the function depends on one of them."
        )
    return Exported(plan, len(positional), keywords, shapeless)


# What a header holds


def _encoded(value: Any) -> Any:
    """A parameter of an op in JSON; raises ValueError for one that a file cannot hold."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return {"float": value.hex() if math.isfinite(value) else repr(value)}
    if type(value) is complex:
        return {"complex": [_encoded(value.real), _encoded(value.imag)]}
    if type(value) in (tuple, list):
        return {"tuple": [_encoded(v) for v in value]}
    if isinstance(value, tuple) and type(value).__module__.startswith(_OPS):
        return {"named": [_class_name(type(value)), [_encoded(v) for v in value]]}
    if type(value) is slice:
        return {"slice": [_encoded(value.start), _encoded(value.stop), _encoded(value.step)]}
    if type(value) is Dtype:
        return {"dtype": value.name}
    raise ValueError(f"[export_function] A file cannot hold an op's parameter of type {type(value).__name__}.")


def _decoded(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, held),) = value.items()
    if kind == "float":
        return float.fromhex(held) if "x" in held else float(held)
    if kind == "complex":
        return complex(*[_decoded(v) for v in held])
    if kind == "tuple":
        return tuple([_decoded(v) for v in held])
    if kind == "named":
        return _parameter_class(held[0])(*[_decoded(v) for v in held[1]])
    if kind == "slice":
        return slice(*[_decoded(v) for v in held])
    if kind == "dtype":
        return dtype_by_name(held)
    raise ValueError(f"an op's parameter of unknown kind {kind!r}")


def _encoded_layout(seen: Any) -> Any:
    if type(seen) is tuple:
        return {"several": [_encoded_layout(s) for s in seen]}
    return [seen.dtype.name, list(seen.shape)]


def _decoded_layout(held: Any) -> Any:
    if isinstance(held, dict):
        return tuple([_decoded_layout(s) for s in held["several"]])
    name, shape = held
    if not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"a shape {shape}")
    return layout(tuple(shape), dtype_by_name(name))


def _class_name(kind: type) -> str:
    return f"{kind.__module__.removeprefix(_OPS)}:{kind.__qualname__}"


def _module_of(name: str) -> tuple[Any, str]:
    """The module that a class name begins with, and the rest; nothing outside of the library's ops is imported."""
    module, _, kind = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), kind)):
        raise ValueError(f"an op {name!r}")
    try:
        return import_module(_OPS + module), kind
    except ImportError:
        raise _unknown(name) from None


def _unknown(name: str) -> ValueError:
    return ValueError(f"{name!r}, which this version does not have")


def _parameter_class(name: str) -> Any:
    """A named tuple of the ops' modules."""
    module, kind = _module_of(name)
    found = getattr(module, kind, None)
    if not (isinstance(found, type) and issubclass(found, tuple) and found.__module__ == module.__name__):
        raise _unknown(name)
    return found


def op_classes(module: str) -> dict[str, type[Primitive]]:
    """The classes of ops that a module defines, also those that stand under no name of it."""
    found = {}
    waiting = [Primitive]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__ == module:
            found[kind.__qualname__] = kind
    return found


def _op_name(primitive: Primitive) -> str:
    if not type(primitive).__module__.startswith(_OPS):
        raise ValueError(f"[export_function] A file cannot hold the op {primitive.name!r}: it belongs to this process.")
    return _class_name(type(primitive))


def _op(name: str, parameters: Sequence[Any]) -> Primitive:
    module, kind = _module_of(name)
    found = op_classes(module.__name__).get(kind)
    if found is None:
        raise _unknown(name)
    if len(parameters) != len(found.__slots__):
        raise ValueError(f"{len(parameters)} parameters for the op {name!r}, which has {len(found.__slots__)}")
    return found.make(*parameters)


def _trace_header(exported: Exported, blobs: list[bytes], offset: int) -> tuple[dict[str, Any], int]:
    plan = exported.plan
    constants = []
    for node in plan.constants:
        data = np.ascontiguousarray(host_view(wrap(node))).tobytes()
        constants.append([*_encoded_layout(node.layout), offset])
        blobs.append(data)
        offset += len(data)
    steps = [
        [
            _op_name(s.primitive),
            [_encoded(p) for p in s.primitive.parameters()],
            s.inputs,
            s.outputs,
            _encoded_layout(s.layout),
        ]
        for s in plan.steps
    ]
    return {
        "positional": exported.positional,
        "keywords": exported.keywords,
        "shapeless": exported.shapeless,
        "arguments": [_encoded_layout(n) for n in plan.layouts[: plan.argument_count]],
        "constants": constants,
        "steps": steps,
        "outputs": plan.outputs,
    }, offset


def _write(path: str, traces: Sequence[Exported], metadata: str) -> None:
    """Write beside the file and rename: a reader sees the old file or all of the new one."""
    blobs: list[bytes] = []
    headers = []
    offset = 0
    for exported in traces:
        header, offset = _trace_header(exported, blobs, offset)
        headers.append(header)
    text = json.dumps({"version": VERSION, "metadata": metadata, "traces": headers}).encode()
    body = b"".join([len(text).to_bytes(8, "little"), text, *blobs])
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(os.path.abspath(path)), prefix=".exporting-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(MAGIC + hashlib.sha256(body).digest() + body)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _read(path: str) -> tuple[list[Exported], str]:
    """The traces and the metadata of a file; raises RuntimeError for one that cannot be read or is not whole."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise RuntimeError(f"[import_function] Cannot read {path}: {error.strerror or error}.") from None
    head = len(MAGIC) + 32
    body = content[head:]
    if content[: len(MAGIC)] != MAGIC:
        raise RuntimeError(f"[import_function] {path} is no exported function.")
    if hashlib.sha256(body).digest() != content[len(MAGIC) : head]:
        raise RuntimeError(f"[import_function] {path} is damaged: its checksum does not fit. Export it again.")
    size = int.from_bytes(body[:8], "little")
    try:
        if size > min(LIMIT_HEADER_BYTES, len(body) - 8):
            raise ValueError("a header that is longer than the file")
        header = json.loads(body[8 : 8 + size])
        if header["version"] != VERSION:
            raise ValueError(f"version {header['version']}, where {VERSION} is known")
        data = memoryview(body)[8 + size :]
        return [_exported(t, data) for t in header["traces"]], str(header["metadata"])
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise RuntimeError(f"[import_function] {path} holds {error}; it cannot be used.") from error


def _exported(held: dict[str, Any], data: memoryview) -> Exported:
    layouts: list[Layout] = [_decoded_layout(n) for n in held["arguments"]]
    count = len(layouts)
    constants = []
    for name, shape, offset in held["constants"]:
        seen = _decoded_layout([name, shape])
        raw = data[offset : offset + seen.nbytes]
        if offset < 0 or len(raw) != seen.nbytes:
            raise ValueError("a constant outside of the file")
        constants.append(from_host(np.frombuffer(raw, seen.dtype.storage).reshape(seen.shape), seen.dtype))
        layouts.append(seen)
    steps = []
    for name, parameters, inputs, outputs, seen in held["steps"]:
        made = _decoded_layout(seen)
        several = made if type(made) is tuple else (made,)
        if not all(type(i) is int and 0 <= i < len(layouts) for i in inputs):
            raise ValueError("a step that reads what is not made yet")
        if list(outputs) != list(range(len(layouts), len(layouts) + len(several))):
            raise ValueError("a step whose outputs are not the next values")
        layouts += several
        primitive = _op(name, [_decoded(p) for p in parameters])
        steps.append(Step(primitive, tuple(inputs), tuple(outputs), made, None, None))
    outputs = tuple(held["outputs"])
    if not all(type(o) is int and 0 <= o < len(layouts) for o in outputs):
        raise ValueError("an output that is not made")
    if held["positional"] + len(held["keywords"]) != count:
        raise ValueError("another number of arguments than it names")
    plan = Plan(count, tuple(constants), tuple(steps), outputs, tuple(layouts), None)
    return Exported(plan, held["positional"], tuple(held["keywords"]), bool(held["shapeless"]))


# The public functions


class FunctionExporter:
    """Traces one function several times into one file; made by `exporter`, used in a `with` statement or closed by
    `close`.

    >>> with mx.exporter("double.mlxfn", lambda x: x * 2) as export:
    ...     export(mx.array([1.0]))
    ...     export(mx.array([1.0, 2.0]))
    ...
    """

    def __init__(self, file: str, fun: Callable[..., Any], shapeless: bool, metadata: str) -> None:
        self._file = file
        self._function = fun
        self._shapeless = shapeless
        self._metadata = metadata
        self._traces: list[Exported] = []
        self._open = True

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Trace the function for arguments like these. Raises RuntimeError when closed, or for a signature seen
        before.
        """
        if not self._open:
            raise RuntimeError("[exporter] The file is written; make another exporter.")
        made = _trace(self._function, args, kwargs, self._shapeless)
        if any(t.signature() == made.signature() for t in self._traces):
            raise RuntimeError("[exporter] The file has a trace with arguments of these shapes and types already.")
        self._traces.append(made)

    def close(self) -> None:
        """Write the file.

        >>> export = mx.exporter("double.mlxfn", lambda x: x * 2)
        >>> export(mx.array([1.0]))
        >>> export.close()
        """
        if self._open:
            self._open = False
            _write(self._file, self._traces, self._metadata)

    def __enter__(self) -> FunctionExporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        self._open = False


def exporter(
    file: str, fun: Callable[..., Any], *, shapeless: bool = False, metadata: str | None = None
) -> FunctionExporter:
    """An object that, called with example arrays, traces `fun` for arrays like them, and writes all traces to `file`.

    `shapeless`: a trace serves all shapes of the same number of axes. `metadata`: a text kept in the file. After an
    exception inside its `with` statement nothing is written.

    >>> with mx.exporter("double.mlxfn", lambda x: x * 2) as export:
    ...     export(mx.array([1.0]))
    ...     export(mx.array([1.0, 2.0]))
    ...
    >>> mx.import_function("double.mlxfn")(mx.array([3.0, 4.0]))
    (array([6, 8], dtype=float32),)
    """
    if not callable(fun):
        raise TypeError(f"[exporter] Expected a function; got a {type(fun).__name__}.")
    return FunctionExporter(os.fspath(file), fun, bool(shapeless), metadata or "")


def export_function(
    file_or_callback: str | Callable[[dict[str, Any]], Any],
    fun: Callable[..., Any],
    *args: Any,
    shapeless: bool = False,
    metadata: str | None = None,
    **kwargs: Any,
) -> None:
    """Write the ops of `fun`, for arrays like the examples, to a file; `import_function` makes a function of it.

    `fun` takes arrays and returns an array, or a list or tuple of arrays. `args`, `kwargs`: example arrays, or one
    tuple and one dictionary of them. Other arrays that `fun` reads become part of the file. `shapeless`: the function
    serves all shapes of the same number of axes. A callback in place of the file gets one dictionary after the other:
    inputs, keyword_inputs, outputs, constants, and a primitive each, told apart by "type". Raises ValueError for other
    arguments or outputs, for ops that a file cannot hold, and for `metadata` with a callback.

    >>> mx.export_function("double.mlxfn", lambda x: x * 2, mx.array([1.0, 2.0]))
    >>> mx.import_function("double.mlxfn")(mx.array([3.0, 4.0]))
    (array([6, 8], dtype=float32),)
    """
    if callable(file_or_callback):
        if metadata is not None:
            raise ValueError("[export_function] Metadata belongs to a file; there is none with a callback.")
        _describe(_trace(fun, args, kwargs, shapeless), file_or_callback)
        return
    made = exporter(file_or_callback, fun, shapeless=shapeless, metadata=metadata)
    made(*args, **kwargs)
    made.close()


def _label(number: int) -> str:
    """A, B, ..., Z, AA, AB, ..."""
    text = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, 26)
        text = chr(ord("A") + digit) + text
    return text


def _describe(exported: Exported, callback: Callable[[dict[str, Any]], Any]) -> None:
    plan = exported.plan

    def named(values: Sequence[int]) -> list[tuple[Any, ...]]:
        return [(_label(v), plan.layouts[v].shape, plan.layouts[v].dtype) for v in values]

    callback({"type": "inputs", "inputs": named(range(plan.argument_count))})
    numbers = range(exported.positional, plan.argument_count)
    pairs = [(k, _label(n)) for k, n in zip(exported.keywords, numbers, strict=True)]
    callback({"type": "keyword_inputs", "keywords": pairs})
    callback({"type": "outputs", "outputs": named(plan.outputs)})
    constants = [(_label(plan.argument_count + k), wrap(n)) for k, n in enumerate(plan.constants)]
    callback({"type": "constants", "constants": constants})
    for step in plan.steps:
        callback({
            "type": "primitive",
            "name": step.primitive.name,
            "arguments": list(step.primitive.parameters()),
            "inputs": named(step.inputs),
            "outputs": named(step.outputs),
        })  # fmt: skip


class _Imported:
    """The traces of a file as one function."""

    def __init__(self, path: str, traces: Sequence[Exported]) -> None:
        self.path = path
        self.traces = {t.signature(): t for t in traces}
        self.plans: dict[Any, Plan] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[array, ...]:
        positional, named = _arguments("import_function", args, kwargs)
        found = self._match(positional, named)
        if found is None:
            given = ", ".join([f"{a.dtype.name}{list(a.shape)}" for a in positional])
            given += "".join([f", {k}={a.dtype.name}{list(a.shape)}" for k, a in named.items()])
            known = "; ".join([self._words(t) for t in self.traces.values()])
            raise ValueError(f"[import_function] {self.path} has no trace for ({given}). It has: {known}.")
        exported, nodes = found
        plan = self._plan_for(exported, tuple([n.layout for n in nodes]))
        return tuple([wrap(n) for n in unrolled(plan, nodes)])

    def _match(self, positional: list[array], named: dict[str, array]) -> tuple[Exported, list[Node]] | None:
        for trace in self.traces.values():
            keywords = trace.keywords
            if len(positional) != trace.positional or {*named} != {*keywords}:
                continue
            nodes = [a._node for a in (*positional, *[named[k] for k in keywords])]
            wanted = trace.plan.layouts[: trace.plan.argument_count]
            if all(_fits(n.layout, w, trace.shapeless) for n, w in zip(nodes, wanted, strict=True)):
                return trace, nodes
        return None

    def _plan_for(self, exported: Exported, seen: tuple[Layout, ...]) -> Plan:
        stream = state.current_stream()
        key = (exported.signature(), seen, stream)
        plan = self.plans.get(key)
        if plan is None:
            plan = reshaped_plan(exported.plan, seen)
            plan = plan._replace(steps=tuple([s._replace(stream=stream) for s in plan.steps]))
            self.plans[key] = plan
        return plan

    @staticmethod
    def _words(trace: Exported) -> str:
        names = [*[""] * trace.positional, *[f"{k}=" for k in trace.keywords]]
        seen = trace.plan.layouts[: trace.plan.argument_count]
        return "(" + ", ".join([f"{k}{n.dtype.name}{list(n.shape)}" for k, n in zip(names, seen, strict=True)]) + ")"


def _fits(given: Layout, wanted: Layout, shapeless: bool) -> bool:
    if given.dtype is not wanted.dtype:
        return False
    return given.ndim == wanted.ndim if shapeless else given.shape == wanted.shape


def import_function(file: str, return_metadata: bool = False) -> Any:
    """The function of a file that `export_function` or `exporter` wrote; with `return_metadata` also its metadata.

    It takes arrays by position and keyword, or one tuple and one dictionary of them, and returns a tuple of arrays. It
    raises ValueError for arrays that no trace of the file fits. Raises RuntimeError for a file that cannot be read, is
    damaged, or holds what this version does not know.

    >>> mx.export_function("double.mlxfn", lambda x: x * 2, mx.array([1.0, 2.0]), shapeless=True)
    >>> double = mx.import_function("double.mlxfn")
    >>> double(mx.array([3.0, 4.0, 5.0]))
    (array([6, 8, 10], dtype=float32),)
    """
    path = os.fspath(file)
    traces, metadata = _read(path)
    imported = _Imported(path, traces)

    def function(*args: Any, **kwargs: Any) -> tuple[array, ...]:
        return imported(*args, **kwargs)

    function.__name__ = function.__qualname__ = os.path.basename(path)
    return (function, metadata) if return_metadata else function


__all__ = ["FunctionExporter", "export_function", "exporter", "import_function"]
