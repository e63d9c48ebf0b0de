"""Facts about types and shapes, array methods and operators, transforms, graph helpers."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.differential.registry import OPS, Case, Draw, array, axis, one_of, shape, whole
from tests.reference.strategies import NUMBERS, broadcastable
from tests.reference.wire import Call, Dtype, Program

TYPES = (*NUMBERS, "float64")
CATEGORIES = "complexfloating floating inexact signedinteger unsignedinteger integer number generic".split()


@OPS.add("can_cast issubdtype isdtype", examples=60)
def _of_two_types(draw: Draw, name: str) -> Case:
    second: Any = Dtype(one_of(draw, *TYPES, *(CATEGORIES if name == "issubdtype" else ())))
    if name == "isdtype":
        kinds = (
            "bool",
            "signed integer",
            "unsigned integer",
            "integral",
            "real floating",
            "complex floating",
            "numeric",
            "other",
        )
        second = one_of(draw, second, *kinds, (second, "integral"))
    return Case(Call(name, (Dtype(one_of(draw, *TYPES)), second)))


@OPS.add("result_type", examples=60)
def _result_type(draw: Draw, name: str) -> Case:
    of = [
        Dtype(one_of(draw, *TYPES)) if draw(st.booleans()) else array(draw, one_of(draw, *NUMBERS), (2,))
        for _ in range(whole(draw, 1, 3))
    ]
    return Case(Call(name, tuple(of)))


@OPS.add("finfo iinfo", examples=25)
def _limits(draw: Draw, name: str) -> Case:
    fields = "min max dtype bits" + (" eps smallest_normal" if name == "finfo" else "")
    text = f"i = mx.{name}(dtype)\nout = [getattr(i, f, None) for f in {fields.split()!r} if hasattr(i, f)]"
    return Case(Program(text, {"dtype": Dtype(one_of(draw, *TYPES))}))


@OPS.add("broadcast_shapes", examples=30)
def _broadcast_shapes(draw: Draw, name: str) -> Case:
    shapes = [*draw(broadcastable(2)), *([(2, 5)] if whole(draw, 0, 3) == 3 else [])]
    return Case(Program("out = list(mx.broadcast_shapes(*shapes))", {"shapes": list(shapes)}))


@OPS.add("depends", examples=10)
def _depends(draw: Draw, name: str) -> Case:
    return Case(Call(name, (array(draw, "float32", shape(draw)), array(draw, "int32", (2,)))))


@OPS.add(
    "array.T array.mT array.shape array.ndim array.size array.itemsize array.nbytes array.dtype array.real array.imag",
    examples=10,
)
def _attributes(draw: Draw, name: str) -> Case:
    kind = "complex64" if name in ("array.real", "array.imag") else one_of(draw, *NUMBERS)
    a = array(draw, kind, shape(draw, rank_min=2))
    text = f"out = a.{name[6:]}"
    return Case(Program(text.replace("a.shape", "list(a.shape)"), {"a": a}))


_UNARY_METHODS = "abs conj cos exp log log10 log1p log2 reciprocal rsqrt sin sqrt square"


@OPS.add(" ".join(f"array.{m}" for m in _UNARY_METHODS.split()), examples=8)
def _unary_methods(draw: Draw, name: str) -> Case:
    return Case(Call(name, (array(draw, "float32", shape(draw), special=False, low=0.5, high=2),)), tolerance="exp")


@OPS.add(
    "array.all array.any array.argmax array.argmin array.max array.min array.sum array.prod array.mean array.logsumexp",
    examples=10,
)
def _reduction_methods(draw: Draw, name: str) -> Case:
    a = array(draw, "float32", shape(draw, rank_min=1, side_min=1), special=False, low=0.5, high=2)
    options = {"axis": axis(draw, len(a.resolved().shape)), "keepdims": draw(st.booleans())}
    magnitude = (
        None
        if name in ("array.all", "array.any", "array.argmax", "array.argmin")
        else np.float64(1e38 if "prod" in name else 256.0)
    )
    tolerance = "array.all" if magnitude is None else "sum"
    if name == "array.prod":
        tolerance, magnitude = "cumprod", None
        a = array(draw, "float32", (2, 3), special=False, low=0.5, high=2)
        options["axis"] = 1
    return Case(Call(name, (a,), options), tolerance=tolerance, magnitude=magnitude)


@OPS.add("array.var array.std", examples=10)
def _moment_methods(draw: Draw, name: str) -> Case:
    a = array(draw, "float32", (3, 5), special=False)
    return Case(Call(name, (a,), {"axis": 1, "ddof": one_of(draw, 0, 1)}), tolerance="sum", magnitude=np.float64(100.0))


@OPS.add("array.cumsum array.cumprod array.cummax array.cummin array.logcumsumexp", examples=8)
def _scan_methods(draw: Draw, name: str) -> Case:
    a = array(draw, "float32", (2, 5), special=False, low=0.5, high=2)
    return Case(
        Call(name, (a,), {"axis": 1, "reverse": draw(st.booleans())}), tolerance="sum", magnitude=np.float64(64.0)
    )


_METHODS = {
    "astype": "a.astype(mx.int32)", "diag": "a.diag()", "diagonal": "a.diagonal()", "flatten": "[a.flatten(), a.flatten(1)]",
    "item": "a[0, 0].item()", "moveaxis": "a.moveaxis(0, 1)", "reshape": "[a.reshape(-1), a.reshape((2, -1)), a.reshape(a.size, 1)]",
    "round": "[a.round(), a.round(decimals=1)]", "split": "a.split(2, axis=1)", "squeeze": "a[None].squeeze(0)",
    "swapaxes": "a.swapaxes(0, 1)", "tolist": "a.tolist()", "transpose": "[a.transpose(), a.transpose(1, 0), a.transpose([1, 0])]",
    "view": "a.view(mx.int32)", "__len__": "len(a)", "__iter__": "[r for r in a]", "__bool__": "bool(a[0, 0])", "__int__": "int(a[0, 1])",
    "__float__": "float(a[0, 1])", "__complex__": "complex(a[0, 1])", "__index__": "[10, 20, 30][a.astype(mx.int32)[0, 0] % 3]",
    "__neg__": "-a", "__pos__": "+a", "__abs__": "abs(a)", "__invert__": "~a.astype(mx.int32)", "__copy__": "__import__('copy').copy(a)",
    "__deepcopy__": "__import__('copy').deepcopy(a)", "__reduce__": "__import__('pickle').loads(__import__('pickle').dumps(a))",
    "__array__": "np.array(a).tolist()", "__repr__": "repr(a).replace('\\n', '')", "__str__": "str(a)", "__format__": "f'{a[0, 0]:.3f}'",
    "__dlpack__": "np.from_dlpack(a).tolist()", "__bytes__": "bytes(a)", "__hash__": "hash(a) == hash(a)",
}  # fmt: skip


@OPS.add(" ".join(f"array.{m}" for m in _METHODS), examples=4)
def _methods(draw: Draw, name: str) -> Case:
    a = array(draw, "float32", (2, 4), special=False)
    return Case(Program(f"out = {_METHODS[name[6:]]}", {"a": a}), tolerance="exp" if name == "array.round" else None)


_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@", "and": "&", "or": "|",
    "xor": "^", "lshift": "<<", "rshift": ">>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_NOT_REFLECTED = ("matmul", "and", "or", "xor", "lshift", "rshift", *_COMPARISONS)
_FORMS = [
    *(f"array.__{n}__" for n in _OPERATORS),
    *(f"array.__i{n}__" for n in _OPERATORS if n not in _COMPARISONS),
    *(f"array.__r{n}__" for n in _OPERATORS if n not in _NOT_REFLECTED),
]


@OPS.add(" ".join(_FORMS), examples=15)
def _operators(draw: Draw, name: str) -> Case:
    word = name.removeprefix("array.__").removesuffix("__")
    form = "" if word in _OPERATORS else word[0]
    word = word if word in _OPERATORS else word[1:]
    bits = word in ("and", "or", "xor", "lshift", "rshift")
    dtype = one_of(draw, "int32", "uint8") if bits else one_of(draw, "float32", "int32", "float16")
    if word == "matmul":
        dtype = "float32"
    a = array(draw, dtype, (3, 3), special=False, low=1, high=5)
    b: Any = array(draw, dtype, (3, 3), special=False, low=1, high=5)
    if form != "i" and word != "matmul" and draw(st.booleans()):
        b = one_of(draw, 2, 3) if bits or dtype == "int32" else one_of(draw, 2, 1.5)
    if form == "r":
        b = 2 if bits or dtype == "int32" else one_of(draw, 2, 1.5)
    sign = _OPERATORS[word]
    text = (
        f"a {sign}= b\nout = a"
        if form == "i"
        else f"out = {'b' if form == 'r' else 'a'} {sign} {'a' if form == 'r' else 'b'}"
    )
    library = word in ("pow", "truediv")
    return Case(Program(text, {"a": a, "b": b}), tolerance="power" if library else "matmul" if word == "matmul" else "add",
                magnitude=np.float64(75.0) if word == "matmul" else None)  # fmt: skip


_TRANSFORMS = {
    "grad": "out = mx.grad(lambda x: (x * mx.sin(x)).sum())(a)",
    "value_and_grad": "v, g = mx.value_and_grad(lambda x, y: (x * y).sum(), argnums=(0, 1))(a, a + 1)\nout = [v, *g]",
    "vjp": "o, g = mx.vjp(lambda x: mx.exp(x), [a], [a])\nout = [*o, *g]",
    "jvp": "o, g = mx.jvp(lambda x: mx.exp(x), [a], [a])\nout = [*o, *g]",
    "vmap": "out = mx.vmap(lambda x, y: x + y.sum(), in_axes=(0, None))(a, a)",
    "compile": "out = mx.compile(lambda x: mx.exp(x) * x + 1)(a)",
    "checkpoint": "out = mx.grad(lambda x: mx.checkpoint(mx.exp)(x).sum())(a)",
    "custom_function": (
        "f = mx.custom_function(lambda x: x * x)\n"
        "f.vjp(lambda p, c, o: c * 3)\n"
        "out = [f(a), mx.grad(lambda x: f(x).sum())(a)]"
    ),
    "export_function": (
        "import tempfile, os\np = os.path.join(tempfile.mkdtemp(), 'f.mlxfn')\n"
        "mx.export_function(p, lambda x: x + 1, a)\nout = mx.import_function(p)(a)"
    ),
    "exporter": (
        "import tempfile, os\np = os.path.join(tempfile.mkdtemp(), 'f.mlxfn')\n"
        "with mx.exporter(p, lambda x: x * 2) as e:\n    e(a)\nout = mx.import_function(p)(a)"
    ),
    "export_to_dot": "import io\nb = io.StringIO()\nmx.export_to_dot(b, a + 1)\nout = b.getvalue().startswith('digraph')",
    "eval": "b = a + 1\nmx.eval(b, [a], {'k': b})\nout = b",
    "async_eval": "b = a + 1\nmx.async_eval([b])\nout = b",
    "synchronize": "b = a + 1\nmx.synchronize()\nout = b",
    "disable_compile": "mx.disable_compile()\nout = mx.compile(lambda x: x + 1)(a)\nmx.enable_compile()",
    "enable_compile": "mx.enable_compile()\nout = mx.compile(lambda x: x + 1)(a)",
    "from_dlpack": "out = mx.from_dlpack(np.arange(6, dtype=np.float32).reshape(2, 3))",
    "stream": "with mx.stream(mx.cpu):\n    out = a + 1",
    "printoptions": "with mx.printoptions(precision=2):\n    out = str(a)",
    "set_printoptions": "mx.set_printoptions(precision=3)\nout = str(a)\nmx.set_printoptions(precision=-1)",
    "get_printoptions": "out = isinstance(mx.get_printoptions(), mx.PrintOptions)",
    "get_array_buffer_size": "b = a + 1\nmx.eval(b)\nout = mx.get_array_buffer_size(b, [b]) > 0 or not b.size",
}  # fmt: skip


@OPS.add(" ".join(_TRANSFORMS), examples=5)
def _transforms(draw: Draw, name: str) -> Case:
    a = array(draw, "float32", (2, 3), special=False, low=-2, high=2)
    return Case(Program(_TRANSFORMS[name], {"a": a}), tolerance="sum", magnitude=np.float64(64.0))


_CONSTANTS = ("e", "pi", "euler_gamma", "inf", "nan", "newaxis")


@OPS.add(" ".join(_CONSTANTS), examples=1)
def _constants(draw: Draw, name: str) -> Case:
    return Case(Program(f"out = mx.{name}"))


@OPS.add("array.__div__ array.__rdiv__", examples=5)
def _old_division(draw: Draw, name: str) -> Case:
    a = array(draw, "float32", (2, 3), special=False, low=1, high=4)
    return Case(Program(f"out = a.{name[6:]}(2.0)", {"a": a}), tolerance="divide")


@OPS.add(
    "distributed.all_gather distributed.all_max distributed.all_min distributed.all_sum distributed.sum_scatter "
    "distributed.init distributed.is_available",
    examples=5,
)
def _alone(draw: Draw, name: str) -> Case:
    if name == "distributed.init":
        return Case(Program("g = mx.distributed.init()\nout = [g.rank(), g.size()]"))
    if name == "distributed.is_available":
        return Case(Program(f"out = mx.distributed.is_available({one_of(draw, 'mpi', 'nccl')!r})"))
    return Case(Call(name, (array(draw, "float32", shape(draw, rank_min=1), special=False),)))
