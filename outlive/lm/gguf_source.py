"""The tensors of a GGUF file, under the names of Hugging Face's checkpoints."""

from __future__ import annotations

from collections.abc import Callable

import gguf

import outlive.core as mx
from outlive.io.gguf import DenseTensor, GGUFFile
from outlive.io.gguf_blocks import AffineTensor
from outlive.lm.errors import ModelError
from outlive.lm.layers import QuantizedArrays
from outlive.lm.quantization import Quantization
from outlive.lm.weights import Stored


class GGUFSource:
    """A :class:`outlive.lm.weights.TensorSource`; ``advance`` is told the bytes read."""

    def __init__(self, file: GGUFFile, architecture: str, layers: int, advance: Callable[[int], None]) -> None:
        self.where = str(file.path)
        self.decoded: dict[str, int] = {}  # GGUF type without an affine form -> number of tensors decoded to float32
        self._file = file
        self._advance = advance
        self._unused = set(file.tensors)
        kind = next(kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
        self._names = gguf.get_tensor_name_map(kind, layers)

    def __contains__(self, name: str) -> bool:
        return self._own_name(name) in self._file.tensors

    def read(self, name: str, shape: tuple[int, ...], quantize: Quantization | None) -> Stored:
        own = self._own_name(name)
        info = self._file.tensors.get(own)
        if info is None:
            raise ModelError(f"{self.where}: tensor {own!r} is missing; get or convert the file anew")
        if info.shape != shape:
            raise ModelError(
                f"{self.where}: tensor {own!r} has the shape {info.shape} where its metadata asks for {shape}; "
                "get or convert the file anew"
            )
        stored = self._convert(self._file.read(own), own, info.kind.name)
        self._unused.discard(own)
        self._advance(info.nbytes)
        if quantize is None:
            return stored
        values = stored.dequantized(mx.float32) if isinstance(stored, QuantizedArrays) else stored
        made = quantize.apply(values)
        mx.eval(made.arrays)
        return made

    def read_experts(self, block: str, which: str, shape: tuple[int, ...], quantize: Quantization | None) -> Stored:
        return self.read(f"{block}.experts.{which}.weight", shape, quantize)

    def unused(self) -> set[str]:
        return self._unused

    def _own_name(self, name: str) -> str:
        stem, _, suffix = name.rpartition(".")
        own = self._names.get_name(stem)
        return f"{own or stem}.{suffix}"

    def _convert(self, tensor: DenseTensor | AffineTensor, name: str, kind: str) -> Stored:
        if isinstance(tensor, AffineTensor):
            arrays = [mx.array(part) for part in (tensor.weight, tensor.scales, tensor.biases)]
            return Quantization(tensor.group_size, tensor.bits).hold(arrays)
        if tensor.dtype not in ("float32", "float16", "bfloat16"):
            raise ModelError(f"{self.where}: tensor {name!r} has the type {kind}, not one for weights")
        if tensor.decoded_from is not None:
            self.decoded[tensor.decoded_from] = self.decoded.get(tensor.decoded_from, 0) + 1
        array = mx.array(tensor.data)
        return array.view(mx.bfloat16) if tensor.dtype == "bfloat16" else array
