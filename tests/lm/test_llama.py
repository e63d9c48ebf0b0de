"""The Llama family against an independent computation in NumPy, on tiny random models and on SmolLM2."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind

import outlive.core as mx
from outlive.lm.errors import ModelError
from outlive.lm.generation import GenerationStats, generate_tokens
from outlive.lm.loading import load
from outlive.lm.model import LanguageModel
from outlive.lm.progress import Silent
from outlive.lm.sampling import Sampler
from tests.lm.numpy_llama import NumpyLlama
from tests.lm.tiny import TinyLlama

GOLDEN = json.loads((Path(__file__).parent / "golden" / "smollm2_greedy.json").read_text(encoding="utf-8"))
PROMPTS = {
    "question": GOLDEN["prompt"],
    "code": "Write a Python function that returns the n-th Fibonacci number, with 0 < n < 10.",
    "unicode": "Translate to French: «The naïve café owner paid 1,234.50 € – in cash!» 你好 🙂",
}


def logits(model: LanguageModel, ids: list[int], chunks: list[int]) -> np.ndarray:
    """Logits after every id, the ids handed over in pieces of the given lengths."""
    cache, rows, begin = model.network.make_cache(), [], 0
    for length in chunks:
        piece = mx.array(ids[begin : begin + length], mx.uint32)[None]
        rows.append(np.array(model.network.logits(model.network.hidden(piece, cache))[0]))
        begin += length
    assert begin == len(ids)
    return np.concatenate(rows)


def relative_error(ours: np.ndarray, expected: np.ndarray) -> float:
    """The largest error of a row, relative to the row's norm."""
    return float((np.linalg.norm(ours - expected, axis=-1) / np.linalg.norm(expected, axis=-1)).max())


def ids_of(count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 256, count).tolist()


KINDS = [Kind.F32, Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q4_1, Kind.Q8_0, Kind.Q5_0]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_tensor_type_gives_the_expected_logits(tmp_path, kind):
    path = TinyLlama(kind=kind, seed=int(kind)).write(tmp_path / "m.gguf")
    ids = ids_of(7)
    assert relative_error(logits(load(path), ids, [7]), NumpyLlama(path).logits(ids)) < 1e-5


@pytest.mark.parametrize(
    "changes",
    [
        {"heads": 4, "key_heads": 2, "dims": 128},
        {"heads": 3, "key_heads": 3},
        {"layers": 1, "heads": 1},
        {"tied": False},
        {"bias": True},
        {"rope_factors": True},
        {"metadata": {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}},
        {"metadata": {"llama.rope.dimension_count": 16}},
        {"metadata": {"llama.attention.head_count_kv": None, "llama.rope.freq_base": None}, "key_heads": 3},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_every_variant_gives_the_expected_logits(tmp_path, changes):
    path = TinyLlama(kind=Kind.Q8_0, **changes).write(tmp_path / "m.gguf")
    ids = ids_of(63)
    assert relative_error(logits(load(path), ids, [63]), NumpyLlama(path).logits(ids)) < 1e-5


@pytest.mark.parametrize("chunks", [[1] * 9, [65, 1, 1, 63], [255, 1, 1, 1, 5], [256, 1], [257, 256, 7]])
def test_pieces_give_the_logits_of_the_whole(tmp_path, chunks):
    """Also where the cache is exactly full, one short of it, and grown in the middle of a piece."""
    path = TinyLlama(kind=Kind.Q4_1).write(tmp_path / "m.gguf")
    ids = ids_of(sum(chunks), seed=4)
    assert relative_error(logits(load(path), ids, chunks), NumpyLlama(path).logits(ids)) < 1e-5


BROKEN = {
    "no architecture": (
        {"metadata": {"general.architecture": "mamba"}},
        "holds a model of the architecture 'mamba'; supported are: gemma3, llama, qwen2, qwen3, qwen3moe",
    ),
    "tensor missing": ({"tensors": {"blk.1.ffn_up.weight": None}}, "tensor 'blk.1.ffn_up.weight' is missing"),
    "tensor transposed": (
        {"tensors": {"blk.0.ffn_up.weight": np.zeros((96, 160))}},
        r"tensor 'blk.0.ffn_up.weight' has the shape \(96, 160\) where its metadata asks for \(160, 96\)",
    ),
    "layer too many": ({"metadata": {"llama.block_count": 3}}, "tensor 'blk.2.attn_norm.weight' is missing"),
    "layer too few": ({"metadata": {"llama.block_count": 1}}, "tensor 'blk.1.attn_k.weight' .* has no place"),
    "tensor unknown": ({"tensors": {"blk.0.ssm.weight": np.zeros((3, 32))}}, "'blk.0.ssm.weight' .* has no place"),
    "key missing": ({"metadata": {"llama.embedding_length": None}}, "no metadata 'llama.embedding_length'"),
    "key of another type": ({"metadata": {"llama.block_count": "two"}}, "'llama.block_count' is 'two', not a positive"),
    "zero heads": ({"metadata": {"llama.attention.head_count": 0}}, "'llama.attention.head_count' is 0"),
    "heads uneven": ({"metadata": {"llama.attention.head_count_kv": 2}}, "3 heads do not share 2 key heads"),
    "huge layers": ({"metadata": {"llama.block_count": 4_000_000_000}}, "positive integer up to 10000"),
    "rope too wide": ({"metadata": {"llama.rope.dimension_count": 64}}, "64 rotary dimensions"),
    "rope scaling": ({"metadata": {"llama.rope.scaling.type": "mystery"}}, "'mystery' is not supported"),
    "experts": ({"metadata": {"llama.expert_count": 8}}, "mixtures of experts"),
    "epsilon": ({"metadata": {"llama.attention.layer_norm_rms_epsilon": float("nan")}}, "not a positive number"),
    "vocabulary": ({"metadata": {"tokenizer.ggml.tokens": ["a", "b"]}}, "not a list of 2 integers"),
    "tokenizer kind": ({"metadata": {"tokenizer.ggml.model": "rwkv"}}, "tokenizer of the kind 'rwkv'"),
    "token id": ({"metadata": {"tokenizer.ggml.eos_token_id": 4000}}, "not an index below 264"),
    "template": ({"metadata": {"tokenizer.chat_template": "{% for"}}, "chat template does not compile"),
}


@pytest.mark.parametrize(("changes", "complaint"), BROKEN.values(), ids=BROKEN.keys())
def test_a_model_that_cannot_run_is_refused_in_one_sentence(tmp_path, changes, complaint):
    path = TinyLlama(**changes).write(tmp_path / "m.gguf")
    with pytest.raises(ModelError, match=complaint) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message


def test_a_type_that_is_not_kept_is_noted_once(tmp_path):
    notes = []

    class Notes(Silent):
        def note(self, text: str) -> None:
            notes.append(text)

    load(TinyLlama(kind=Kind.Q5_0).write(tmp_path / "m.gguf"), progress=Notes())
    assert notes == ["15 tensors of type Q5_0 were decoded to float32 (this type is not kept quantized)"]


@pytest.fixture(scope="module")
def smollm2(smollm2_path) -> LanguageModel:
    return load(smollm2_path)


@pytest.fixture(scope="module")
def smollm2_weights(smollm2_path) -> NumpyLlama:
    return NumpyLlama(smollm2_path)


@pytest.fixture
def smollm2_reference(smollm2_weights) -> NumpyLlama:
    smollm2_weights.restart()
    return smollm2_weights


def long_prompt(model: LanguageModel) -> list[int]:
    """500 tokens of running text."""
    text = " ".join(f"Sentence {n}: {PROMPTS['question']} {PROMPTS['code']}" for n in range(40))
    return model.tokenizer.encode(text)[:500]


def greedy(model: LanguageModel, ids: list[int], count: int) -> list[int]:
    return list(
        generate_tokens(
            model.network, ids, Sampler(), max_tokens=count, ends=(), progress=Silent(), stats=GenerationStats()
        )
    )


@pytest.mark.parametrize("prompt", PROMPTS)
def test_smollm2_gives_the_expected_logits_and_text(smollm2, smollm2_reference, prompt):
    """Greedy text is checked in one pass: each token must be the likeliest after all that is before it."""
    ids = smollm2.encode(PROMPTS[prompt])
    tokens = greedy(smollm2, ids, 32)
    expected = smollm2_reference.logits(ids + tokens)
    assert relative_error(logits(smollm2, ids, [len(ids)]), expected[: len(ids)]) < 1e-3
    assert tokens == expected[len(ids) - 1 : -1].argmax(-1).tolist()


def test_smollm2_gives_the_expected_logits_for_500_tokens(smollm2, smollm2_reference):
    ids = long_prompt(smollm2)
    assert len(ids) == 500
    assert relative_error(logits(smollm2, ids, [500]), smollm2_reference.logits(ids)) < 1e-3


def test_smollm2_gives_the_golden_tokens(smollm2):
    assert smollm2.encode(GOLDEN["prompt"]) == GOLDEN["prompt_tokens"]
    assert greedy(smollm2, GOLDEN["prompt_tokens"], 32) == GOLDEN["tokens"]
    assert "".join(smollm2.stream(GOLDEN["prompt"], max_tokens=32)) == GOLDEN["text"]
