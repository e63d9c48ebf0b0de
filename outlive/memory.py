"""A hard memory cap, and one coherent reading of where memory is.

The ledger of a device counts every byte that the device holds for this process. A reservation precedes each allocation and the refund
follows the real release, so the cap holds for pending allocations too. MLX's soft limits (`mx.set_memory_limit`, `mx.set_cache_limit`)
stand beside it: they only trim what is cached.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from outlive.graph.state import Device as Device
from outlive.graph.state import DeviceType, backend, default_device, runtime
from outlive.runtime.errors import OutOfMemory
from outlive.runtime.ledger import CATEGORIES

__all__ = ["OutOfMemory", "Snapshot", "install_cap", "snapshot"]


def install_cap(nbytes: int, buffers: int | None = None, device: Device | DeviceType | None = None) -> None:
    """Install the hard cap of a device: at most `nbytes` bytes and `buffers` buffers, for the life of the process.

    It covers what the device backs (arrays, cache, work in flight, pinned memory, graphs, library workspaces), not the whole process, and
    not files that are mapped read-only. It can be installed once, before the first attempt to allocate (a failed attempt counts); until
    then it replaces the automatic default. Raises ValueError for a cap that is not positive, RuntimeError when it is too late or a cap is
    installed already.
    """
    made = _backend(device)
    with runtime.lock:
        made.ledger.install(int(nbytes), None if buffers is None else int(buffers))
        made.allocator.limit_cached = min(made.allocator.limit_cached, made.ledger.cap)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One reading of a device's ledger; all in bytes unless said otherwise.

    `live`: owned by arrays. `quarantined`: released, their last work not complete. `cached`: free for reuse. `reserved`: set aside for an
    allocation that is under way. `pinned`, `workspace`, `graphs`, `rings`, `libraries`: what streams and libraries hold. Their sum is
    `allocated`, which never passes `cap`. `mapped`: files mapped read-only, outside the cap. `buffers`, `cap_buffers`: numbers of blocks.
    `largest`: (bytes, place in the program) of the largest live buffers of a mebibyte or more.
    """

    live: int
    reserved: int
    quarantined: int
    cached: int
    pinned: int
    workspace: int
    graphs: int
    rings: int
    libraries: int
    mapped: int
    allocated: int
    cap: int
    buffers: int
    cap_buffers: int
    peak_live: int
    peak_allocated: int
    largest: tuple[tuple[int, str], ...]

    def __str__(self) -> str:
        rows = [f"{name:12} {getattr(self, name):>18,}" for name in CATEGORIES if getattr(self, name)]
        rows.append(
            f"{'allocated':12} {self.allocated:>18,}  of {self.cap:,} bytes, {self.buffers:,} of {self.cap_buffers:,} buffers"
        )
        rows += [f"  {size:>16,} made at {where}" for size, where in self.largest]
        return "\n".join(rows)


def snapshot(device: Device | DeviceType | None = None) -> Snapshot:
    """A coherent reading of a device's ledger (None: the default device), after what was posted has arrived."""
    made = _backend(device)
    ledger = made.ledger
    with runtime.lock:
        if runtime.mailbox:
            runtime.drain()
        return Snapshot(
            **{name: getattr(ledger, name) for name in CATEGORIES},
            mapped=ledger.mapped,
            allocated=ledger.allocated,
            cap=ledger.cap,
            buffers=ledger.blocks,
            cap_buffers=ledger.cap_blocks,
            peak_live=ledger.peak_live,
            peak_allocated=ledger.peak_allocated,
            largest=tuple(made.allocator.largest()),
        )


def _backend(device: Device | DeviceType | None) -> Any:
    from outlive.graph.state import as_device

    return backend(default_device() if device is None else as_device(device))
