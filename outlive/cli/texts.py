"""Text and messages from arguments, files and standard input."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from outlive.io.errors import UserError


def read_text(path: Path | None) -> str:
    """The text of a file, or of standard input for None.

    Raises:
        UserError: if it cannot be read or is no UTF-8.
    """
    where = "standard input" if path is None else str(path)
    try:
        raw = sys.stdin.buffer.read() if path is None else path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {where}: {(error.strerror or str(error)).lower()}; check the path") from error
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{where} is no UTF-8 text (byte {error.start}); convert it first") from error


def read_messages(path: Path) -> list[dict[str, Any]]:
    """A JSON list of objects with a ``role`` and, in most, a ``content``.

    Raises:
        UserError: if it cannot be read or has another form.
    """
    found = _read_list(path, "messages")
    for number, message in enumerate(found, 1):
        content = message.get("content")
        if not isinstance(message.get("role"), str) or not isinstance(content, str | list | None):
            raise UserError(f'{path}: message {number} is not like {{"role": "user", "content": "..."}}; correct it')
        if content is None and len(message) == 1:
            raise UserError(f"{path}: message {number} has no content; correct it")
    return found


def read_tools(path: Path) -> list[dict[str, Any]]:
    """A JSON list of objects that describe functions.

    Raises:
        UserError: if it cannot be read or has another form.
    """
    return _read_list(path, "tools")


def _read_list(path: Path, what: str) -> list[dict[str, Any]]:
    try:
        found = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is no JSON ({error}); correct it") from error
    if not isinstance(found, list) or not found or not all(isinstance(entry, dict) for entry in found):
        raise UserError(f"{path} is no list of {what} (JSON objects); correct it")
    return found
