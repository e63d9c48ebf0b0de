"""Tensors from GGUF files: the values are the file's own, whatever the type, and memory stays bounded."""

from __future__ import annotations

import os
import re
import struct

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind

from outlive.io.errors import FileFormatError, UserError
from outlive.io.gguf import DenseTensor, GGUFFile
from outlive.io.gguf_blocks import AffineTensor
from tests.lm import raw_gguf as raw

AFFINE_BITS = {Kind.Q4_0: 4, Kind.Q4_1: 4, Kind.Q8_0: 8}


def write(path, kind: Kind, blocks: np.ndarray, shape: tuple[int, ...]):
    """A file with one tensor of ``shape`` made of ``blocks`` (uint8, one row a block)."""
    writer = gguf.GGUFWriter(path, "llama")
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    data = blocks.reshape(*shape[:-1], shape[-1] // block * block_bytes)
    writer.add_tensor("t", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def random_blocks(kind: Kind, count: int, seed: int) -> np.ndarray:
    """Blocks of any bytes, with float16 scales that are finite."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (count, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8)
    scales = rng.normal(0, 1, (count, 2)).astype(np.float16).view(np.uint8)
    scale_bytes = 4 if kind == Kind.Q4_1 else 2
    blocks[:, :scale_bytes] = scales[:, :scale_bytes]
    return blocks


def unpack(words: np.ndarray, bits: int) -> np.ndarray:
    """The unsigned numbers packed in 32-bit words, the lowest bits first."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    return ((words[..., None] >> shifts) & ((1 << bits) - 1)).reshape(*words.shape[:-1], -1)


def values(tensor: AffineTensor) -> np.ndarray:
    quants = unpack(tensor.weight, tensor.bits).reshape(*tensor.scales.shape, tensor.group_size).astype(np.float32)
    groups = tensor.scales.astype(np.float32)[..., None] * quants + tensor.biases.astype(np.float32)[..., None]
    return groups.reshape(tensor.shape)


@pytest.mark.parametrize("kind", AFFINE_BITS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("shape", [(32,), (1, 32), (3, 64), (7, 96), (5, 3, 64), (63, 1024), (500, 1120)])
def test_affine_groups_have_the_files_own_values(tmp_path, kind, shape):
    blocks = random_blocks(kind, int(np.prod(shape)) // 32, seed=len(shape))
    with GGUFFile(write(tmp_path / "m.gguf", kind, blocks, shape)) as file:
        tensor = file.read("t")
    assert isinstance(tensor, AffineTensor)
    assert (tensor.shape, tensor.bits, tensor.group_size) == (shape, AFFINE_BITS[kind], 32)
    assert tensor.weight.shape == (*shape[:-1], shape[-1] * tensor.bits // 32)
    assert tensor.scales.shape == tensor.biases.shape == (*shape[:-1], shape[-1] // 32)
    assert tensor.scales.dtype == tensor.biases.dtype == np.float16
    expected = gguf.dequantize(blocks, kind).reshape(shape)
    np.testing.assert_array_equal(values(tensor), expected)


@pytest.mark.parametrize(("kind", "zero_point"), [(Kind.Q4_0, 8), (Kind.Q8_0, 128)], ids=["Q4_0", "Q8_0"])
@pytest.mark.parametrize("scale", [65504.0, -65504.0, 6e-8, 0.0])
def test_extreme_scales_keep_their_values(tmp_path, kind, zero_point, scale):
    blocks = random_blocks(kind, 6, seed=1)
    blocks[2, :2] = np.float16([scale]).view(np.uint8)
    with GGUFFile(write(tmp_path / "m.gguf", kind, blocks, (2, 96))) as file:
        tensor = file.read("t")
    wide = abs(scale) * zero_point > 65504
    assert tensor.scales.dtype == tensor.biases.dtype == (np.float32 if wide else np.float16)
    np.testing.assert_array_equal(values(tensor), gguf.dequantize(blocks, kind).reshape(2, 96))


@pytest.mark.parametrize(
    "kind", [Kind.Q5_0, Kind.Q5_1, Kind.Q4_K, Kind.Q6_K, Kind.IQ4_NL, Kind.MXFP4], ids=lambda kind: kind.name
)
def test_other_types_are_decoded_and_say_so(tmp_path, kind):
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.random.default_rng(2).integers(0, 60, (2 * 3, block_bytes), np.uint8)
    with GGUFFile(write(tmp_path / "m.gguf", kind, blocks, (2, 3 * block))) as file:
        tensor = file.read("t")
    assert isinstance(tensor, DenseTensor)
    assert (tensor.dtype, tensor.decoded_from) == ("float32", kind.name)
    np.testing.assert_array_equal(tensor.data, gguf.dequantize(blocks, kind).reshape(2, 3 * block))


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [(Kind.F32, "float32", "<f4"), (Kind.F16, "float16", "<f2"), (Kind.BF16, "bfloat16", "<u2")],
)
@pytest.mark.parametrize("shape", [(1,), (63,), (3, 5), (2, 1, 7)])
def test_plain_types_are_copied_bit_for_bit(tmp_path, kind, name, code, shape):
    content = np.random.default_rng(3).integers(0, 256, int(np.prod(shape)) * np.dtype(code).itemsize, np.uint8)
    path = tmp_path / "m.gguf"
    path.write_bytes(raw.RawGGUF(tensors=[raw.tensor("t", shape[::-1], int(kind), 0)], data=content.tobytes()).build())
    with GGUFFile(path) as file:
        tensor = file.read("t")
    assert (tensor.dtype, tensor.shape, tensor.decoded_from) == (name, shape, None)
    assert tensor.data.tobytes() == content.tobytes()


def test_a_type_that_cannot_be_decoded_is_named(tmp_path):
    path = tmp_path / "m.gguf"
    q8_k = int(Kind.Q8_K)
    path.write_bytes(raw.RawGGUF(tensors=[raw.tensor("t", (256,), q8_k, 0)], data=bytes(292)).build())
    with GGUFFile(path) as file, pytest.raises(FileFormatError, match=r"'t' has the type Q8_K.*cannot decode"):
        file.read("t")


def test_an_unknown_tensor_is_a_key_error(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(raw.with_changes())
    with GGUFFile(path) as file, pytest.raises(KeyError):
        file.read("third")


def test_reads_what_the_library_reads(smollm2_path):
    """Every metadata value and every tensor of a real file, against the library's own reader."""
    theirs = gguf.GGUFReader(smollm2_path)
    with GGUFFile(smollm2_path) as ours:
        for key, field in theirs.fields.items():
            if not key.startswith("GGUF."):
                value = ours.metadata[key]
                assert (value.tolist() if isinstance(value, np.ndarray) else value) == field.contents(), key
        assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
        for tensor in theirs.tensors:
            info = ours.tensors[tensor.name]
            assert (info.offset, info.nbytes, info.kind) == (tensor.data_offset, tensor.n_bytes, tensor.tensor_type)
            assert info.shape == tuple(tensor.shape.tolist()[::-1])


def test_tensors_outlive_the_file(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(raw.RawGGUF(tensors=[raw.tensor("t", (3,), raw.F32, 0)], data=struct.pack("<3f", 1, 2, 3)).build())
    with GGUFFile(path) as file:
        tensor = file.read("t")
    path.write_bytes(b"")
    np.testing.assert_array_equal(tensor.data, [1, 2, 3])


def resident_pages(path) -> int:
    """Bytes of ``path`` that this process has mapped and resident."""
    total, inside = 0, False
    with open("/proc/self/smaps", encoding="utf-8") as maps:
        for line in maps:
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                inside = line.rstrip().endswith(str(path))
            elif inside and line.startswith("Rss:"):
                total += int(line.split()[1]) * 1024
    return total


def test_pages_are_handed_back_after_each_tensor(tmp_path):
    count = 8 << 20
    path = tmp_path / "m.gguf"
    path.write_bytes(raw.RawGGUF(tensors=[raw.tensor("t", (count // 4,), raw.F32, 0)], data=bytes(count)).build())
    with GGUFFile(path) as file:
        file.read("t")
        assert resident_pages(path) < 1 << 20


@pytest.mark.parametrize("what", ["missing", "folder", "empty", "pipe"])
def test_a_path_that_is_no_file_is_named(tmp_path, what):
    path = tmp_path / "m.gguf"
    make = {"missing": lambda: None, "folder": path.mkdir, "empty": path.touch, "pipe": lambda: os.mkfifo(path)}
    make[what]()
    with pytest.raises(UserError) as caught:
        GGUFFile(path)
    assert str(path) in str(caught.value)
