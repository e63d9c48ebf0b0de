"""From errors to one sentence on standard error and an exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from outlive.io.errors import UserError

EXIT_ERROR = 1
EXIT_INTERRUPTED = 128 + 2  # what a shell reports for a process that SIGINT ended


def say(text: str) -> None:
    """One line on standard error."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def reported() -> Iterator[None]:
    """Report what a user can act on in one sentence, without a traceback; other exceptions are bugs and go through."""
    try:
        yield
    except UserError as error:
        say(f"outlive: {error}")
        raise typer.Exit(EXIT_ERROR) from None
    except KeyboardInterrupt:
        say("outlive: interrupted")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except BrokenPipeError:
        # The reader has gone. Python would flush standard output once more at exit and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(EXIT_ERROR) from None
    except RuntimeError as error:
        from outlive.runtime.errors import OutOfMemory  # arrays were in use, so it is loaded already

        if not isinstance(error, OutOfMemory):
            raise
        first_line = str(error).partition("\n")[0].rstrip(".:; ")
        say(f"outlive: memory does not suffice: {first_line}; use a smaller model or prompt, or a machine with more")
        raise typer.Exit(EXIT_ERROR) from None
