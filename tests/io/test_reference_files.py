"""Files go both ways between Outlive and the reference, in every format and element type."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import outlive.core as mx
from tests.reference.compare import assert_same_outcome
from tests.reference.wire import Array, Program, Returned, Side, bfloat16_bits

OURS = Side(mx)
NUMPY_TYPES = ("bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 complex64").split()
SHAPES = ((), (0, 3), (5,), (3, 4))
SUFFIX = {
    "save": "npy",
    "savez": "npz",
    "savez_compressed": "npz",
    "save_safetensors": "safetensors",
    "save_gguf": "gguf",
}


def samples(kinds: list[str], shapes: tuple[tuple[int, ...], ...]) -> dict[str, Array]:
    made = {}
    for kind in kinds:
        for shape in shapes:
            values = np.random.default_rng(3).integers(0, 90, shape)
            name = f"{kind}_{len(shape)}_{values.size}"
            made[name] = Array.of(values.astype(kind)) if kind != "bfloat16" else Array(kind, bfloat16_bits(values))
    return made


WRITE = {
    "save": "[mx.save(f'{path}.{k}', a) for k, a in arrays.items()]",
    "savez": "mx.savez(path, **arrays)",
    "savez_compressed": "mx.savez_compressed(path, **arrays)",
    "save_safetensors": "mx.save_safetensors(path, arrays, {'who': 'x'})",
    "save_gguf": "mx.save_gguf(path, arrays, {'k': 'text', 'l': ['a', 'b'], 'n': mx.array(3), 'v': mx.array([1.5, 2.5])})",
}
READ = {
    "save": "out = {k: mx.load(f'{path}.{k}.npy') for k in names}",
    "savez": "out = mx.load(path + '.npz')",
    "savez_compressed": "out = mx.load(path + '.npz')",
    "save_safetensors": "out = list(mx.load(path + '.safetensors', return_metadata=True))",
    "save_gguf": "out = list(mx.load(path + '.gguf', return_metadata=True))",
}


@pytest.mark.parametrize("writer", ["ours", "theirs"])
@pytest.mark.parametrize("format", WRITE)
def test_what_one_side_writes_the_other_reads(reference, tmp_path: Path, format: str, writer: str):
    kinds = ["int8", "int16", "int32", "float16", "float32"] if format == "save_gguf" else [*NUMPY_TYPES, "bfloat16"]
    arrays = samples(kinds, SHAPES[2:] if format == "save_gguf" else SHAPES)
    inputs = {"path": str(tmp_path / "a"), "arrays": arrays, "names": list(arrays)}
    write, read = Program(f"{WRITE[format]}\nout = None", inputs), Program(READ[format], inputs)
    written = OURS.perform(write) if writer == "ours" else reference.batch([write])[0]
    assert isinstance(written, Returned), written
    got, want = OURS.perform(read), reference.batch([read])[0]
    assert isinstance(want, Returned), want
    assert_same_outcome(got, want, context=format)
    loaded = got.value[0] if isinstance(got.value, list) else got.value
    assert loaded.keys() == arrays.keys()
    for name, array in arrays.items():
        assert_same_outcome(Returned(loaded[name]), Returned(array), context=name)
