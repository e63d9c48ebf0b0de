"""Greedy decoding of a quantized model runs on compiled kernels alone: one word list, no reference kernel between."""

from __future__ import annotations

from gguf import GGMLQuantizationType

import outlive.core as mx
from outlive.backends.cpu import device
from outlive.backends.cpu.features import features
from outlive.lm import load
from tests.lm.tiny import TinyLlama


def test_decoding_takes_no_reference_kernel(tmp_path, monkeypatch):
    assert features().vector
    ran = []
    reference = device.run_reference

    def watched(kernel, *rest):
        ran.append(kernel.name)
        return reference(kernel, *rest)

    monkeypatch.setattr(device, "run_reference", watched)
    file = TinyLlama(kind=GGMLQuantizationType.Q4_1, dims=192, hidden_dims=256).write(tmp_path / "tiny.gguf")
    pieces = load(str(file)).stream("hello world", max_tokens=24)
    for _ in range(3):  # prefill, and the step that is traced and makes its constants
        next(pieces)
    ran.clear()
    assert list(pieces)
    assert ran == []
    mx.eval(mx.fft.fft(mx.ones((4,))))
    assert ran, "reference kernels were not watched"
