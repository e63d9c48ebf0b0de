"""A Python file as a program to check: run from its first line in every schedule, judged by what it prints and by its arrays."""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from outlive.check.surroundings import limited
from outlive.graph.array import array
from outlive.io.errors import UserError

LIMIT_SECONDS = 60
"""Real seconds that one schedule of a program file may take."""

_watching: list[ProgramFile] = []
_hooked: list[bool] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Notes what a program does that no schedule can take back."""
    if not _watching:
        return
    if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        _watching[-1].written.add(str(arguments[0]))
    elif event in ("subprocess.Popen", "os.fork", "socket.connect"):
        _watching[-1].reaches_outside.add(event)


class ProgramFile:
    """`path` with `arguments`. Calling it runs it; the result is what it printed, its exit status, and the arrays among its globals."""

    def __init__(self, path: str | Path, arguments: Sequence[str] = (), limit_seconds: float = LIMIT_SECONDS) -> None:
        self.path = Path(path)
        self.arguments = list(arguments)
        self.limit_seconds = limit_seconds
        self.written: set[str] = set()
        self.reaches_outside: set[str] = set()
        self.exits: set[str] = set()
        if not self.path.is_file():
            raise UserError(f"there is no program file {path}; give the path of a Python file")
        if not _hooked:
            _hooked.append(True)
            sys.addaudithook(_audit)

    @property
    def __name__(self) -> str:
        return " ".join([str(self.path), *self.arguments])

    def __call__(self) -> Any:
        printed = io.StringIO()
        status = ""
        values: dict[str, Any] = {}
        with self._as_main(), limited(self.limit_seconds), contextlib.redirect_stdout(printed):
            try:
                values = runpy.run_path(str(self.path), run_name="__main__")
            except SystemExit as left:
                status = repr(left.code)
                self.exits.add(status)
        arrays = {name: value for name, value in sorted(values.items()) if type(value) is array}
        values.clear()
        return [printed.getvalue(), status, arrays]

    @contextlib.contextmanager
    def _as_main(self) -> Iterator[None]:
        argv, path = sys.argv, list(sys.path)
        sys.argv = [str(self.path), *self.arguments]
        sys.path.insert(0, str(self.path.resolve().parent))
        _watching.append(self)
        try:
            yield
        finally:
            _watching.pop()
            sys.argv, sys.path[:] = argv, path

    def notes(self, threads: Sequence[str]) -> list[str]:
        """What the check can and cannot say about a program like this."""
        found = []
        if threads:
            found.append(
                f"The program started {len(threads)} threads of its own; they were scheduled too, and so were the locks and queues of "
                "`threading` and `queue`. A wait elsewhere (a socket, a child process) is not seen."
            )
        if self.written:
            found.append(f"The program wrote files in every schedule anew: {', '.join(sorted(self.written))}.")
        if self.reaches_outside:
            found.append(
                f"The program reached outside ({', '.join(sorted(self.reaches_outside))}): what happens there was not explored."
            )
        if self.exits:
            status = ", ".join(sorted(self.exits))
            found.append(f"The program ended by exiting (status {status}): its arrays at that point were not compared.")
        return found
