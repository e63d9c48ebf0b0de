"""What the host's processor can do: read once, and maskable by OUTLIVE_CPU_FEATURES for tests of the lesser routes."""

from __future__ import annotations

import ctypes
import functools
import os
from dataclasses import dataclass

import llvmlite.binding as llvm

LEVELS = {
    "avx2": ("x86-64-v3", ""),
    "avx512": ("x86-64-v4", ""),
    "avx512vnni": ("x86-64-v4", "+avx512vnni"),
    "amx": ("x86-64-v4", "+avx512vnni,+amx-tile,+amx-int8,+amx-bf16"),
}
"""Values of OUTLIVE_CPU_FEATURES, and the LLVM processor and extra features each compiles for."""

_AMX = ("amx-tile", "amx-int8", "amx-bf16")


@dataclass(frozen=True)
class CpuFeatures:
    """The processor that kernels are compiled for.

    cpu, flags: LLVM's processor name and feature string. vector: whether compiled kernels are served at all
    (x86-64 with AVX2, FMA and F16C, or aarch64). avx2: x86-64's vectors of 32 bytes. avx512: 512-bit vectors with
    byte and word operations. vnni: 512-bit integer dot products. amx: tile registers with products
    of bytes and of bfloat16, granted to this process.
    reason: one sentence on what the processor lacks, for `outlive doctor`; empty when it lacks nothing.
    """

    cpu: str
    flags: str
    vector: bool
    avx2: bool
    avx512: bool
    vnni: bool
    amx: bool
    reason: str


def _host_flags() -> dict[str, bool]:
    return {name: bool(on) for name, on in llvm.get_host_cpu_features().items()}


def _level_missing(level: str, flags: dict[str, bool]) -> bool:
    needed = {"avx2": ("avx2", "fma", "f16c"), "avx512": ("avx512f", "avx512bw", "avx512vl", "avx512dq")}
    names = needed["avx2"] + (needed["avx512"] if level != "avx2" else ())
    names += ("avx512vnni",) if level in ("avx512vnni", "amx") else ()
    names += _AMX if level == "amx" else ()
    return not all(flags.get(name, False) for name in names)


def _tiles_granted() -> bool:
    """Asks the kernel for the tile registers, which a process must do once before any of its threads uses them."""
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    return ctypes.CDLL(None, use_errno=True).syscall(arch_prctl, request_permission, tile_data) == 0


@functools.cache
def features() -> CpuFeatures:
    """The feature set of this process, read at the first call.

    Raises ValueError when OUTLIVE_CPU_FEATURES names no known level or one that this processor cannot run.
    """
    flags = _host_flags()
    triple = llvm.get_process_triple()
    level = os.environ.get("OUTLIVE_CPU_FEATURES", "")
    if level:
        if level not in LEVELS:
            raise ValueError(f"OUTLIVE_CPU_FEATURES={level!r} is not one of {', '.join(LEVELS)}; correct or unset it")
        if _level_missing(level, flags):
            raise ValueError(f"OUTLIVE_CPU_FEATURES={level!r} asks for more than this processor has; unset it")
        cpu, extra = LEVELS[level]
        vnni, amx = level in ("avx512vnni", "amx"), level == "amx" and _tiles_granted()
        return CpuFeatures(
            cpu, extra, True, True, level != "avx2", vnni, amx, f"OUTLIVE_CPU_FEATURES limits kernels to {level}"
        )
    text = ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(flags.items()))
    if triple.startswith("aarch64"):
        return CpuFeatures(llvm.get_host_cpu_name(), text, True, False, False, False, False, "")
    vector = triple.startswith("x86_64") and not _level_missing("avx2", flags)
    avx512 = vector and not _level_missing("avx512", flags)
    vnni = vector and not _level_missing("avx512vnni", flags)
    reason = "" if avx512 else "the processor has no AVX-512: products take the AVX2 route"
    if not vector:
        reason = "the processor has no AVX2, FMA and F16C: every op takes its reference kernel"
    amx = vnni and all(flags.get(name, False) for name in _AMX) and _tiles_granted()
    return CpuFeatures(llvm.get_host_cpu_name(), text, vector, vector, avx512, vnni, amx, reason)
