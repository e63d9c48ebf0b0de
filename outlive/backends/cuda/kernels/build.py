"""Kernel sources to cubins, kept on disk: CUDA C through NVRTC, Triton by its compiler alone (no PyTorch, no GPU
needed).

An entry is keyed by the exact source, its options, the architecture and the compiler's version, and carries a hash of
its own bytes: what is truncated, foreign or damaged is compiled anew, never loaded.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlive.backends.cpu.objects import cache_folder
from outlive.backends.cuda.kernels.cuda_c import COMPILE_OPTIONS

MAGIC = b"OUTLIVECUBIN1\n"
DIGEST_BYTES = 32


class CompileError(RuntimeError):
    """A kernel that its compiler refused; says which, for what, and the compiler's own words."""


@dataclass(frozen=True, slots=True)
class Binary:
    """A compiled kernel. `shared`: bytes of dynamic shared memory; `threads`: of a block, 0 where the launch decides."""

    cubin: bytes
    symbol: str
    shared: int = 0
    threads: int = 0


@dataclass(frozen=True, slots=True)
class CudaC:
    """A kernel in CUDA C."""

    symbol: str
    text: str

    @property
    def content(self) -> str:
        """All that decides the binary, the architecture aside."""
        return "\0".join(("nvrtc", _nvrtc_version(), *COMPILE_OPTIONS, self.text))

    def compile(self, architecture: str) -> Binary:
        """Raises CompileError."""
        from cuda.bindings import nvrtc

        def check(result: Any) -> Any:
            if int(result[0]):
                raise CompileError(f"[{self.symbol}] NVRTC: {nvrtc.nvrtcGetErrorString(result[0])[1].decode()}")
            return result[1] if len(result) > 1 else None

        program = check(nvrtc.nvrtcCreateProgram(self.text.encode(), f"{self.symbol}.cu".encode(), 0, [], []))
        options = [f"--gpu-architecture={architecture}".encode(), *[o.encode() for o in COMPILE_OPTIONS]]
        code = int(nvrtc.nvrtcCompileProgram(program, len(options), options)[0])
        if code:
            log = b" " * check(nvrtc.nvrtcGetProgramLogSize(program))
            check(nvrtc.nvrtcGetProgramLog(program, log))
            raise CompileError(
                f"[{self.symbol}] NVRTC refused the kernel for {architecture}:\n{log.decode(errors='replace').strip()}"
            )
        cubin = b" " * check(nvrtc.nvrtcGetCUBINSize(program))
        check(nvrtc.nvrtcGetCUBIN(program, cubin))
        check(nvrtc.nvrtcDestroyProgram(program))
        return Binary(cubin, self.symbol)


@functools.cache
def _nvrtc_version() -> str:
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    return f"{major}.{minor}"


@dataclass(frozen=True, slots=True)
class TritonKernel:
    """A kernel in Triton. `module`: its module below `triton_kernels`; `signature`: (argument, type), "constexpr" for
    constants.

    `divisible`: arguments that are multiples of 16 (addresses in bytes).
    """

    module: str
    name: str
    signature: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Any], ...]
    divisible: tuple[str, ...]
    warps: int = 4
    stages: int = 2

    @property
    def symbol(self) -> str:
        return self.name

    @property
    def content(self) -> str:
        """All that decides the binary, the architecture aside."""
        version = importlib.metadata.version("triton")
        parts = (
            "triton",
            version,
            _source(self.module),
            self.name,
            *map(repr, self.signature),
            *map(repr, self.constants),
        )
        return "\0".join((*parts, repr(self.divisible), repr(self.warps), repr(self.stages)))

    def compile(self, architecture: str) -> Binary:
        """Raises CompileError."""
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        function = getattr(importlib.import_module(_module_path(self.module)), self.name)
        names = [name for name, _ in self.signature]
        source = ASTSource(
            function,
            dict(self.signature),
            constexprs={name: triton_value(value) for name, value in self.constants},
            attrs={(names.index(n),): [["tt.divisibility", 16]] for n in self.divisible},
        )
        options = {"num_warps": self.warps, "num_stages": self.stages, "enable_fp_fusion": False}
        capability = int("".join(c for c in architecture if c.isdigit()))
        try:
            made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
        except Exception as error:
            raise CompileError(f"[{self.name}] Triton refused the kernel for {architecture}: {error}") from error
        return Binary(made.asm["cubin"], made.metadata.name, made.metadata.shared, self.warps * 32)


class Kind(str):
    """An element type among a kernel's constants, by Triton's name; resolved when Triton is loaded."""

    __slots__ = ()


def triton_value(value: Any) -> Any:
    """A constant as Triton takes it."""
    if type(value) is not Kind:
        return value
    import triton.language

    return getattr(triton.language, value)


def _module_path(module: str) -> str:
    return f"outlive.backends.cuda.triton_kernels.{module}"


@functools.cache
def _source(module: str) -> str:
    """The text of a module of Triton kernels, and of those that it takes functions from, read without importing them."""
    folder = Path(__file__).resolve().parent.parent / "triton_kernels"
    text = (folder / f"{module}.py").read_text()
    prefix = _module_path("")
    used = [line.split()[1].removeprefix(prefix) for line in text.splitlines() if line.startswith(f"from {prefix}")]
    return text + "".join(_source(name) for name in used)


def binary(source: CudaC | TritonKernel, architecture: str) -> Binary:
    """The kernel compiled for an architecture ("sm_90a"), from the cache where it is there. Raises CompileError."""
    key = hashlib.sha256(f"{architecture}\0{source.content}".encode()).hexdigest()[:40]
    path = cache_folder() / "cuda" / f"{source.symbol[:80]}-{architecture}-{key}.cubin"
    found = _read(path)
    if found is None:
        found = source.compile(architecture)
        _write(path, found)
    return found


def _read(path: Path) -> Binary | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    head = len(MAGIC) + DIGEST_BYTES
    body = data[head:]
    if data[: len(MAGIC)] != MAGIC or hashlib.sha256(body).digest() != data[len(MAGIC) : head]:
        return None
    facts, _, cubin = body.partition(b"\n")
    return Binary(cubin, **json.loads(facts))


def _write(path: Path, made: Binary) -> None:
    """Writes beside the entry and renames, so that a reader sees all of it or nothing. Without a writable folder
    nothing is kept.
    """
    facts = json.dumps({"symbol": made.symbol, "shared": made.shared, "threads": made.threads}).encode()
    body = facts + b"\n" + made.cubin
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        with os.fdopen(descriptor, "wb") as file:
            file.write(MAGIC + hashlib.sha256(body).digest() + body)
        os.replace(temporary, path)
    except OSError:
        return  # the kernel is in memory; `cache_status` of the object cache tells that the folder cannot be written
