"""Transforms of functions: derivatives, batching, compilation, export. Each interprets a traced function's tape."""

from __future__ import annotations

from outlive.transforms.autograd import grad, jvp, value_and_grad, vjp
from outlive.transforms.compile import compile, disable_compile, enable_compile
from outlive.transforms.custom import checkpoint, custom_function
from outlive.transforms.dot import export_to_dot
from outlive.transforms.export import FunctionExporter, export_function, exporter, import_function
from outlive.transforms.vmap import vmap

__all__ = [
    "FunctionExporter",
    "checkpoint",
    "compile",
    "custom_function",
    "disable_compile",
    "enable_compile",
    "export_function",
    "export_to_dot",
    "exporter",
    "grad",
    "import_function",
    "jvp",
    "value_and_grad",
    "vjp",
    "vmap",
]
