"""Compiles kernels on first request and keeps them: the way from an emitter to an address."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path

from outlive.backends.cpu import objects
from outlive.backends.cpu.abi import CpuKernel
from outlive.backends.cpu.kernels.emit import Emitter


@functools.cache
def _sources_digest() -> str:
    """A digest of every source that takes part in generating code, so that a cached object never outlives a change."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


_kernels: dict[str, CpuKernel] = {}


def compiled(name: str, write: Callable[[Emitter], None], order_class: str) -> CpuKernel:
    """The kernel `name`, which `write` emits when neither this process nor the cache has it.

    name: unique; it must say everything that `write` depends on (op, types, variant), since it is the key.
    """
    kernel = _kernels.get(name)
    if kernel is None:
        symbol = f"outlive_{name}"

        def emit() -> str:
            emitter = Emitter(symbol)
            write(emitter)
            return emitter.finish()

        kernel = CpuKernel(name, objects.function_address(symbol, _sources_digest(), emit), order_class)
        _kernels[name] = kernel
    return kernel
