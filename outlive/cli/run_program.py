"""``outlive run``: a Python program with Outlive's default device set."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from outlive.cli.calibrate import report_peak
from outlive.io.errors import UserError


def check_program(program: str) -> None:
    """Refuse a path that is no file.

    Raises:
        UserError: if there is no such file.
    """
    if not Path(program).is_file():
        raise UserError(f"there is no program file {program}; give the path of a Python file")


def check_writable(path: Path) -> None:
    """Refuse a file that could not be written after the program ran.

    Raises:
        UserError: if the folder does not exist, or the place cannot be written.
    """
    if not path.parent.is_dir() or path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UserError(f"the timeline cannot be written to {path}; name a file in a folder that you may write to")


def run_program(program: str, arguments: Sequence[str]) -> int:
    """Run the file ``program`` as ``__main__``, as ``python PROGRAM ARG ...`` does; returns the exit status.

    An exception is reported as Python reports it, from the program's own first line on. ``SystemExit`` goes through.
    """
    sys.argv = [program, *arguments]
    sys.path.insert(0, str(Path(program).resolve().parent))
    try:
        runpy.run_path(program, run_name="__main__")
    except Exception as error:  # noqa: BLE001  the program's exceptions are reported in full, and the status says so
        own = _from_program(error.__traceback__, program)
        sys.excepthook(type(error), error.with_traceback(own), own)
        return 1
    finally:
        report_peak()
    return 0


def _from_program(trace: TracebackType | None, program: str) -> TracebackType | None:
    """The part of a traceback that begins in the program (all of it for a program that does not even compile)."""
    own = trace
    while own is not None and own.tb_frame.f_code.co_filename != program:
        own = own.tb_next
    return own or trace
