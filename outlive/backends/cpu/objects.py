"""LLVM IR to machine code, kept on disk: a kernel is compiled once a machine and loaded in about a millisecond after.

An entry is keyed by what the code is made from, LLVM's version and the processor compiled for, and carries a hash
of its own bytes. An entry that is truncated, foreign or damaged is compiled anew, never loaded.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import llvmlite.binding as llvm

from outlive.backends.cpu.features import features

MAGIC = b"OUTLIVEOBJ1\n"
_DIGEST_BYTES = 32
_lock = threading.RLock()
_addresses: dict[str, int] = {}
_counts = {"loaded": 0, "compiled": 0}
_write_error = ""


def cache_folder() -> Path:
    """The folder of compiled kernels: $XDG_CACHE_HOME/outlive/kernels, by default ~/.cache/outlive/kernels."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "outlive" / "kernels"


def cache_status() -> str:
    """One sentence on the cache of compiled kernels: where it is, what this process took from it, why it is not
    written.
    """
    if _write_error:
        return (
            f"compiled kernels are kept in memory only, since {_write_error}; "
            "make the folder writable or set XDG_CACHE_HOME"
        )
    return (
        f"compiled kernels are cached in {cache_folder()} ({_counts['loaded']} loaded, {_counts['compiled']} compiled "
        "by this process)"
    )


@functools.cache
def _machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    host = features()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(cpu=host.cpu, features=host.flags, opt=3, codemodel="jitdefault", jit=True)


@functools.cache
def _engine() -> llvm.ExecutionEngine:
    empty = llvm.parse_assembly("")
    return llvm.create_mcjit_compiler(empty, _machine())


def _entry_path(symbol: str, content: str) -> Path:
    host = features()
    key = "\0".join((symbol, content, str(llvm.llvm_version_info), host.cpu, host.flags))
    return cache_folder() / f"{symbol}-{hashlib.sha256(key.encode()).hexdigest()[:40]}.o"


def _read_entry(path: Path) -> bytes | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    head = len(MAGIC) + _DIGEST_BYTES
    code = data[head:]
    if data[: len(MAGIC)] != MAGIC or not code or hashlib.sha256(code).digest() != data[len(MAGIC) : head]:
        return None
    return code


def _write_entry(path: Path, code: bytes) -> None:
    """Writes beside the entry and renames, so that a reader sees all of it or nothing; a failure is only noted."""
    global _write_error
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        with os.fdopen(descriptor, "wb") as file:
            file.write(MAGIC + hashlib.sha256(code).digest() + code)
        os.replace(temporary, path)
    except OSError as error:
        _write_error = f"{path.parent} cannot be written ({error.strerror or error})"
        if temporary is not None:
            try:
                os.unlink(temporary)
            except OSError:
                pass  # the write error above is the one to tell


def _optimized(ir_text: str) -> llvm.ModuleRef:
    module = llvm.parse_assembly(ir_text)
    module.verify()
    machine = _machine()
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    options.slp_vectorization = False  # kernels say their vectors themselves
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


def compile_object(ir_text: str) -> bytes:
    """Machine code (an object file) of a module of LLVM IR, optimized for the processor of `features()`."""
    with _lock:
        return _machine().emit_object(_optimized(ir_text))


def assembly(ir_text: str) -> str:
    """Assembly of a module of LLVM IR, for reading what a kernel became."""
    with _lock:
        return _machine().emit_assembly(_optimized(ir_text))


def function_address(symbol: str, content: str, emit: Callable[[], str]) -> int:
    """Address of the one function that a module defines; see `function_addresses`."""
    return _addresses.get(symbol) or function_addresses((symbol,), content, emit)[0]


def function_addresses(symbols: tuple[str, ...], content: str, emit: Callable[[], str]) -> tuple[int, ...]:
    """Addresses of the functions of one module, compiled or taken from the cache.

    symbols: names that the module defines, unique in the process; the first names the entry. content: everything
    that decides the code (the IR itself, or a digest of the sources that generate it with their parameters). emit:
    makes the IR text; called only when there is no cached entry.
    """
    with _lock:
        if symbols[0] not in _addresses:
            engine = _engine()
            path = _entry_path(symbols[0], content)
            code = _read_entry(path)
            _counts["compiled" if code is None else "loaded"] += 1
            if code is None:
                code = compile_object(emit())
                _write_entry(path, code)
            engine.add_object_file(llvm.ObjectFileRef.from_data(code))
            engine.finalize_object()
            for symbol in symbols:
                address = engine.get_function_address(symbol)
                if not address:
                    raise RuntimeError(f"[kernels] the compiled object of {symbol} does not define it; delete {path}")
                _addresses[symbol] = address
        return tuple(_addresses[symbol] for symbol in symbols)
