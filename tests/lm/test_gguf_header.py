"""The check of a GGUF file's header: what is right is read, and every lie is refused before it is believed."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.io.errors import FileFormatError
from outlive.io.gguf_header import Header, read_header
from tests.lm import raw_gguf as raw


def read(data: bytes) -> Header:
    return read_header(data, "model.gguf")


def test_reads_metadata_and_places_tensors():
    data = raw.with_changes()
    header = read(data)
    assert header.metadata == {"general.architecture": "llama", "a.number": 7, "a.list": ["x", "yz"]}
    first, second = header.tensors["first"], header.tensors["second"]
    assert (first.shape, first.nbytes, second.shape, second.nbytes) == ((3, 4), 48, (32,), 34)
    assert data[first.offset : first.offset + 4] == bytes([0, 1, 2, 3])
    assert second.offset == first.offset + 64


def test_reads_every_kind_of_value():
    values = {
        0: ("<B", 250), 1: ("<b", -5), 2: ("<H", 65000), 3: ("<h", -300), 4: ("<I", 4_000_000_000), 5: ("<i", -70_000),
        6: ("<f", 0.5), 7: ("<?", True), 10: ("<Q", 1 << 63), 11: ("<q", -(1 << 40)), 12: ("<d", 0.1),
    }  # fmt: skip
    entries = [raw.entry(f"k{kind}", kind, struct.pack(code, value)) for kind, (code, value) in values.items()]
    entries += [
        raw.entry(f"a{kind}", raw.ARRAY, raw.array(kind, 2, struct.pack(code, value) * 2))
        for kind, (code, value) in values.items()
    ]
    header = read(raw.with_changes(entries=entries))
    for kind, (_, value) in values.items():
        assert header.metadata[f"k{kind}"] == value
        assert header.metadata[f"a{kind}"].tolist() == [value, value]


def test_reads_nested_and_empty_arrays():
    inner = raw.array(raw.UINT8, 3, b"\1\2\3")
    entries = [
        raw.entry("nested", raw.ARRAY, raw.array(raw.ARRAY, 2, inner + inner)),
        raw.entry("none", raw.ARRAY, raw.array(raw.STRING, 0, b"")),
    ]
    metadata = read(raw.with_changes(entries=entries)).metadata
    np.testing.assert_array_equal(metadata["nested"], [[1, 2, 3], [1, 2, 3]])
    assert metadata["none"] == []


def test_follows_the_alignment_that_the_file_states():
    entries = [raw.entry("general.alignment", raw.UINT32, struct.pack("<I", 128))]
    header = read(
        raw.with_changes(entries=entries, tensors=[raw.tensor("t", (4,), raw.F32, 128)], alignment=128, data=bytes(256))
    )
    assert header.tensors["t"].offset % 128 == 0


HUGE = 1 << 62
LIES = {
    "magic": ({"magic": b"GGML"}, "instead of b'GGUF'"),
    "version 1": ({"version": 1}, "version is 1"),
    "big-endian": ({"version": 3 << 24}, "big-endian"),
    "tensor count": ({"tensor_count": HUGE}, f"claims {HUGE} tensors"),
    "entry count": ({"entry_count": HUGE}, f"claims {HUGE} metadata entries"),
    "one tensor too many": ({"tensor_count": 3, "data": b""}, "empty"),
    "key length": ({"entries": [raw.text("k", HUGE)]}, "claims 4611686018427387904 bytes"),
    "empty key": ({"entries": [raw.entry("", raw.UINT8, b"\1")]}, "empty"),
    "key encoding": ({"entries": [raw.entry(b"\xff\xfe", raw.UINT8, b"\1")]}, "not UTF-8"),
    "key twice": ({"entries": [raw.entry("k", raw.UINT8, b"\1")] * 2}, "'k' appears twice"),
    "value type": ({"entries": [raw.entry("k", 13, b"")]}, "unknown type 13"),
    "text length": ({"entries": [raw.entry("k", raw.STRING, raw.text("v", HUGE))]}, "truncated"),
    "text encoding": ({"entries": [raw.entry("k", raw.STRING, raw.text(b"\x80"))]}, "not UTF-8"),
    "array length": ({"entries": [raw.entry("k", raw.ARRAY, raw.array(raw.UINT8, HUGE, b""))]}, "more than its"),
    "texts length": ({"entries": [raw.entry("k", raw.ARRAY, raw.array(raw.STRING, HUGE, b""))]}, "more than its"),
    "text in array": (
        {"entries": [raw.entry("k", raw.ARRAY, raw.array(raw.STRING, 2, raw.text("a") + raw.text("b", HUGE)))]},
        "behind the file's end",
    ),
    "text in array encoding": (
        {"entries": [raw.entry("k", raw.ARRAY, raw.array(raw.STRING, 1, raw.text(b"\xc3")))]},
        "not UTF-8",
    ),
    "array element type": ({"entries": [raw.entry("k", raw.ARRAY, raw.array(99, 1, b"\0"))]}, "unknown type 99"),
    "array depth": (
        {"entries": [raw.entry("k", raw.ARRAY, raw.array(raw.ARRAY, 1, b"") * 50 + raw.array(raw.UINT8, 0, b""))]},
        "deep",
    ),
    "alignment zero": ({"entries": [raw.entry("general.alignment", raw.UINT32, bytes(4))]}, "power of two"),
    "alignment 48": ({"entries": [raw.entry("general.alignment", raw.UINT32, struct.pack("<I", 48))]}, "power of two"),
    "alignment text": ({"entries": [raw.entry("general.alignment", raw.STRING, raw.text("32"))]}, "power of two"),
    "alignment huge": (
        {"entries": [raw.entry("general.alignment", raw.UINT64, struct.pack("<Q", 1 << 40))]},
        "power of two",
    ),
    "dimensions": ({"tensors": [raw.tensor("t", (), raw.F32, 0, dimensions=1 << 31)]}, "dimensions"),
    "shape product": ({"tensors": [raw.tensor("t", (1 << 40, 1 << 40), raw.F32, 0)]}, "would end at byte"),
    "shape wraps around": ({"tensors": [raw.tensor("t", (1 << 32, 1 << 32), raw.F32, 0)]}, "would end at byte"),
    "shape zero": ({"tensors": [raw.tensor("t", (4, 0), raw.F32, 0)]}, "without any element"),
    "tensor type": ({"tensors": [raw.tensor("t", (4,), 4, 0)]}, "has the type 4"),
    "tensor type huge": ({"tensors": [raw.tensor("t", (4,), 1 << 31, 0)]}, "has the type"),
    "row not in blocks": ({"tensors": [raw.tensor("t", (33,), raw.Q4_0, 0)]}, "blocks of 32"),
    "scalar of blocks": ({"tensors": [raw.tensor("t", (), raw.Q4_0, 0)]}, "blocks of 32"),
    "offset outside": ({"tensors": [raw.tensor("t", (4,), raw.F32, 1 << 20)]}, "would end at byte"),
    "offset wraps around": ({"tensors": [raw.tensor("t", (4,), raw.F32, (1 << 64) - 32)]}, "would end at byte"),
    "offset unaligned": ({"tensors": [raw.tensor("t", (4,), raw.F32, 4)]}, "not a multiple of 32"),
    "one byte past the end": (
        {"tensors": [raw.tensor("t", (33,), raw.F32, 0)], "data": bytes(131)},
        "would end at byte",
    ),
    "overlap": (
        {"tensors": [raw.tensor("a", (16,), raw.F32, 0), raw.tensor("b", (4,), raw.F32, 32)]},
        "'a' and 'b' overlap",
    ),
    "same place": ({"tensors": [raw.tensor("a", (4,), raw.F32, 32), raw.tensor("b", (4,), raw.F32, 32)]}, "overlap"),
    "tensor twice": (
        {"tensors": [raw.tensor("a", (4,), raw.F32, 0), raw.tensor("a", (4,), raw.F32, 32)]},
        "'a' appears twice",
    ),
    "tensor name": ({"tensors": [raw.tensor("", (4,), raw.F32, 0)]}, "empty"),
}


@pytest.mark.parametrize(("changes", "complaint"), LIES.values(), ids=LIES.keys())
def test_refuses_a_lie_in_one_sentence(changes, complaint):
    with pytest.raises(FileFormatError) as caught:
        read(raw.with_changes(**changes))
    message = str(caught.value)
    assert message.startswith("model.gguf is not a usable GGUF file: ")
    assert complaint in message
    assert "\n" not in message


def test_refuses_every_truncation():
    data = raw.with_changes()
    data = data[: read(data).tensors["second"].offset + 34]
    read(data)
    for length in range(len(data)):
        with pytest.raises(FileFormatError):
            read(data[:length])


def test_refusing_huge_counts_takes_no_memory():
    data = raw.with_changes(entries=[raw.entry("k", raw.ARRAY, raw.array(raw.STRING, 1 << 60, b""))])
    tracemalloc.start()
    with pytest.raises(FileFormatError):
        read(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


@given(st.data())
def test_any_damage_is_read_or_refused(data):
    """No other exception and no read outside, whatever a few bytes are changed to."""
    content = bytearray(raw.with_changes())
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(content) - 1))
        content[position] = data.draw(st.integers(0, 255))
    try:
        header = read(bytes(content))
    except FileFormatError:
        return
    for info in header.tensors.values():
        assert 0 <= info.offset <= info.offset + info.nbytes <= len(content)
