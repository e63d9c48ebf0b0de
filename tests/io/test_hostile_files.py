"""Files cut anywhere or altered anywhere: an error in words, or an array; never another exception and never a crash."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import outlive.core as mx
from tests.budget import examples

ARRAYS = {
    "x": mx.arange(24, dtype=mx.int16).reshape(2, 3, 4),
    "weight": mx.ones((2, 8)),
    "flag": mx.array([True, False]),
}


def _saved(kind: str, folder: Path) -> bytes:
    path = folder / f"a.{kind}"
    if kind == "npy":
        mx.save(path, ARRAYS["x"])
    elif kind == "gguf":
        metadata = {"k": "text", "l": ["a", "b"], "n": mx.array([1, 2])}
        mx.save_gguf(path, {"x": ARRAYS["x"], "weight": ARRAYS["weight"]}, metadata)
    else:
        save = {"npz": lambda: mx.savez(path, **ARRAYS), "zip": lambda: mx.savez_compressed(path, **ARRAYS)}
        save.get(kind, lambda: mx.save_safetensors(path, ARRAYS, {"k": "v"}))()
        path = path if path.exists() else Path(f"{path}.npz")
    return path.read_bytes()


def _read_all(path: Path, kind: str) -> None:
    kind = {"zip": "npz"}.get(kind, kind)
    try:
        loaded: Any = mx.load(path, kind)
        mx.eval(loaded)
    except (RuntimeError, ValueError) as error:
        assert str(error).startswith("["), error  # noqa: PT017 - any of the two classes, in words of ours
    if kind == "gguf":
        return
    try:
        mx.eval(mx.load(io.BytesIO(path.read_bytes()), kind))
    except (RuntimeError, ValueError) as error:
        assert str(error).startswith("["), error  # noqa: PT017


KINDS = ("npy", "npz", "zip", "safetensors", "gguf")


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_cut_anywhere_is_refused_in_words(tmp_path: Path, kind: str) -> None:
    whole = _saved(kind, tmp_path)
    cut = tmp_path / "cut"
    for length in range(0, len(whole), 1 if len(whole) < 400 else 7):
        cut.write_bytes(whole[:length])
        with pytest.raises((RuntimeError, ValueError), match=r"^\["):
            mx.eval(mx.load(cut, {"zip": "npz"}.get(kind, kind)))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_altered_files_give_an_array_or_an_error_in_words(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    content = bytearray(_saved(kind, tmp_path))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    altered = tmp_path / "altered"
    altered.write_bytes(bytes(content))
    _read_all(altered, kind)


def _safetensors(header: Any, body: bytes = b"\0" * 64) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


@pytest.mark.parametrize(
    "content",
    [
        struct.pack("<Q", 1 << 62) + b"{}",
        _safetensors(b"[]"),
        _safetensors(b"[" * 100000),
        _safetensors({"__metadata__": {"a": 1}}),
        _safetensors({"a": {}}),
        _safetensors({"a": 3}),
        _safetensors({"a": {"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]}}),
        _safetensors({"a": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}),
        _safetensors({"a": {"dtype": "F32", "shape": [1 << 62, 8], "data_offsets": [0, 16]}}),
        _safetensors({"a": {"dtype": "F32", "shape": [4], "data_offsets": [16, 0]}}),
        _safetensors({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 17]}}),
        _safetensors({"a": {"dtype": "F32", "shape": [17], "data_offsets": [0, 68]}}),
        _safetensors({"a": {"dtype": "F99", "shape": [4], "data_offsets": [0, 16]}}),
        _safetensors({"a": {"dtype": "F32", "shape": 4, "data_offsets": [0, 16]}}),
    ],
)
def test_hostile_safetensors_headers_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(RuntimeError, match=r"^\[load\] .*a\.safetensors"):
        mx.load(tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1 << 3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8)}",
        "{'descr': '<f4', 'fortran_order': False}",
        "__import__('os').abort()",
        "{'descr': '|O', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<M8[s]', 'fortran_order': False, 'shape': (3,)}",
    ],
)
def test_hostile_npy_headers_are_refused(tmp_path: Path, header: str) -> None:
    text = header.encode() + b"\n"
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + b"\0" * 64)
    with pytest.raises((RuntimeError, ValueError), match=r"^\[load\] .*a\.npy"):
        mx.load(tmp_path / "a.npy")


def test_bytes_that_are_no_booleans_are_read_as_true(tmp_path: Path) -> None:
    mx.save(tmp_path / "a.npy", mx.zeros((4,), mx.bool_))
    content = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(content[:-2] + b"\x02\xff")
    assert np.array(mx.load(tmp_path / "a.npy")).view(np.uint8).tolist() == [0, 0, 1, 1]
