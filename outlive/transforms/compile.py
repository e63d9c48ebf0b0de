"""`compile`: a function traced once for each kind of arguments, then replayed as one node."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import wraps
from typing import Any

from outlive.graph import state
from outlive.graph.array import array, wrap
from outlive.graph.dtypes import Dtype
from outlive.graph.node import Node
from outlive.graph.primitive import Pick, Primitive
from outlive.graph.tracing import Trace
from outlive.runtime.layout import Layout
from outlive.runtime.origin import user_origin
from outlive.transforms.fusion import fused_for_device
from outlive.transforms.plan import Plan, make_plan, unrolled
from outlive.transforms.program import Program, capture, replay
from outlive.transforms.tape import placeholder
from outlive.transforms.trees import leaves, tree_map

LIMIT_TRACES = 1 << 10
"""Traces that one compiled function keeps; the oldest goes first."""

LIMIT_PROGRAMS = 64
"""Sets of operand layouts for which one trace keeps programs."""

LIMIT_VARIANTS = 16
"""Programs for one set of operand layouts: one for each set of arguments that may be written over."""

_PLACE = object()
"""Stands for an array in a result."""

_CONSTANTS = (bool, int, float, complex, str, bytes, type(None), Dtype)
_state_lock = threading.RLock()  # traces that put stand-ins into captured state, one at a time
_enabled = [not os.environ.get("OUTLIVE_DISABLE_COMPILE") and not os.environ.get("MLX_DISABLE_COMPILE")]


def disable_compile() -> None:
    """Let compiled functions run as they were written, everywhere, until `enable_compile`. OUTLIVE_DISABLE_COMPILE does
    it from outside.

    >>> mx.disable_compile()
    >>> mx.compile(lambda x: x + 1)(mx.array(1))
    array(2, dtype=int32)
    >>> mx.enable_compile()
    """
    _enabled[0] = False


def enable_compile() -> None:
    """Let compiled functions be traced and replayed, whatever the environment says.

    >>> mx.enable_compile()
    >>> mx.compile(lambda x: x + 1)(mx.array(1))
    array(2, dtype=int32)
    """
    _enabled[0] = True


class Compiled(Primitive):
    """A whole plan as one op.

    `programs`: by device and layouts of the operands, then by which arguments may be written over.
    """

    __slots__ = ("plan", "programs", "all")
    name = "compiled"
    plan: Plan
    programs: dict[Any, dict[frozenset[int], Program]]
    all: frozenset[int]

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        layouts = tuple([i.layout for i in inputs])
        variants = self.programs.get((encoder.device, layouts))
        if variants is None:
            if len(self.programs) >= LIMIT_PROGRAMS:
                self.programs.clear()
            variants = self.programs[encoder.device, layouts] = {}
        program = variants.get(self.all) or self._captured(variants, layouts, self.all, encoder.device)
        if program.taken:
            given = frozenset([i for i in program.taken if encoder.donated(i) is not None])
            if given != program.taken:
                program = variants.get(given) or self._captured(variants, layouts, given, encoder.device)
        made = replay(program, encoder, inputs)
        return made if type(layout) is tuple else made[0]

    def _captured(self, variants: Any, layouts: tuple[Layout, ...], writable: frozenset[int], device: Any) -> Program:
        if len(variants) >= LIMIT_VARIANTS:
            variants.clear()
        variants[writable] = made = capture(self.plan, layouts, writable, device)
        return made


class _Entry:
    """One trace: its plan, what it returns, and where the captured outputs go."""

    __slots__ = ("layout", "paths", "picks", "plan", "primitive", "result", "sources")

    def __init__(self, plan: Plan, result: Any, paths: list[tuple[Any, ...]]) -> None:
        given = plan.argument_count + len(plan.constants)
        computed = list(dict.fromkeys([n for n in plan.outputs if n >= given]))
        places = {n: k for k, n in enumerate(computed)}
        self.sources = [(n, -1) if n < given else (-1, places[n]) for n in plan.outputs]
        self.plan = plan._replace(outputs=tuple(computed))
        self.primitive = Compiled._new((fused_for_device(self.plan), {}, frozenset(range(plan.argument_count))))
        layouts = tuple([plan.layouts[n] for n in computed])
        self.layout: Any = layouts[0] if len(layouts) == 1 else layouts
        self.picks = [] if len(layouts) == 1 else [(Pick.make(k), seen) for k, seen in enumerate(layouts)]
        self.result = result
        self.paths = paths

    def nodes(self, arguments: list[Node]) -> list[Node]:
        """The outputs, lazily, for arguments of the traced kind."""
        plan = self.plan
        inputs = (*arguments, *plan.constants)
        made: Sequence[Node] = ()
        if plan.outputs:
            if plan.stream is None:
                made = unrolled(plan, arguments)
            else:
                origin = user_origin(2)
                node = Node(self.primitive, inputs, self.layout, plan.stream, origin)
                group = (node,)
                made = [Node(pick, group, seen, plan.stream, origin) for pick, seen in self.picks] or [node]
        return [inputs[n] if n >= 0 else made[k] for n, k in self.sources]


def _key_of(tree: Any, nodes: list[Node]) -> Any:
    """A hashable description of arguments, without their values; their nodes are added to `nodes`."""
    kind = type(tree)
    if kind is array:
        nodes.append(tree._node)
        return tree._node.layout
    if isinstance(tree, (list, tuple)):
        parts: list[Any] = [kind]
        for item in tree:
            if type(item) is array:  # the commonest leaf, without another frame
                nodes.append(item._node)
                parts.append(item._node.layout)
            else:
                parts.append(_key_of(item, nodes))
        return tuple(parts)
    if isinstance(tree, dict):
        return (dict, *[(key, _key_of(item, nodes)) for key, item in tree.items()])
    if isinstance(tree, _CONSTANTS):
        # 0.0 and -0.0, and 1 and True, are equal keys of different constants; NaN equals nothing
        return (kind, repr(tree) if kind in (float, complex) else tree)
    raise ValueError(
        "[compile] Arguments must be arrays, constants (numbers, strings, None), or lists, tuples and dictionaries of "
        f"them; found a {kind.__name__}."
    )


def _paths_of(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the arrays of captured state are: containers' keys from the top. Raises ValueError for arrays in tuples."""
    if type(tree) is array:
        return [path]
    if isinstance(tree, dict):
        return [p for key, item in tree.items() for p in _paths_of(item, (*path, key))]
    if isinstance(tree, (list, tuple)):
        if isinstance(tree, tuple) and any(type(item) is array for item in tree):
            raise ValueError(
                "[compile] Captured state must hold its arrays in lists and dictionaries, where they can be replaced."
            )
        return [p for key, item in enumerate(tree) for p in _paths_of(item, (*path, key))]
    return []


def _at(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def _assign(tree: Any, path: tuple[Any, ...], value: array) -> None:
    _at(tree, path[:-1])[path[-1]] = value


class _Held:
    """Captured state before a trace: where its arrays are, and which they are."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree
        self.paths = _paths_of(tree)
        self.arrays = [_at(tree, p) for p in self.paths]
        self.stand_ins: list[array] = []

    def replace(self, stand_ins: list[array]) -> None:
        """Put stand-ins into the containers."""
        for path, stand_in in zip(self.paths, stand_ins, strict=True):
            _assign(self.tree, path, stand_in)
        self.stand_ins = stand_ins

    def restore(self) -> None:
        """Put every array back that was there."""
        for path, original in zip(self.paths, self.arrays, strict=True):
            try:
                _assign(self.tree, path, original)
            except (KeyError, IndexError, TypeError):
                pass  # the function took that part of the state away

    def restore_unchanged(self) -> None:
        """Put an array back wherever its stand-in still is."""
        originals = dict(zip([id(s) for s in self.stand_ins], self.arrays, strict=True))
        for path in _paths_of(self.tree):
            original = originals.get(id(_at(self.tree, path)))
            if original is not None:
                _assign(self.tree, path, original)


class _Function:
    """A compiled function: its traces by the kind of arguments."""

    def __init__(self, fun: Callable[..., Any], inputs: Any, outputs: Any) -> None:
        self.fun = fun
        self.inputs = inputs
        self.outputs = outputs
        self.entries: dict[Any, _Entry | None] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not _enabled[0]:
            return self.fun(*args, **kwargs)
        nodes: list[Node] = []
        key: Any = _key_of(args, nodes), _key_of(kwargs, nodes) if kwargs else None, state.current_stream()
        if self.inputs is not None:
            key = (*key, _key_of_state(self.inputs, nodes))
        for node in nodes:
            # inside another transform the ops themselves are wanted
            if node.traced and node.traced.live:  # type: ignore[union-attr]
                return self.fun(*args, **kwargs)
        entry = self.entries.get(key, self)
        if entry is self:
            entry = self._trace(key, args, kwargs, nodes)
        if entry is None:
            return self.fun(*args, **kwargs)
        made = iter([wrap(n) for n in entry.nodes(nodes)])  # type: ignore[union-attr]
        result = tree_map(lambda leaf: next(made) if leaf is _PLACE else leaf, entry.result)  # type: ignore[union-attr]
        for path in entry.paths:  # type: ignore[union-attr]
            _assign(self.outputs, path, next(made))
        return result

    def _trace(self, key: Any, args: Any, kwargs: Any, nodes: list[Node]) -> _Entry | None:
        captures = self.inputs is not None or self.outputs is not None
        with _state_lock if captures else nullcontext(), Trace() as trace:
            arguments = [placeholder(n.layout, trace) for n in nodes]
            handles = iter([wrap(a) for a in arguments])
            called, named = tree_map(lambda leaf: next(handles) if type(leaf) is array else leaf, (args, kwargs))
            read, written = _Held(self.inputs), _Held(self.outputs)
            plan = None
            try:
                read.replace(list(handles))
                result = self.fun(*called, **named)
                out_paths = _paths_of(self.outputs)
                updated = [_at(self.outputs, p) for p in out_paths]
                plan, places = self._plan(arguments, result, updated)
            finally:
                if plan is None:
                    written.restore()
                    read.restore()
                else:
                    read.restore_unchanged()
        if plan is None:
            return None  # not kept: the next call may come without the other transform
        if len(self.entries) >= LIMIT_TRACES:
            del self.entries[next(iter(self.entries))]
        entry = self.entries[key] = _Entry(plan, places, out_paths)
        return entry

    @staticmethod
    def _plan(arguments: list[Node], result: Any, updated: list[array]) -> tuple[Plan | None, Any]:
        outs = [leaf for leaf in leaves(result) if type(leaf) is array] + updated
        places = tree_map(lambda leaf: _PLACE if type(leaf) is array else leaf, result)
        return make_plan(arguments, [o._node for o in outs]), places


def _key_of_state(tree: Any, nodes: list[Node]) -> Any:
    """As `_key_of` for captured state, whose other leaves are passed over."""
    if type(tree) is array:
        nodes.append(tree._node)
        return tree._node.layout
    if isinstance(tree, dict):
        return tuple([(key, _key_of_state(item, nodes)) for key, item in tree.items()])
    if isinstance(tree, (list, tuple)):
        return tuple([_key_of_state(item, nodes) for item in tree])
    return None


def compile(
    fun: Callable[..., Any], inputs: Any = None, outputs: Any = None, shapeless: bool = False
) -> Callable[..., Any]:
    """A function that does what `fun` does, from a trace of it: repeated and needless work left out, and one node a
    call.

    `fun` takes arrays, constants (numbers, strings, None) and trees of them, and returns trees with arrays at their
    leaves. It is called once for each combination of shapes, types, structure and constants; its Python code does not
    run again. `inputs`, `outputs`: lists or dictionaries (nested as you like) that hold arrays which `fun` reads or
    replaces beside its arguments; other arrays that it reads from outside are constants of the trace. `shapeless`: kept
    for programs that pass it; a new shape is traced anew, so the answer is right also for functions whose shapes depend
    on those of the arguments.

    Under grad, vjp, jvp, vmap or another compile the ops of `fun` are seen themselves. Calling it raises ValueError for
    arguments of other kinds, and where `fun` evaluates an array: values are not at hand while tracing. Raises TypeError
    where `fun` is no function.

    >>> gelu = mx.compile(lambda x: x * (1 + mx.erf(x / 2**0.5)) / 2)
    >>> gelu(mx.array([0.0, 1.0]))
    array([0, 0.841345], dtype=float32)
    """
    if not callable(fun):
        raise TypeError(f"[compile] Expected a function; got a {type(fun).__name__}.")
    for name, tree in (("inputs", inputs), ("outputs", outputs)):
        if tree is not None and not isinstance(tree, (list, dict)):
            raise TypeError(
                f"[compile] {name} must be a list or a dictionary that holds arrays; got a {type(tree).__name__}."
            )
    function = _Function(fun, inputs, outputs)

    @wraps(fun)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return compiled


__all__ = ["compile", "disable_compile", "enable_compile"]
