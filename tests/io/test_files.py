"""Arrays that were saved come back: in every format, through paths and file objects, whatever becomes of the file."""

from __future__ import annotations

import io
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import outlive.core as mx
from outlive.io import regions

TYPES = ("bool_ uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64").split()
SHAPES = ((), (0,), (3, 0, 2), (1,), (7, 5), (2, 3, 65))


def sample(kind: str, shape: tuple[int, ...]) -> mx.array:
    values = np.random.default_rng(len(shape)).integers(0, 100, shape).astype(np.float32)
    return mx.array(values).astype(getattr(mx, kind), stream=mx.cpu)


def same(got: mx.array, want: mx.array) -> bool:
    return got.dtype == want.dtype and got.shape == want.shape and got.tolist() == want.tolist()


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_npy_files_give_the_array_back(tmp_path: Path, kind: str, shape: tuple[int, ...]) -> None:
    a = sample(kind, shape)
    mx.save(tmp_path / "a", a)
    assert same(mx.load(tmp_path / "a.npy"), a)
    memory = io.BytesIO()
    mx.save(memory, a)
    memory.seek(0)
    assert same(mx.load(memory, "npy"), a)


@pytest.mark.parametrize("compressed", [False, True])
def test_npz_files_give_all_arrays_back(tmp_path: Path, compressed: bool) -> None:
    save = mx.savez_compressed if compressed else mx.savez
    arrays = {f"{kind}/{rank}": sample(kind, shape) for kind in TYPES for rank, shape in enumerate(SHAPES)}
    save(str(tmp_path / "a.npz"), sample("int8", (3,)), **arrays)
    loaded = mx.load(str(tmp_path / "a.npz"))
    assert same(loaded.pop("arr_0"), sample("int8", (3,)))
    assert loaded.keys() == arrays.keys()
    assert all(same(loaded[name], a) for name, a in arrays.items())


def test_safetensors_files_give_arrays_and_metadata_back(tmp_path: Path) -> None:
    arrays = {f"{kind} {shape}": sample(kind, shape) for kind in TYPES for shape in SHAPES}
    mx.save_safetensors(tmp_path / "a", arrays, {"who": "ä"})
    loaded, metadata = mx.load(tmp_path / "a.safetensors", return_metadata=True)
    assert metadata == {"who": "ä"}
    assert loaded.keys() == arrays.keys()
    assert all(same(loaded[name], a) for name, a in arrays.items())
    with (tmp_path / "a.safetensors").open("rb") as file:
        from_object = mx.load(file)
    assert all(same(from_object[name], a) for name, a in arrays.items())


def test_safetensors_files_are_those_of_the_formats_library(tmp_path: Path) -> None:
    arrays = {kind: sample(kind, (5, 3)) for kind in TYPES if kind not in ("bool_", "complex64", "bfloat16")}
    mx.save_safetensors(tmp_path / "ours", arrays)
    theirs = safetensors.numpy.load_file(tmp_path / "ours.safetensors")
    assert {k: v.tolist() for k, v in theirs.items()} == {k: a.tolist() for k, a in arrays.items()}
    safetensors.numpy.save_file(theirs, tmp_path / "theirs.safetensors", {"k": "v"})
    loaded, metadata = mx.load(tmp_path / "theirs.safetensors", return_metadata=True)
    assert metadata == {"k": "v"}
    assert all(same(loaded[name], a) for name, a in arrays.items())


def test_gguf_files_give_tensors_and_metadata_back(tmp_path: Path) -> None:
    kinds = ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64")
    arrays = {f"{kind} {shape}": sample(kind, shape) for kind in kinds for shape in SHAPES if 0 not in shape}
    metadata = {
        "text": "ä", "texts": ["a", ""], "flag": mx.array(True), "count": mx.array(7, mx.uint16),
        "numbers": mx.array([1.5, 2.5]), "big": mx.array([1 << 40], mx.uint64),
    }  # fmt: skip
    mx.save_gguf(tmp_path / "a", arrays, metadata)
    loaded, told = mx.load(tmp_path / "a.gguf", return_metadata=True)
    assert loaded.keys() == arrays.keys()
    assert all(same(loaded[name], a) for name, a in arrays.items())
    assert told.keys() == metadata.keys()
    for key, value in metadata.items():
        assert same(told[key], value) if isinstance(value, mx.array) else told[key] == value


def test_numpy_reads_what_is_saved_and_is_read(tmp_path: Path) -> None:
    a = sample("float32", (3, 4)).T[::-1]
    mx.save(tmp_path / "a.npy", a)
    assert np.array_equal(np.load(tmp_path / "a.npy"), np.array(a))
    for name, values in {
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "big-endian": np.arange(5, dtype=">i4"),
        "big-endian complex": (np.arange(3) + 2j).astype(">c8"),
        "bfloat16": np.arange(4).astype(ml_dtypes.bfloat16),
    }.items():
        np.save(tmp_path / f"{name}.npy", values)
        loaded = mx.load(tmp_path / f"{name}.npy")
        assert loaded.tolist() == values.tolist(), name


def test_arrays_outlive_their_file(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    mx.save_safetensors(path, {"x": mx.arange(5000), "y": mx.ones((3,))})
    loaded = mx.load(path)
    path.unlink()
    assert loaded["x"].sum().item() == 4999 * 2500
    assert loaded["y"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_a_file_may_be_replaced_by_arrays_that_were_loaded_from_it(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    save = (lambda arrays: mx.savez(path, **arrays)) if kind == "npz" else (lambda a: mx.save_safetensors(path, a))
    save({"x": mx.arange(1000), "y": mx.ones((7, 3))})
    save({name: a + 1 for name, a in mx.load(path).items()})
    assert mx.load(path)["x"].tolist() == list(range(1, 1001))
    assert os.listdir(tmp_path) == [path.name]


def test_nothing_is_read_before_it_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    mx.save(path, mx.zeros((1000,)))
    a = mx.load(path)
    with path.open("r+b") as file:  # the same file, not one that replaces it
        file.seek(-4, os.SEEK_END)
        file.write(np.float32(3).tobytes())
    assert a.sum().item() == 3


def test_a_file_cut_after_it_was_opened_fails_its_own_array_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    mx.save(path, mx.zeros((1000,)))
    a, other = mx.load(path), mx.ones((3,))
    os.truncate(path, 500)
    total = a.sum()
    mx.async_eval(total, other)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="load"):
            total.item()
    assert other.tolist() == [1, 1, 1]


def test_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    mx.savez(path, x=mx.arange(3))
    with pytest.raises(RuntimeError):
        mx.savez(path, x=mx.linalg.inv(mx.zeros((2, 2)), stream=mx.cpu))
    with pytest.raises(TypeError):
        mx.savez(path, x=[1, 2])
    assert mx.load(path)["x"].tolist() == [0, 1, 2]
    assert os.listdir(tmp_path) == ["a.npz"]


def test_files_are_closed_when_no_array_needs_them(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    mx.save_safetensors(path, {str(i): mx.ones((3,)) for i in range(20)})
    before = regions.OpenFile.count
    loaded = mx.load(path)
    assert regions.OpenFile.count == before + 1
    mx.eval(loaded)
    assert regions.OpenFile.count == before
    unread = mx.load(path)
    del unread
    assert regions.OpenFile.count == before


def test_any_number_of_files_may_be_loaded(tmp_path: Path) -> None:
    mx.save(tmp_path / "a.npy", mx.arange(4))
    loaded = [mx.load(tmp_path / "a.npy") for _ in range(3000)]
    assert regions.OpenFile.count <= regions.LIMIT_OPEN_FILES
    assert mx.stack(loaded).sum().item() == 3000 * 6


def test_links_and_permissions_stay(tmp_path: Path) -> None:
    real, link = tmp_path / "real.npy", tmp_path / "link.npy"
    mx.save(real, mx.zeros((2,)))
    real.chmod(0o640)
    link.symlink_to(real)
    mx.save(link, mx.ones((2,)))
    assert link.is_symlink()
    assert mx.load(real).tolist() == [1, 1]
    assert real.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda d: mx.load(d / "none.npy"), RuntimeError, "none.npy"),
        (lambda d: mx.load(d), ValueError, "format"),
        (lambda d: mx.load(d, "npy"), RuntimeError, "regular file"),
        (lambda d: mx.load(3), ValueError, "int"),
        (lambda d: mx.load(io.StringIO(), "npy"), ValueError, "binary"),
        (lambda d: mx.load(d / "a.txt"), ValueError, "format"),
        (lambda d: mx.load(d / "a.npy", "txt"), ValueError, "txt"),
        (lambda d: mx.load(d / "a.npy", return_metadata=True), ValueError, "metadata"),
        (lambda d: mx.load(io.BytesIO(), "gguf"), ValueError, "path"),
        (lambda d: mx.save(d / "a.npy", [1, 2]), TypeError, "list"),
        (lambda d: mx.save(3, mx.ones(2)), ValueError, "int"),
        (lambda d: mx.save(d / "none" / "a.npy", mx.ones(2)), RuntimeError, "none"),
        (lambda d: mx.savez(d / "a.npz", mx.ones(2), arr_0=mx.ones(2)), ValueError, "arr_0"),
        (lambda d: mx.save_safetensors(d / "a", {"x": mx.ones(2)}, {"k": 1}), ValueError, "texts"),
        (lambda d: mx.save_safetensors(d / "a", {1: mx.ones(2)}), TypeError, "1"),
        (lambda d: mx.save_gguf(d / "a", {"x": mx.ones(2, mx.complex64)}, {}), RuntimeError, "complex64"),
        (lambda d: mx.save_gguf(d / "a", {"x": mx.ones((0, 2))}, {}), RuntimeError, "empty"),
        (lambda d: mx.save_gguf(d / "a", {}, {"k": mx.ones((2, 2))}), RuntimeError, "axis"),
        (lambda d: mx.save_gguf(d / "a", {}, {"k": 3}), TypeError, "int"),
        (lambda d: mx.save_gguf(io.BytesIO(), {}, {}), ValueError, "path"),
    ],
)
def test_bad_input_gets_a_sentence(tmp_path: Path, call: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as raised:
        call(tmp_path)
    assert str(raised.value).startswith("[")
    assert not os.listdir(tmp_path)
