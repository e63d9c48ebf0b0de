"""Model files as memory maps that give pages back once they were read."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path

from outlive.io.errors import FileFormatError, UserError


def map_file(path: Path, kind: str) -> mmap.mmap:
    """``path`` as a read-only map; ``kind`` says in errors what it should be, such as "a GGUF file".

    Raises:
        UserError: if it cannot be opened or is no regular file.
        FileFormatError: if it is empty.
    """
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UserError(f"{path} is not a regular file; name {kind}")
            if status.st_size == 0:
                raise FileFormatError(f"{path} is empty, not {kind}; get the file anew")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"cannot open the model file {path}: {reason}; check the path and its permissions") from error


def release_pages(mapped: mmap.mmap, offset: int, nbytes: int) -> None:
    """Drop the pages that lie wholly inside the range; they would be read again from the file."""
    page = mmap.PAGESIZE
    begin = -(-offset // page) * page
    end = (offset + nbytes) // page * page
    if end > begin:
        mapped.madvise(mmap.MADV_DONTNEED, begin, end - begin)


def _open_without_waiting(path: str, flags: int) -> int:
    # A named pipe would make open() wait for a writer that may never come; O_NONBLOCK means nothing for regular files.
    return os.open(path, flags | os.O_NONBLOCK)
