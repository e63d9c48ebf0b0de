"""The checker: programs and kernels under an adversary's schedules, and a report of what was found.

from outlive import check
report = check.program(fn)      # many schedules of a function that uses outlive.core
report = check.kernel(fn, grid, operands)   # one bare Triton or Numba kernel, without arrays of ours
"""

from __future__ import annotations

from outlive.backends.sim.profiles import PROFILES
from outlive.backends.sim.scheduler import Violation
from outlive.check.kernel import KernelReport, Out, kernel
from outlive.check.library import Report, program

__all__ = ["PROFILES", "KernelReport", "Out", "Report", "Violation", "kernel", "program"]
