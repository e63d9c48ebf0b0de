"""Writing files so that they are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from outlive.io.errors import UserError


def replace_file(path: Path, content: bytes) -> None:
    """Put ``content`` in the place of ``path``. Whatever happens, ``path`` holds the old content or the new.

    Raises:
        UserError: if it cannot be written.
    """
    with replacing(path) as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of ``path`` when the block ends without an error.

    Raises:
        UserError: if it cannot be written.
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"cannot write {path}: {reason}; free some space or choose another place") from error
    finally:
        with contextlib.suppress(OSError):  # there is none when all went well
            partial.unlink()
