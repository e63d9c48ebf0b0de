"""Folders of safetensors files: what is damaged, hostile or contradicts itself is refused in one sentence."""

from __future__ import annotations

import json
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from outlive.io.checkpoint import Checkpoint, SafetensorsFile
from outlive.io.errors import FileFormatError, UserError
from outlive.lm.errors import ModelError, PromptError
from outlive.lm.loading import load
from tests.lm.checkpoints import config_of, write_checkpoint


def write(path: Path, header: object, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def entry(dtype: object = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict:
    listed = [list(value) if isinstance(value, tuple) else value for value in (shape, offsets)]
    return {"dtype": dtype, "shape": listed[0], "data_offsets": listed[1]}


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_pieces_are_the_library_values(tmp_path, rows):
    tensors = {
        "a": np.arange(35, dtype=np.float32).reshape(7, 5),
        "b": np.arange(3, dtype=np.float16),
        "c": np.array(2.5, np.float32),
        "d": np.zeros((0, 4), np.int32),
        "e": np.arange(24, dtype=np.uint32).reshape(2, 3, 4),
    }
    save_file(tensors, tmp_path / "m.safetensors")
    file = SafetensorsFile(tmp_path / "m.safetensors")
    for name, expected in load_file(tmp_path / "m.safetensors").items():
        pieces = [np.array(piece) for piece in file.rows(name, rows)]
        assert file.tensors[name].shape == expected.shape
        whole = np.concatenate(pieces) if pieces and expected.ndim else (pieces[0] if pieces else expected)
        np.testing.assert_array_equal(whole, expected)
    file.close()


BROKEN = {
    "empty": (b"", "is empty"),
    "short": (b"\1\0\0", "truncated or damaged"),
    "length beyond the file": (struct.pack("<Q", 1 << 40) + b"{}", "truncated or damaged"),
    "pickle": (pickle.dumps([1.0] * 90, protocol=2), "an archive or pickle"),
    "zip": (b"PK\3\4" + bytes(100), "an archive or pickle"),
    "no JSON": (b"{x}", "header is no JSON"),
    "no UTF-8": (b'{"\xff": 1}', "header is no JSON"),
    "nested too deep": (b"[" * 100_000, "header is no JSON"),
    "list": ([1], "no JSON object"),
    "metadata": ({"__metadata__": {"a": 1}}, "metadata is not text"),
    "entry": ({"w": 3}, "no type, shape and range"),
    "negative shape": ({"w": entry(shape=[-1])}, "no type, shape and range"),
    "fraction": ({"w": entry(shape=[1.5])}, "no type, shape and range"),
    "true": ({"w": entry(shape=[True])}, "no type, shape and range"),
    "huge shape": ({"w": entry(shape=[1 << 61, 1 << 61])}, "takes"),
    "type": ({"w": entry("Q4")}, "the type 'Q4'"),
    "backwards": ({"w": entry(offsets=[8, 0])}, "ends beyond"),
    "beyond": ({"w": entry(shape=[4], offsets=[0, 16])}, "ends beyond"),
    "size": ({"w": entry(shape=[1])}, "takes 4 bytes, but has 8"),
    "overlap": ({"v": entry(), "w": entry(shape=[1], offsets=[4, 8])}, "'v' and 'w' overlap"),
}


@pytest.mark.parametrize(("header", "complaint"), BROKEN.values(), ids=BROKEN.keys())
def test_a_file_that_is_not_well_formed_is_refused(tmp_path, header, complaint):
    path = tmp_path / "m.safetensors"
    if isinstance(header, bytes) and header[:1] not in (b"{", b"["):
        path.write_bytes(header)
    else:
        write(path, header, bytes(8))
    with pytest.raises(FileFormatError, match=complaint) as caught:
        SafetensorsFile(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@given(data=st.data())
def test_damaged_files_are_read_or_refused(tmp_path_factory, data):
    """Bytes of a good file changed, cut or doubled: an error of ours or tensors inside the file, never anything else."""
    folder = tmp_path_factory.mktemp("fuzz")
    save_file({"a": np.ones((3, 4), np.float32), "b": np.ones(5, np.uint32)}, folder / "m.safetensors")
    content = bytearray((folder / "m.safetensors").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    (folder / "m.safetensors").write_bytes(content)
    try:
        with Checkpoint(folder) as checkpoint:
            for name, info in checkpoint.tensors.items():
                assert info.offset + info.nbytes <= len(content)
                assert sum(piece.nbytes for piece in checkpoint.rows(name, 2)) == info.nbytes
                del name
    except UserError as error:
        assert "\n" not in str(error)  # noqa: PT017 - that it may also be read is the point


def change_json(path: Path, **changes: object) -> None:
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))


def no_shard(folder: Path) -> None:
    (folder / "model-00002-of-00003.safetensors").unlink()


def index_outside(folder: Path) -> None:
    placed = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    placed["model.norm.weight"] = "../model.safetensors"
    change_json(folder / "model.safetensors.index.json", weight_map=placed)


def index_wrong(folder: Path) -> None:
    placed = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    first = placed["model.norm.weight"]
    placed["model.norm.weight"] = next(name for name in placed.values() if name != first)
    change_json(folder / "model.safetensors.index.json", weight_map=placed)


def only_pickle(folder: Path) -> None:
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({}))


def remove(name: str):
    return lambda folder: (folder / name).unlink()


def config(**changes: object):
    return lambda folder: change_json(folder / "config.json", **changes)


def text_of(name: str, text: str):
    return lambda folder: (folder / name).write_text(text)


FOLDERS = {
    "missing shard": (no_shard, "names the file model-00002-of-00003.safetensors, which is not there"),
    "index outside": (index_outside, "'../model.safetensors', which leads outside"),
    "index wrong": (index_wrong, "places tensor 'model.norm.weight' in"),
    "index empty": (text_of("model.safetensors.index.json", "{}"), "no weight_map"),
    "pickle": (only_pickle, "a pickle, which can run code and is never loaded"),
    "no config": (remove("config.json"), "has no config.json"),
    "config no JSON": (text_of("config.json", "{"), "is no JSON"),
    "config list": (text_of("config.json", "[]"), "no JSON object"),
    "no tokenizer": (remove("tokenizer.json"), "has no tokenizer.json"),
    "tokenizer broken": (text_of("tokenizer.json", '{"model": 1}'), "no tokenizer that the tokenizers library reads"),
    "vocabulary": (config(vocab_size=100), "has the token 263, but config.json a vocabulary of 100"),
    "shape": (
        config(hidden_size=64, head_dim=32),
        r"has the shape \(264, 128\) where config.json asks for \(264, 64\)",
    ),
    "layers too few": (config(num_hidden_layers=1), "'model.layers.1.*has no place in the llama family"),
    "layers too many": (config(num_hidden_layers=3), "'model.layers.2.input_layernorm.weight' is missing"),
    "architecture": (config(model_type="mamba"), "architecture 'mamba'; supported are: gemma3_text, llama"),
    "no architecture": (config(model_type=None), "no metadata 'model_type'"),
    "heads": (config(num_attention_heads="4"), "'num_attention_heads' is '4'"),
    "heads uneven": (config(num_key_value_heads=3), "4 heads do not share 3 key heads"),
    "rope": (config(rope_scaling={"rope_type": "su"}), "scaling of type 'su' is not supported"),
    "rope without factor": (config(rope_scaling={"rope_type": "linear"}), "no metadata 'factor'"),
    "rope list": (config(rope_scaling=[1]), "'rope_scaling' is .*, not an object"),
    "end": (config(eos_token_id=264), "eos_token_id is 264"),
    "other method": (config(quantization_config={"quant_method": "gptq"}), "the method 'gptq', which is not read"),
    "template": (text_of("chat_template.jinja", "{% for"), "chat template does not compile"),
}


@pytest.mark.parametrize(("damage", "complaint"), FOLDERS.values(), ids=FOLDERS.keys())
def test_a_folder_that_cannot_be_run_is_refused_in_one_sentence(tmp_path, damage, complaint):
    folder = write_checkpoint(tmp_path / "model", shards=3)
    load(folder)
    damage(folder)
    with pytest.raises((ModelError, FileFormatError), match=complaint) as caught:
        load(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


BLOCKS = {
    "none": (None, "config.json does not say how it is quantized"),
    "list": ([4], "quantization block is no object"),
    "bits": ({"group_size": 64, "bits": 7}, "not a way that is known"),
    "mode": ({"group_size": 32, "bits": 4, "mode": "int"}, "not a way that is known"),
    "group": ({"group_size": 32, "bits": 4}, r"has the shape \(264, 2\) where config.json asks for \(264, 4\)"),
    "other bits": ({"group_size": 64, "bits": 8}, r"has the shape \(264, 16\) where config.json asks for \(264, 32\)"),
    "other mode": ({"group_size": 32, "bits": 4, "mode": "mxfp4"}, r"has the shape|has the type"),
    "denied": ({"group_size": 64, "bits": 4, "model.embed_tokens": False}, "does not say how it is quantized"),
}


@pytest.mark.parametrize(("block", "complaint"), BLOCKS.values(), ids=BLOCKS.keys())
def test_a_quantization_block_that_does_not_fit_is_refused(tmp_path, block, complaint):
    import outlive.core as mx
    from tests.lm.checkpoints import tensors_of

    words, scales, biases = map(
        np.array, mx.quantize(mx.array(tensors_of(config_of("llama"))["model.embed_tokens.weight"]))
    )
    quantized = {
        "model.embed_tokens.weight": words,
        "model.embed_tokens.scales": scales,
        "model.embed_tokens.biases": biases,
    }
    folder = write_checkpoint(tmp_path / "model", tensors=quantized)
    change_json(folder / "config.json", quantization={"group_size": 64, "bits": 4, "mode": "affine"})
    load(folder)
    change_json(folder / "config.json", quantization=block)
    with pytest.raises(ModelError, match=complaint):
        load(folder)


def test_no_folder_with_a_pickle_alone_is_ever_unpickled(tmp_path):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    folder = write_checkpoint(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(pickle.dumps(Evil(), protocol=2))
    with pytest.raises(FileFormatError):
        load(folder)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("text", ["", "affine", "affine7", "affine4:48", "int8", "mxfp4:32", "AFFINE4"])
def test_a_quantization_that_does_not_exist_is_refused(tmp_path, text):
    with pytest.raises(PromptError, match="there is no quantization"):
        load(write_checkpoint(tmp_path / "model"), quantize=text)


@given(
    changes=st.dictionaries(
        st.sampled_from(sorted(config_of("gemma3_text"))),
        st.recursive(
            st.none() | st.booleans() | st.integers(-3, 1 << 40) | st.floats() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
            max_leaves=4,
        ),
        min_size=1,
        max_size=3,
    )
)
def test_any_config_is_run_or_refused(fuzz_folder, changes):
    """Whatever values a config.json has: an error of ours, or a model."""
    (fuzz_folder / "config.json").write_text(json.dumps(config_of("gemma3_text") | changes))
    try:
        load(fuzz_folder)
    except UserError as error:
        assert "\n" not in str(error)  # noqa: PT017 - that it may also run is the point


@pytest.fixture(scope="module")
def fuzz_folder(tmp_path_factory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("fuzz") / "model", "gemma3_text")


@given(data=st.data())
def test_any_tokenizer_file_is_used_or_refused(tokenizer_folder, data):
    from tests.lm.checkpoints import tokenizer_json

    text = bytearray(tokenizer_json().encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 40))] = data.draw(
            st.binary(max_size=3) | st.sampled_from([b"[", b"}", b"null,", b"9"])
        )
    (tokenizer_folder / "tokenizer.json").write_bytes(text)
    try:
        load(tokenizer_folder).encode("hello")
    except UserError as error:
        assert "\n" not in str(error)  # noqa: PT017 - that it may also work is the point


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("fuzz") / "model")
