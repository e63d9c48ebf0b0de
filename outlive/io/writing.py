"""Where a file is written: a file object of the caller's, or a path, whose old content stays until the new is complete."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from outlive.io.errors import UserError


def with_suffix(path: str | os.PathLike[str], suffix: str) -> str:
    """`path`, with `suffix` (such as ".npy") added where it does not end in it."""
    text = os.fspath(path)
    return text if text.endswith(suffix) else text + suffix


@contextmanager
def written(file: Any, suffix: str) -> Iterator[IO[bytes]]:
    """A binary file to write to: `file` itself where it has `write`, else one that replaces the path `file` at the end.

    An error inside leaves the path as it was. Raises UserError where the path cannot be written.
    """
    if hasattr(file, "write"):
        yield file
        return
    with replaced(with_suffix(file, suffix)) as path, open(path, "wb") as made:
        yield made


@contextmanager
def replaced(path: str) -> Iterator[Path]:
    """The path of a fresh file in the same folder, which takes the place of `path` unless an error leaves the block."""
    target = Path(os.path.realpath(path))  # a link keeps pointing to what it names
    try:
        if target.exists() and not target.is_file():
            yield target  # a device or a pipe: there is nothing to replace
            return
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        os.close(descriptor)
        made = Path(name)
        try:
            yield made
            _take_permissions(made, target)
            made.replace(target)
        finally:
            made.unlink(missing_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"Cannot write {path}: {reason}; check the folder and its permissions.") from error


def _take_permissions(made: Path, target: Path) -> None:
    """Those of the file that is replaced; else what open() would have given, since temporary files are private."""
    if target.exists():
        shutil.copymode(target, made)
        return
    mask = os.umask(0)
    os.umask(mask)
    made.chmod(0o666 & ~mask)
