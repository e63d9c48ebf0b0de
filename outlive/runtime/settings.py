"""The environment variables that Outlive reads: one table, from which `docs/settings.md` is made and to which a test holds the code."""

from __future__ import annotations

import os

VARIABLES = {
    "OUTLIVE_CAP_BUFFERS": "The largest number of buffers of each device (`memory.install_cap`).",
    "OUTLIVE_CAP_BYTES": "The hard memory cap of each device in bytes (`memory.install_cap`).",
    "OUTLIVE_CALIBRATION_REPORT": "Set by `outlive run --calibrate` for the runs it starts: the file that receives a run's peak.",
    "OUTLIVE_CPU_FEATURES": "The most that CPU kernels may use: `avx2`, `avx512`, `avx512vnni` or `amx`; for tests.",
    "OUTLIVE_DISABLE_COMPILE": "Not empty: `mx.compile` runs functions as they are written.",
    "OUTLIVE_DISABLE_DONATION": "Not empty: no op takes an input's buffer over.",
    "OUTLIVE_DISABLE_FUSION": "Not empty: compiled functions keep one kernel an op.",
    "OUTLIVE_DISABLE_KERNELS": "Not empty: the CPU runs reference kernels alone.",
    "OUTLIVE_NUM_THREADS": "Threads of the CPU's kernels; by default the processors that the process may use.",
}
"""Name and what it does."""


def is_set(name: str) -> bool:
    """Whether a variable of the table is set to something; raises KeyError for a name that the table lacks."""
    if name not in VARIABLES:
        raise KeyError(name)
    return bool(os.environ.get(name))
