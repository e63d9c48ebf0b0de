"""What long work says about itself while it runs; the command line shows it, a library call is silent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

Advance = Callable[[int], None]


class Progress(Protocol):
    """Receives stages with a known amount of work, and single notes.

    ``on_terminal`` says whether a child process may draw its own progress on standard error.
    """

    on_terminal: bool

    def stage(self, title: str, total: int, unit: str) -> AbstractContextManager[Advance]:
        """A context manager around work of ``total`` units; it gives a function that adds what has been done."""
        ...

    def note(self, text: str) -> None:
        """One line that a user should see, such as a tensor type that had to be decoded."""
        ...


class Silent:
    """Progress that nobody watches."""

    on_terminal = False

    @contextmanager
    def stage(self, title: str, total: int, unit: str) -> Iterator[Advance]:
        yield lambda done: None

    def note(self, text: str) -> None:
        pass
