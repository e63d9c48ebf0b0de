"""The parent's end of the reference: starts the child, sends batches, reports and survives its crashes."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from tests.reference.environment import ReferenceUnavailableError, reference_python
from tests.reference.wire import Call, Crashed, Outcome, Program, Request, receive, send

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60.0

__all__ = ["Reference", "ReferenceUnavailableError"]


class Reference:
    """The reference implementation as a long-lived child process.

    The child starts on the first request and again after a crash. One thread uses it at a time. ``python`` is an
    interpreter that can import the reference; the default is made and kept by :mod:`tests.reference.environment`.
    """

    def __init__(self, python: Path | None = None, seconds: float = 60.0):
        self.seconds = seconds
        self._python = python
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: BinaryIO
        self._outcomes: BinaryIO
        self._errors: BinaryIO
        self.starts = 0

    def call(self, name: str, *args: Any, **kwargs: Any) -> Outcome:
        """Call one function of the reference's namespace by its dotted name."""
        return self.batch([Call(name, args, kwargs)])[0]

    def run(self, text: str, **inputs: Any) -> Outcome:
        """Run statements that see ``mx``, ``np`` and the inputs, and leave their result in ``out``."""
        return self.batch([Program(text, inputs)])[0]

    def batch(self, requests: Sequence[Request]) -> list[Outcome]:
        """Perform requests in order in one exchange; an outcome each.

        When the child dies in a batch, its requests are sent again one by one, so that the one which kills it is told
        from its neighbours. Requests therefore must not depend on each other.
        """
        outcomes = self._exchange(list(requests))
        if isinstance(outcomes, list):
            return outcomes
        if len(requests) == 1:
            return [outcomes]
        return [self.batch([request])[0] for request in requests]

    def close(self) -> None:
        """End the child; a later request starts a fresh one."""
        if self._process is None:
            return
        process, self._process = self._process, None
        for pipe in (self._requests, self._outcomes):
            try:
                pipe.close()
            except BrokenPipeError:
                pass  # the child died with unread bytes in the pipe: nothing is left to tell it
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._errors.close()

    def __enter__(self) -> Reference:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> subprocess.Popen[bytes]:
        python = self._python = self._python or reference_python()
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the child
        try:
            self._process = subprocess.Popen(
                [str(python), "-m", "tests.reference.server", str(theirs_in), str(theirs_out)],
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                cwd=ROOT,
                pass_fds=(theirs_in, theirs_out),
                env=_clean_environment(),
            )
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        self._requests, self._outcomes = os.fdopen(ours_out, "wb"), os.fdopen(ours_in, "rb")
        self.starts += 1
        answer = self._answer([], START_SECONDS)
        if isinstance(answer, Crashed):
            raise ReferenceUnavailableError(f"[reference] {python} does not serve: {answer.how}")
        return self._process

    def _exchange(self, requests: list[Request]) -> list[Outcome] | Crashed:
        if self._process is None:
            self._start()
        return self._answer(requests, self.seconds)

    def _answer(self, requests: list[Request], seconds: float) -> list[Outcome] | Crashed:
        try:
            send(self._requests, requests)
            if not _readable(self._outcomes, seconds):
                return self._crashed(f"no answer in {seconds:g} s")
            return receive(self._outcomes)
        except (EOFError, BrokenPipeError):
            return self._crashed(None)

    def _crashed(self, how: str | None) -> Crashed:
        assert self._process is not None
        if how is not None:
            self._process.kill()
        status = self._process.wait()
        if how is None:
            how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        self._errors.seek(0)
        last = b"\n".join(self._errors.read().splitlines()[-5:]).decode(errors="replace")
        self.close()
        return Crashed(f"{how}: {last}" if last else how)


def _readable(pipe: BinaryIO, seconds: float) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        return bool(selector.select(seconds))


def _clean_environment() -> dict[str, str]:
    """Ours without what would make the child import from our environment."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
