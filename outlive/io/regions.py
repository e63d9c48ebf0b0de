"""Bytes that are read later: a part of an open file, or a member of a zip archive, into memory that the caller gives.

Reading names a place and moves no file position, so threads and forked children may share a file. A file stays open as
long as any of its regions is left: removing or replacing it on disk meanwhile changes nothing.
"""

from __future__ import annotations

import lzma
import os
import stat
import zipfile
import zlib
from typing import Any

from outlive.io.errors import FileFormatError, UserError

LIMIT_OPEN_FILES = 256
"""Files that regions keep open before `crowded` asks for reading at once."""

READ_BYTES_MAX = 1 << 30  # the system's own limit of one call lies just below 2 GiB
CHUNK_BYTES = 1 << 18

# What a damaged archive makes zipfile raise; RuntimeError is said of encrypted members.
ARCHIVE_ERRORS = (
    OSError, EOFError, ValueError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error, lzma.LZMAError,
)  # fmt: skip


class OpenFile:
    """A regular file, open for reading until nobody refers to it.

    Attributes: `path`, `size` in bytes when it was opened. Raises UserError for what is not there, not readable, or not
    a regular file.
    """

    __slots__ = ("_descriptor", "path", "size")
    count = 0

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._descriptor = -1
        self.path = os.fspath(path)
        try:
            # A named pipe would make open() wait for a writer; O_NONBLOCK means nothing for regular files.
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            status = os.fstat(self._descriptor)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise UserError(f"Cannot open {self.path}: {reason}; check the path and its permissions.") from error
        OpenFile.count += 1
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"{self.path} is not a regular file; name a file, or pass an open file object.")
        self.size = status.st_size

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            OpenFile.count -= 1

    def read(self, offset: int, nbytes: int) -> bytes:
        """At most `nbytes` bytes from `offset`."""
        return os.pread(self._descriptor, nbytes, offset)

    def read_into(self, target: memoryview, offset: int) -> None:
        """Fill `target`; raises FileFormatError where the file ends before."""
        done = 0
        while done < len(target):
            count = os.preadv(self._descriptor, [target[done : done + READ_BYTES_MAX]], offset + done)
            if not count:
                raise FileFormatError(
                    f"{self.path} ends at byte {offset + done}, where {len(target) - done} more were there when it was "
                    "opened; get the file anew."
                )
            done += count


def crowded() -> bool:
    """Whether so many files are open that another one should be read at once."""
    return OpenFile.count >= LIMIT_OPEN_FILES


class FileRegion:
    """Bytes from `offset` on of a file."""

    __slots__ = ("file", "offset")

    def __init__(self, file: OpenFile, offset: int) -> None:
        self.file = file
        self.offset = offset

    @property
    def where(self) -> str:
        """The file's path."""
        return self.file.path

    def read_into(self, target: memoryview) -> None:
        """Fill `target`."""
        self.file.read_into(target, self.offset)


class ZipRegion:
    """Bytes from `offset` on of a member of an archive, whose checksum is verified as it is read to its end."""

    __slots__ = ("archive", "member", "offset")

    def __init__(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo, offset: int) -> None:
        self.archive = archive
        self.member = member
        self.offset = offset

    @property
    def where(self) -> str:
        """The member's name in its archive."""
        return f"{self.member.filename} of {self.archive.filename}"

    def read_into(self, target: memoryview) -> None:
        """Fill `target`; raises FileFormatError for a member that is cut or corrupt."""
        try:
            with self.archive.open(self.member) as stream:
                _skip(stream, self.offset)
                done = 0
                while done < len(target) and (piece := stream.read(min(CHUNK_BYTES, len(target) - done))):
                    target[done : done + len(piece)] = piece
                    done += len(piece)
                # Reading past the end makes the archive compare the checksum.
                whole = done == len(target) and not stream.read(1)
        except ARCHIVE_ERRORS as error:
            raise FileFormatError(f"{self.where} cannot be read ({error}); get the file anew.") from error
        if not whole:
            raise FileFormatError(f"{self.where} does not hold the elements that its header claims; get the file anew.")


def _skip(stream: Any, nbytes: int) -> None:
    while nbytes and (piece := stream.read(min(CHUNK_BYTES, nbytes))):
        nbytes -= len(piece)
