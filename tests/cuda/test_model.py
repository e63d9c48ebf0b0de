"""A language model on the GPU's queues, lifetimes and migrations: the same tokens as on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import outlive.core as mx
from outlive.lm import load
from tests.cuda.test_device import GPU, driver, gpu
from tests.lm.tiny import Kind, TinyLlama

__all__ = ["driver"]


@pytest.mark.parametrize("kind", [Kind.F32, Kind.Q4_1])
def test_a_tiny_llama_gives_the_cpus_tokens(driver: Any, tmp_path: Path, kind: Kind) -> None:
    path = TinyLlama(kind=kind).write(tmp_path / "tiny.gguf")

    def tokens(device: Any) -> list[int]:
        mx.set_default_device(device)
        model = load(str(path))
        return [piece.token.id for piece in model.generate(model.encode("hello world"), max_tokens=8) if piece.token]

    assert tokens(GPU) == tokens(mx.cpu)
    assert any(route[0] == "scaled_dot_product_attention" for route in gpu().host_routes), "it ran on the device"
    mx.set_default_device(GPU)
