"""What crosses the pipe to the reference: requests, outcomes and arrays, and how a side with MLX's API performs them.

The module is read by two interpreters: the tests import it, and the child runs it from its own environment. So it needs
NumPy alone, imports nothing of Outlive, and both sides build their inputs and read their results by the same code.
"""

from __future__ import annotations

import operator
import pickle
import struct
from dataclasses import dataclass, field
from functools import reduce
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np

# Types that NumPy has no name for travel as unsigned integers of their width.
STORED_AS = {"bfloat16": "uint16"}
LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, eq=False)
class Array:
    """An array on its way: ``stored`` holds the base, ``steps`` the views to take of it on the other side.

    ``dtype`` is the name of the element type ("bfloat16" is stored as uint16). A step is ``("index", key)`` with a
    tuple of slices, integers, None and Ellipsis, ``("transpose", axes)`` or ``("broadcast", shape)``.
    """

    dtype: str
    stored: np.ndarray
    steps: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, values: np.ndarray) -> Array:
        """The contiguous array of a NumPy array, whose type names the element type."""
        return cls(values.dtype.name, values)

    def resolved(self) -> np.ndarray:
        """The stored elements after the views: what the other side sees, still in the storage type."""
        values = self.stored
        for kind, argument in self.steps:
            if kind == "index":
                values = values[argument]
            elif kind == "transpose":
                values = values.transpose(argument)
            else:
                values = np.broadcast_to(values, argument)
        return values

    def values(self) -> np.ndarray:
        """The elements as numbers: bfloat16 as the float32 of equal value, every other type as itself."""
        values = self.resolved()
        if self.dtype == "bfloat16":
            return (np.ascontiguousarray(values).astype(np.uint32) << 16).view(np.float32).reshape(values.shape)
        return values

    def __repr__(self) -> str:
        views = "".join(f".{kind}({argument})" for kind, argument in self.steps)
        return f"Array({self.dtype}, {self.stored.tolist()!r}{views})"


@dataclass(frozen=True)
class Dtype:
    """An element type as an argument, by name."""

    name: str


@dataclass(frozen=True)
class Call:
    """A call of one public function, named from the namespace down: "add", "linalg.inv", "array.astype"."""

    name: str
    args: tuple = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """Statements that see ``mx``, ``np`` and the inputs by name, and leave their result in ``out``."""

    text: str
    inputs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Returned:
    """The call's value: arrays as :class:`Array`, types as :class:`Dtype`, containers and scalars as they are."""

    value: Any


@dataclass(frozen=True)
class Raised:
    """The call raised: the name of the exception's class, its message, and the names of the classes it derives from."""

    error: str
    text: str
    bases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Crashed:
    """The process died or gave no answer; ``how`` says which, with the last lines that it wrote."""

    how: str


Request = Call | Program
Outcome = Returned | Raised | Crashed


class UnreadableResultError(TypeError):
    """A result of a type that cannot cross the pipe: a fault of the test, never an outcome to agree on."""


# The name of the error when an input could not even be made: a fault of the test too, or of what makes arrays.
UNBUILDABLE = "UnbuildableInput"
TEST_FAULTS = (UNBUILDABLE, UnreadableResultError.__name__)


class Side:
    """One implementation of the API: builds arrays from the wire, performs requests, reads the results.

    ``namespace`` is a module with MLX's API (``outlive.core``, or the reference's own).
    """

    def __init__(self, namespace: ModuleType):
        self.mx = namespace

    def perform(self, request: Request) -> Outcome:
        """Run one request to its end, evaluation included; whatever it raises is its outcome."""
        inputs = (request.args, request.kwargs) if isinstance(request, Call) else request.inputs
        try:
            built = self.build(inputs)
        except Exception as error:  # noqa: BLE001 - told from what the call itself raises
            return Raised(UNBUILDABLE, f"{type(error).__name__}: {error}")
        try:
            if isinstance(request, Call):
                args, kwargs = built
                result = reduce(getattr, request.name.split("."), self.mx)(*args, **kwargs)
            else:
                scope = {"mx": self.mx, "np": np, **built}
                exec(compile(request.text, "<program>", "exec"), scope)
                result = scope["out"]
            return Returned(self.read(result))
        except Exception as error:  # noqa: BLE001 - any exception is an outcome to be compared
            bases = tuple(base.__name__ for base in type(error).__mro__)
            return Raised(type(error).__name__, str(error), bases)

    def build(self, value: Any) -> Any:
        """Turn a value of the wire into the side's own: arrays and types inside any nesting of containers."""
        if isinstance(value, Array):
            return self._build_array(value)
        if isinstance(value, Dtype):
            return getattr(self.mx, _api_name(value.name))
        if isinstance(value, (list, tuple)):
            return type(value)(self.build(item) for item in value)
        if isinstance(value, dict):
            return {key: self.build(item) for key, item in value.items()}
        return value

    def _build_array(self, value: Array) -> Any:
        mx = self.mx
        if value.dtype in STORED_AS:
            array = mx.array(value.stored).view(getattr(mx, value.dtype))
        else:
            # The type is named: MLX takes a NumPy array of float64 as float32 otherwise.
            array = mx.array(value.stored, dtype=getattr(mx, _api_name(value.dtype)))
        for kind, argument in value.steps:
            if kind == "index":
                array = array[argument]
            elif kind == "transpose":
                array = mx.transpose(array, argument)
            else:
                array = mx.broadcast_to(array, argument)
        return array

    def read(self, value: Any) -> Any:
        """Turn a result into a value of the wire, evaluating every array in it."""
        mx = self.mx
        if isinstance(value, mx.array):
            # Asked for by name: a conversion to NumPy may not report a failed evaluation.
            mx.eval(value)
            name = dtype_name(value.dtype)
            stored = value.view(getattr(mx, STORED_AS[name])) if name in STORED_AS else value
            return Array(name, np.array(stored))
        if isinstance(value, mx.Dtype):
            return Dtype(dtype_name(value))
        if isinstance(value, (list, tuple)):
            return [self.read(item) for item in value]
        if isinstance(value, dict):
            return {key: self.read(item) for key, item in value.items()}
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes, np.ndarray)):
            return value
        raise UnreadableResultError(f"a result of type {type(value).__name__} cannot cross the pipe")


def bfloat16_bits(values: np.ndarray) -> np.ndarray:
    """float32 rounded to the nearest bfloat16, ties to even, as uint16; NaN becomes the quiet NaN of its sign."""
    bits = np.ascontiguousarray(values, np.float32).reshape(np.shape(values)).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x0040)
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16)


def dtype_name(dtype: Any) -> str:
    """The NumPy name of a side's element type: ``mlx.core.bool`` is "bool"."""
    return str(dtype).rpartition(".")[2].removesuffix("_")


def _api_name(dtype: str) -> str:
    return "bool_" if dtype == "bool" else dtype


def send(pipe: BinaryIO, message: Any) -> None:
    """Write one message: its length in eight bytes, then its pickle."""
    body = pickle.dumps(message, protocol=5)
    pipe.write(LENGTH.pack(len(body)))
    pipe.write(body)
    pipe.flush()


def receive(pipe: BinaryIO) -> Any:
    """Read one message; EOFError when the other end closed before a whole message came."""
    (length,) = LENGTH.unpack(_read_exactly(pipe, LENGTH.size))
    return pickle.loads(_read_exactly(pipe, operator.index(length)))


def _read_exactly(pipe: BinaryIO, count: int) -> bytes:
    body = pipe.read(count)
    if len(body) < count:
        raise EOFError(f"the pipe closed after {len(body)} of {count} bytes")
    return body
