"""Conversions: what is written loads again, gives the same logits and text, and is what mlx-lm reads."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind

import outlive.core as mx
from outlive.io.errors import UserError
from outlive.lm import convert as conversion
from outlive.lm.convert import ConvertOptions, convert
from outlive.lm.errors import ModelError
from outlive.lm.loading import load
from outlive.lm.progress import Silent
from outlive.lm.quantization import Quantization
from outlive.lm.sampling import Sampler
from tests.lm.checkpoints import write_checkpoint
from tests.lm.test_families import MLX_LM
from tests.lm.test_llama import greedy, ids_of, logits, relative_error
from tests.lm.tiny import TinyLlama
from tests.reference.environment import reference_python

IDS = ids_of(30, seed=3)
LLAMA3_FACTORS = {
    "llama.rope.freq_base": 500_000.0,
    "llama.context_length": 600,
}


def converted(source: Path, target: Path, **options) -> Path:
    convert(source, target, ConvertOptions(**options), Silent())
    return target


@pytest.mark.parametrize("kind", [Kind.Q4_0, Kind.Q4_1, Kind.Q8_0, Kind.F16, Kind.F32], ids=lambda kind: kind.name)
@pytest.mark.parametrize("changes", [{}, {"tied": False}, {"bias": True}, {"heads": 4, "key_heads": 2, "dims": 128}])
def test_a_gguf_file_and_its_conversion_say_the_same(tmp_path, kind, changes):
    source = TinyLlama(kind=kind, **changes).write(tmp_path / "m.gguf")
    target = converted(source, tmp_path / "mlx")
    ours, theirs = load(source), load(target)
    assert relative_error(logits(theirs, IDS, [30]), logits(ours, IDS, [30])) < 1e-5
    prompt = [{"role": "user", "content": "hello"}]
    assert theirs.encode(prompt) == ours.encode(prompt)
    assert theirs.tokenizer.ends == ours.tokenizer.ends
    assert greedy(theirs, IDS, 20) == greedy(ours, IDS, 20)
    texts = ["".join(model.stream("hello", max_tokens=15, sampler=Sampler(0.8, 4))) for model in (ours, theirs)]
    assert texts[0] == texts[1]


def test_mlx_lm_reads_a_conversion(tmp_path):
    """Of a quantized GGUF file with a scaled rotation, and of a checkpoint quantized on the way."""
    linear = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    gguf = TinyLlama(kind=Kind.Q4_1, tied=False, metadata=linear).write(tmp_path / "m.gguf")
    qwen = write_checkpoint(tmp_path / "qwen", "qwen3_moe")
    jobs = []
    for name, source, options in [
        ("gguf", gguf, {}),
        ("qwen", qwen, {"quantize": Quantization(64, 4), "dtype": mx.float32}),
        ("plain", gguf, {"dequantize": True}),
    ]:
        target = converted(source, tmp_path / f"to-{name}", **options)
        jobs.append({"folder": str(target), "ids": IDS, "out": str(tmp_path / f"{name}.npz")})
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    script = Path(__file__).with_name("mlx_lm_logits.py")
    command = [str(reference_python(MLX_LM)), str(script), str(tmp_path / "jobs.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    for job in jobs:
        with np.load(job["out"]) as expected:
            assert relative_error(logits(load(job["folder"]), IDS, [30]), expected["logits"]) < 1e-3


def test_every_file_has_its_digest_and_nothing_else_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(conversion, "SHARD_BYTES_MAX", 200_000)
    source = write_checkpoint(tmp_path / "m")
    target = converted(source, tmp_path / "out" / "mlx")
    lines = (target / "SHA256SUMS").read_text().splitlines()
    digests = {line.split("  ")[1]: line.split("  ")[0] for line in lines}
    assert digests.keys() == set(os.listdir(target)) - {"SHA256SUMS"}
    for name, digest in digests.items():
        assert hashlib.sha256((target / name).read_bytes()).hexdigest() == digest
    assert len([name for name in digests if name.endswith(".safetensors")]) > 2
    assert relative_error(logits(load(target), IDS, [30]), logits(load(source), IDS, [30])) == 0
    assert os.listdir(tmp_path / "out") == ["mlx"]


def test_quantized_again_and_back(tmp_path):
    source = write_checkpoint(tmp_path / "m")
    eight = converted(source, tmp_path / "eight", quantize=Quantization(32, 8))
    four = converted(eight, tmp_path / "four", quantize=Quantization(64, 4))
    back = converted(four, tmp_path / "back", dequantize=True, dtype=mx.float16)
    assert json.loads((four / "config.json").read_text())["quantization"]["bits"] == 4
    assert "quantization" not in json.loads((back / "config.json").read_text())
    errors = [
        relative_error(logits(load(path), IDS, [30]), logits(load(source), IDS, [30])) for path in (eight, four, back)
    ]
    assert 0 < errors[0] < 0.05 < errors[1] < 0.8
    assert abs(errors[1] - errors[2]) < 0.02


def test_rotary_factors_of_llama_3_become_its_scaling(tmp_path):
    from outlive.lm.rope import RopeConfig, _llama3, _plain

    pairs = (("low_freq_factor", 1.0), ("high_freq_factor", 4.0))
    scaled = RopeConfig(32, 500_000.0, False, "llama3", 8.0, 8192, pairs)
    tensors = {"rope_freqs.weight": (_llama3(scaled) / _plain(scaled)).astype(np.float32)}
    source = TinyLlama(metadata=LLAMA3_FACTORS, tensors=tensors).write(tmp_path / "m.gguf")
    target = converted(source, tmp_path / "mlx")
    assert json.loads((target / "config.json").read_text())["rope_scaling"]["factor"] == 8.0
    assert relative_error(logits(load(target), IDS, [30]), logits(load(source), IDS, [30])) < 1e-5
    other = TinyLlama(rope_factors=True).write(tmp_path / "other.gguf")
    with pytest.raises(ModelError, match="rotary factors are those of no known scaling"):
        converted(other, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_what_is_there_is_never_written_over(tmp_path):
    source = write_checkpoint(tmp_path / "m")
    with pytest.raises(UserError, match="exists already"):
        converted(source, source)
    with pytest.raises(UserError, match="cannot write"):
        converted(source, Path("/proc/nowhere/mlx"))
