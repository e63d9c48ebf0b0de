"""``outlive doctor``: what this installation consists of, and what is wrong with it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from outlive import __version__
from outlive.lm.store import MANIFEST, cache_folder, models_folder

_LIBRARIES = ("numpy", "ml_dtypes", "numba", "llvmlite", "gguf", "tokenizers", "jinja2", "safetensors", "typer", "rich")


def doctor() -> None:
    """Print one line a fact, in sections."""
    for title, lines in (
        ("versions", _versions()),
        ("machine", _machine()),
        ("devices", _devices()),
        ("caches", _caches()),
    ):
        print(f"{title}:")
        try:
            for line in lines:
                print(f"  {line}")
        except ImportError as error:  # a missing library must not hide what else there is to say
            print(f"  {error}: install outlive again with pip")
        except ValueError as error:  # nor an environment variable without meaning, which says so itself
            print(f"  {error}")


def _versions() -> Iterator[str]:
    yield f"outlive {__version__}"
    yield f"python {platform.python_version()} ({platform.python_implementation()})"
    for name in _LIBRARIES:
        try:
            yield f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            yield f"{name} is missing: install outlive again with pip"


def _machine() -> Iterator[str]:
    yield f"{platform.system()} {platform.release()} on {platform.machine()}"
    yield f"processors usable: {len(os.sched_getaffinity(0))} of {os.cpu_count()}"
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    yield f"memory: {pages * page_bytes / 1e9:.1f} GB"


def _devices() -> Iterator[str]:
    import outlive.core as mx
    from outlive.backends.cpu.features import features
    from outlive.backends.cpu.pool import thread_count
    from outlive.runtime.encoder import NEVER, Donation

    yield "cpu: available"
    yield from _gpus()
    yield f"default: {mx.default_device()}, memory cap {mx.get_memory_limit() / 1e9:.1f} GB"
    if Donation.node == NEVER:
        yield "results never take over the memory of operands: this Python counts references in an unknown way"
    yield f"cpu kernels: for {features().cpu}, {thread_count()} threads"
    if features().reason:
        yield f"cpu kernels: {features().reason}"


def _gpus() -> Iterator[str]:
    from outlive.backends import cuda

    if not cuda.device_count():
        yield f"gpu: not available. {cuda.why_unavailable()}"
    for index in range(cuda.device_count()):
        facts = cuda.device_facts(index)
        capability = ".".join(map(str, facts.capability))
        yield (
            f"gpu {index}: {facts.name}, {facts.memory / 1e9:.0f} GB, compute capability {capability}, driver for CUDA "
            f"{facts.driver_version} (extra {cuda.fitting_extra()})"
        )


def _caches() -> Iterator[str]:
    from outlive.backends.cpu.objects import cache_status

    yield f"folder: {cache_folder()} ({_writability(cache_folder())})"
    yield cache_status()
    manifests = sorted(models_folder().glob(f"*/{MANIFEST}"))
    yield f"models: {len(manifests)} in {models_folder()}"
    for manifest in manifests:
        size = sum(file.stat().st_size for file in manifest.parent.iterdir())
        yield f"  {manifest.parent.name}: {size / 1e6:.1f} MB"


def _writability(folder: Path) -> str:
    existing = folder
    while not existing.exists():
        existing = existing.parent
    if not os.access(existing, os.W_OK | os.X_OK):
        return "NOT writable: make it so, or set XDG_CACHE_HOME to a folder that is"
    return "writable" if existing == folder else "will be made when needed"
