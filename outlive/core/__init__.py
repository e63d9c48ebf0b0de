"""The array namespace: `import outlive.core as mx`.

Everything is re-exported from the layers below; what an op does is told where it is defined, in `outlive.ops`.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from outlive.core import cuda, distributed, fast, metal, operators
from outlive.core.devices import *  # noqa: F403
from outlive.core.evaluation import async_eval, eval
from outlive.core.info import *  # noqa: F403
from outlive.core.interchange import ArrayLike, asarray, from_dlpack
from outlive.core.memory import *  # noqa: F403
from outlive.core.operators import ArrayIterator
from outlive.graph.array import array
from outlive.graph.calibrate import calibrate
from outlive.graph.dtypes import (
    Dtype,
    DtypeCategory,
    bfloat16,
    bool_,
    complex64,
    complexfloating,
    float16,
    float32,
    float64,
    floating,
    generic,
    inexact,
    int8,
    int16,
    int32,
    int64,
    integer,
    issubdtype,
    number,
    signedinteger,
    uint8,
    uint16,
    uint32,
    uint64,
    unsignedinteger,
)
from outlive.graph.printing import PrintOptions, get_printoptions, printoptions, set_printoptions
from outlive.graph.state import (
    Device,
    DeviceType,
    Stream,
    cpu,
    default_device,
    default_stream,
    gpu,
    new_stream,
    runtime,
    set_default_device,
    set_default_stream,
)

__version__ = "0.32.4"
"""The level of the API."""

calibrate(runtime)

_FAMILIES = (
    "elementwise unary creation reduce scan sort shape slicing join index gather matmul einsum conv quantize "
    "quantized_matmul gather_matmul hadamard unique"
).split()
for _family in _FAMILIES:
    if find_spec(f"outlive.ops.{_family}"):
        _module = import_module(f"outlive.ops.{_family}")
        globals().update({_name: getattr(_module, _name) for _name in getattr(_module, "__all__", ())})
for _space in ("random", "linalg", "fft"):
    if find_spec(f"outlive.ops.{_space}"):
        globals()[_space] = import_module(f"outlive.ops.{_space}")
if find_spec("outlive.transforms"):
    _module = import_module("outlive.transforms")
    globals().update({_name: getattr(_module, _name) for _name in getattr(_module, "__all__", ())})

operators.install(globals())
