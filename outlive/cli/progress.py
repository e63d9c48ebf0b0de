"""Progress on standard error: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from outlive.cli.errors import say
from outlive.lm.progress import Advance, Progress


def make_progress() -> Progress:
    """Progress that suits standard error."""
    return TerminalProgress() if sys.stderr.isatty() else LineProgress()


def amount(count: int, unit: str) -> str:
    """``count`` of ``unit`` in words: bytes in MB, all else as it is."""
    return f"{count / 1e6:.1f} MB" if unit == "bytes" else f"{count} {unit}"


class LineProgress:
    """A line when a stage begins; nothing that redraws."""

    on_terminal = False

    @contextmanager
    def stage(self, title: str, total: int, unit: str) -> Iterator[Advance]:
        say(f"{title}: {amount(total, unit)}")
        yield lambda done: None

    def note(self, text: str) -> None:
        say(text)


class TerminalProgress:
    """A bar that disappears when its stage is done, so that only the text remains."""

    on_terminal = True

    @contextmanager
    def stage(self, title: str, total: int, unit: str) -> Iterator[Advance]:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        counts = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
        columns = (TextColumn("{task.description}"), BarColumn(), counts, TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
            task = bars.add_task(title, total=total)
            yield lambda done: bars.advance(task, done)

    def note(self, text: str) -> None:
        say(text)
