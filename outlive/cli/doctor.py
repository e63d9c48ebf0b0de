"""``outlive doctor``: what this installation consists of, and what is wrong with it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from outlive import __version__
from outlive.lm.store import cache_folder

_LIBRARIES = (
    "numpy",
    "ml_dtypes",
    "llvmlite",
    "gguf",
    "tokenizers",
    "jinja2",
    "safetensors",
    "huggingface_hub",
    "typer",
    "rich",
)


def doctor(as_json: bool = False) -> None:
    """Print one line a fact, in sections; or an object of lists of lines."""
    sections = {"versions": _versions, "machine": _machine, "devices": _devices, "caches": _caches}
    if as_json:
        print(json.dumps({title: list(_told(lines())) for title, lines in sections.items()}, indent=1))
        return
    for title, lines in sections.items():
        print(f"{title}:")
        for line in _told(lines()):
            print(f"  {line}")


def _told(lines: Iterator[str]) -> Iterator[str]:
    """The lines of a section; what keeps it from going on is its last one."""
    try:
        yield from lines
    except ImportError as error:  # a missing library must not hide what else there is to say
        yield f"{error}: install outlive again with pip"
    except ValueError as error:  # nor an environment variable without meaning, which says so itself
        yield str(error)


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
    from outlive.lm.library import cached_models

    found = cached_models()
    yield f"models: {len(found)}, {sum(model.nbytes for model in found) / 1e6:.1f} MB (see 'outlive models')"
    for model in found:
        yield f"  {model.source}: {model.nbytes / 1e6:.1f} MB in {model.path}"


def _writability(folder: Path) -> str:
    existing = folder
    while not existing.exists():
        existing = existing.parent
    if not os.access(existing, os.W_OK | os.X_OK):
        return "NOT writable: make it so, or set XDG_CACHE_HOME to a folder that is"
    return "writable" if existing == folder else "will be made when needed"
