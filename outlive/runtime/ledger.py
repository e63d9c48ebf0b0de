"""The ledger of a device's memory: what is reserved, live, quarantined, cached and held otherwise never passes the cap.

Every change happens under the runtime's lock, so a reading is coherent. A reservation precedes each driver allocation; the refund follows
the driver's release, once.
"""

from __future__ import annotations

from outlive.runtime.errors import OutOfMemory

CATEGORIES = ("live", "reserved", "quarantined", "cached", "pinned", "workspace", "graphs", "rings", "libraries")
"""The rows of the ledger that count against the cap, in bytes."""

LIMIT_BUFFERS = 1 << 24
"""Blocks that a device may hold unless a smaller cap is installed."""


class CapExceeded(Exception):
    """Internal: a reservation does not fit."""


class Ledger:
    """Bytes by category, number of blocks, high-water marks, and the cap."""

    __slots__ = (
        *CATEGORIES, "allocated", "attempted", "blocks", "cap", "cap_blocks", "installed", "mapped", "peak_allocated", "peak_live",
    )  # fmt: skip

    def __init__(self, cap: int, cap_blocks: int = LIMIT_BUFFERS) -> None:
        for name in CATEGORIES:
            setattr(self, name, 0)
        self.cap = cap
        self.cap_blocks = cap_blocks
        self.installed = False
        self.attempted = False
        self.allocated = 0
        self.blocks = 0
        self.mapped = 0
        self.peak_live = 0
        self.peak_allocated = 0

    live: int
    reserved: int
    quarantined: int
    cached: int
    pinned: int
    workspace: int
    graphs: int
    rings: int
    libraries: int

    def install(self, cap: int, cap_blocks: int | None = None) -> None:
        """Install the cap, once, before the first allocation attempt; raises RuntimeError afterwards, ValueError for a cap below 1."""
        if cap <= 0 or (cap_blocks is not None and cap_blocks <= 0):
            raise ValueError(f"[install_cap] A cap must be positive; got {cap} bytes and {cap_blocks} buffers.")
        if self.installed:
            raise RuntimeError(f"[install_cap] A cap of {self.cap} bytes is installed already; it cannot be changed.")
        if self.attempted:
            raise RuntimeError("[install_cap] Memory was asked for already; install the cap before the first array.")
        self.cap, self.installed = cap, True
        if cap_blocks is not None:
            self.cap_blocks = cap_blocks

    def reserve(self, nbytes: int) -> None:
        """Set bytes and one block aside before the driver is asked; raises CapExceeded when they do not fit."""
        self.attempted = True
        if self.allocated + nbytes > self.cap or self.blocks >= self.cap_blocks:
            raise CapExceeded
        self.allocated += nbytes
        self.reserved += nbytes
        self.blocks += 1

    def refund(self, nbytes: int, category: str) -> None:
        """Give back bytes and one block, after the driver released them (or never gave them)."""
        setattr(self, category, getattr(self, category) - nbytes)
        self.allocated -= nbytes
        self.blocks -= 1

    def settle(self, nbytes: int, category: str = "live") -> None:
        """The driver gave what was reserved: it counts under `category` from here on."""
        self.reserved -= nbytes
        setattr(self, category, getattr(self, category) + nbytes)
        if self.live > self.peak_live:
            self.peak_live = self.live
        if self.allocated > self.peak_allocated:
            self.peak_allocated = self.allocated

    def refusal(self, nbytes: int, device: str, holders: str) -> OutOfMemory:
        """The exception for a request that cannot be served, with what holds the memory."""
        parts = ", ".join(f"{name} {getattr(self, name):,}" for name in CATEGORIES if getattr(self, name))
        return OutOfMemory(
            f"[allocate] {nbytes:,} bytes do not fit on {device}: {self.allocated:,} of {self.cap:,} bytes and {self.blocks:,} of "
            f"{self.cap_blocks:,} buffers are taken ({parts or 'nothing held'}).{holders} Free arrays or raise the cap."
        )
