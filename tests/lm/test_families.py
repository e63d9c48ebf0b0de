"""Every family in every format gives the logits of mlx-lm on the reference's CPU, in one pass and token by token."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

import outlive.core as mx
from outlive.lm.loading import load
from tests.lm.checkpoints import FAMILIES, write_checkpoint
from tests.lm.test_llama import ids_of, logits, relative_error
from tests.reference.environment import reference_python

MLX_LM = ("mlx[cpu]==0.32.4", "mlx-lm==0.32.2", "numpy>=2.1")
TOKENS = 40
IDS = ids_of(TOKENS, seed=9)
LONG_IDS = ids_of(700, seed=9)  # beyond the original context of 600, where dynamic scaling begins

AFFINE = {f"affine{bits}-g{group}": {"mode": "affine", "bits": bits, "group_size": group}
          for bits, group in [(2, 64), (3, 64), (4, 32), (4, 64), (4, 128), (5, 64), (6, 64), (8, 32), (8, 64)]}  # fmt: skip
MODES = AFFINE | {
    "mxfp4": {"mode": "mxfp4", "bits": 4, "group_size": 32},
    "mxfp8": {"mode": "mxfp8", "bits": 8, "group_size": 32},
    "nvfp4": {"mode": "nvfp4", "bits": 4, "group_size": 16},
    "mixed": {
        "mode": "affine",
        "bits": 4,
        "group_size": 64,
        "named": {
            "model.layers.0.self_attn.q_proj": {"bits": 8, "group_size": 32},
            "model.layers.1.mlp.down_proj": False,
            "model.embed_tokens": {"bits": 6, "group_size": 64},
            "lm_head": {"mode": "mxfp4", "bits": 4, "group_size": 32},
        },
    },
}
# All modes on one family, some on each of the others: what differs between families is not how a matrix is read.
QUANTIZED = [("llama", mode) for mode in MODES] + [
    (family, mode)
    for family in ("llama-tied", "qwen2", "qwen3", "qwen3_moe", "gemma3_text")
    for mode in ("affine4-g64", "affine8-g32", "mxfp4")
]


@pytest.fixture(scope="module")
def reference_logits(tmp_path_factory) -> Path:
    """A folder with FAMILY/ (the checkpoint), FAMILY.npz, FAMILY+MODE/ (as mlx-lm quantizes it) and FAMILY+MODE.npz."""
    base = tmp_path_factory.mktemp("families")
    jobs = []
    for family in FAMILIES:
        write_checkpoint(base / family, family, shards=3 if family == "qwen2" else 1)
        ids = LONG_IDS if family == "llama-dynamic" else IDS
        jobs.append({"folder": str(base / family), "ids": ids, "out": str(base / f"{family}.npz")})
    for family, mode in QUANTIZED:
        name = f"{family}+{mode}"
        saved = {"save": str(base / name), "quantize": MODES[mode]}
        jobs.append({"folder": str(base / family), "ids": IDS, "out": str(base / f"{name}.npz"), **saved})
    (base / "jobs.json").write_text(json.dumps(jobs))
    script = Path(__file__).with_name("mlx_lm_logits.py")
    command = [str(reference_python(MLX_LM)), str(script), str(base / "jobs.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return base


def expected(base: Path, name: str) -> np.ndarray:
    with np.load(base / f"{name}.npz") as file:
        return file["logits"]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_gives_the_logits_of_mlx_lm(reference_logits, family):
    ids = LONG_IDS if family == "llama-dynamic" else IDS
    ours = logits(load(reference_logits / family), ids, [len(ids)])
    assert relative_error(ours, expected(reference_logits, family)) < 1e-4


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "llama-dynamic"])
def test_token_by_token_gives_the_same(reference_logits, family):
    """Dynamic scaling is left out: earlier keys turned by another base, in every implementation of it."""
    model = load(reference_logits / family)
    assert relative_error(logits(model, IDS, [1] * TOKENS), expected(reference_logits, family)) < 1e-4
    assert relative_error(logits(model, IDS, [7, 1, 20, 12]), expected(reference_logits, family)) < 1e-4


@pytest.mark.parametrize(("family", "mode"), QUANTIZED)
def test_a_quantized_folder_gives_the_logits_of_mlx_lm(reference_logits, family, mode):
    name = f"{family}+{mode}"
    model = load(reference_logits / name)
    assert relative_error(logits(model, IDS, [TOKENS]), expected(reference_logits, name)) < 1e-3
    assert relative_error(logits(model, IDS, [TOKENS - 3, 1, 1, 1]), expected(reference_logits, name)) < 1e-3


@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
@pytest.mark.parametrize(
    ("quantize", "mode"), [("affine4", "affine4-g64"), ("affine8:32", "affine8-g32"), ("mxfp4", "mxfp4")]
)
def test_quantizing_while_loading_gives_what_mlx_lm_saves(reference_logits, family, quantize, mode):
    """The router of a mixture stays whole here, so only the dense family agrees to the last digits."""
    ours = logits(load(reference_logits / family, quantize=quantize), IDS, [TOKENS])
    error = relative_error(ours, expected(reference_logits, f"{family}+{mode}"))
    assert error < (1e-3 if family == "llama" else 0.3)


def test_compiled_steps_decode_what_one_pass_would(reference_logits):
    """Greedy decoding runs compiled steps, whose caches turn (a window of 9 tokens) and grow."""
    for family in ("gemma3_text", "qwen3_moe", "llama-yarn"):
        model = load(reference_logits / family)
        tokens = greedy(model, IDS, 30)
        rows = logits(model, IDS + tokens, [TOKENS + 30])
        assert tokens == rows[TOKENS - 1 : -1].argmax(-1).tolist()


def greedy(model, ids: list[int], count: int) -> list[int]:
    from tests.lm.test_llama import greedy as decode

    return decode(model, ids, count)


def test_half_types_are_read(tmp_path):
    """bfloat16 and float16 tensors give the logits of the same values in float32."""
    from tests.lm.checkpoints import config_of, tensors_of

    halves = {name: value.astype(np.float16) for name, value in tensors_of(config_of("llama")).items()}
    write_checkpoint(tmp_path / "half", tensors=halves)
    write_checkpoint(tmp_path / "full", tensors={name: value.astype(np.float32) for name, value in halves.items()})
    np.testing.assert_allclose(
        logits(load(tmp_path / "half"), IDS, [TOKENS]),
        logits(load(tmp_path / "full"), IDS, [TOKENS]),
        rtol=1e-4,
        atol=1e-4,
    )
    assert load(tmp_path / "half", dtype=mx.float16).network.logits is not None
