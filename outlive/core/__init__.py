"""The array namespace: `import outlive.core as mx`.

Everything is re-exported from the layers below; what an op does is told where it is defined, in `outlive.ops`.
"""

from __future__ import annotations

from outlive.core import cuda, distributed, fast, fft, linalg, metal, operators, random
from outlive.core.devices import *  # noqa: F403
from outlive.core.evaluation import async_eval, eval
from outlive.core.info import *  # noqa: F403
from outlive.core.interchange import ArrayLike, asarray, from_dlpack
from outlive.core.memory import *  # noqa: F403
from outlive.core.operators import ArrayIterator
from outlive.graph.array import array
from outlive.graph.calibrate import calibrate as _calibrate
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
    cpu,
    default_device,
    default_stream,
    gpu,
    new_stream,
    runtime,
    set_default_device,
    set_default_stream,
)
from outlive.ops.conv import *  # noqa: F403
from outlive.ops.creation import *  # noqa: F403
from outlive.ops.einsum import *  # noqa: F403
from outlive.ops.elementwise import *  # noqa: F403
from outlive.ops.files import *  # noqa: F403
from outlive.ops.gather import *  # noqa: F403
from outlive.ops.gather_matmul import *  # noqa: F403
from outlive.ops.hadamard import *  # noqa: F403
from outlive.ops.index import *  # noqa: F403
from outlive.ops.join import *  # noqa: F403
from outlive.ops.matmul import *  # noqa: F403
from outlive.ops.norm import matrix_norm
from outlive.ops.quantize import *  # noqa: F403
from outlive.ops.quantized_matmul import *  # noqa: F403
from outlive.ops.reduce import *  # noqa: F403
from outlive.ops.scan import *  # noqa: F403
from outlive.ops.shape import *  # noqa: F403
from outlive.ops.slicing import *  # noqa: F403
from outlive.ops.sort import *  # noqa: F403
from outlive.ops.unary import *  # noqa: F403
from outlive.ops.unique import *  # noqa: F403
from outlive.runtime.stream import Stream
from outlive.transforms import *  # noqa: F403

__version__ = "0.32.4"
"""The level of the API."""

_calibrate(runtime)

operators.install(globals())
