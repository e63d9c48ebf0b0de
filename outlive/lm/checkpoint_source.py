"""The tensors of a folder of safetensors files: Hugging Face's, or MLX's with its quantized matrices.

Tensors are read in pieces of some rows, which are quantized at once where that was asked for. So loading never holds
more than the result and one piece, however large the largest tensor is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import outlive.core as mx
from outlive.io.checkpoint import Checkpoint, CheckpointTensor
from outlive.lm.errors import ModelError
from outlive.lm.layers import QuantizedArrays
from outlive.lm.quantization import Quantization, QuantizationBlock
from outlive.lm.weights import Stored

PIECE_BYTES = 1 << 22

_FLOATS = ("float32", "float16", "bfloat16")


class CheckpointSource:
    """A :class:`outlive.lm.weights.TensorSource`; ``advance`` is told the bytes read.

    ``needed`` are the tensors that must be asked for; ``rename`` turns the names of layers into the checkpoint's.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        block: QuantizationBlock,
        advance: Callable[[int], None],
        needed: Collection[str],
        rename: Callable[[str], str],
    ) -> None:
        self.where = str(checkpoint.path)
        self.decoded: dict[str, int] = {}
        self._checkpoint = checkpoint
        self._block = block
        self._advance = advance
        self._rename = rename
        self._unused = set(needed)

    def __contains__(self, name: str) -> bool:
        return self._rename(name) in self._checkpoint.tensors

    def read(self, name: str, shape: tuple[int, ...], quantize: Quantization | None) -> Stored:
        name = self._rename(name)
        stem = name.removesuffix(".weight")
        if f"{stem}.scales" in self._checkpoint.tensors:
            stored = self._read_quantized(stem, shape)
            return stored if quantize is None else quantize.apply(stored.dequantized(mx.float32))
        self._require(name, shape, _FLOATS)
        if quantize is None:
            return self._assemble(name, lambda piece: [piece])[0]
        return quantize.hold(self._assemble(name, lambda piece: quantize.apply(piece).arrays))

    def read_experts(self, block: str, which: str, shape: tuple[int, ...], quantize: Quantization | None) -> Stored:
        stacked = f"{block}.switch_mlp.{which}.weight"
        if stacked in self:
            return self.read(stacked, shape, quantize)
        each = [self.read(f"{block}.experts.{index}.{which}.weight", shape[1:], quantize) for index in range(shape[0])]
        parts = [one.arrays if isinstance(one, QuantizedArrays) else [one] for one in each]
        stacks = [mx.stack(list(part)) for part in zip(*parts, strict=True)]
        mx.eval(stacks)
        if isinstance(first := each[0], QuantizedArrays):
            return Quantization(first.group_size, first.bits, first.mode).hold(stacks)
        return stacks[0]

    def unused(self) -> set[str]:
        return self._unused

    def _read_quantized(self, stem: str, shape: tuple[int, ...]) -> QuantizedArrays:
        way = self._block.of(stem)
        rows, inputs = shape[:-1], shape[-1]
        if not way.fits(inputs):
            raise ModelError(
                f"{self.where}: tensor {stem!r} has rows of {inputs} elements, which groups of {way.group_size} with "
                f"{way.bits} bits do not fill; its quantization block is not for it"
            )
        groups = (*rows, inputs // way.group_size)
        self._require(f"{stem}.weight", (*rows, inputs * way.bits // 32), ("uint32",))
        self._require(f"{stem}.scales", groups, _FLOATS if way.mode == "affine" else ("uint8",))
        names = [f"{stem}.weight", f"{stem}.scales"]
        if way.mode == "affine":
            self._require(f"{stem}.biases", groups, _FLOATS)
            names.append(f"{stem}.biases")
        arrays = [self._assemble(name, lambda piece: [piece])[0] for name in names]
        return way.hold(arrays)

    def _require(self, name: str, shape: tuple[int, ...], dtypes: tuple[str, ...]) -> None:
        info = self._checkpoint.tensors.get(name)
        if info is None:
            raise ModelError(f"{self.where}: tensor {name!r} is missing; get or convert the model anew")
        if info.shape != shape:
            raise ModelError(
                f"{self.where}: tensor {name!r} has the shape {info.shape} where config.json asks for {shape}; "
                "get or convert the model anew"
            )
        if info.dtype not in dtypes:
            raise ModelError(f"{self.where}: tensor {name!r} has the type {info.dtype}, not {' or '.join(dtypes)}")

    def _assemble(self, name: str, transform: Callable[[mx.array], list[mx.array]]) -> list[mx.array]:
        """What ``transform`` makes of the tensor's pieces, put together along the first axis."""
        info = self._checkpoint.tensors[name]
        whole: list[mx.array] = []
        begin = 0
        for piece in self._pieces(info):
            made = transform(piece)
            if not whole:
                whole = [mx.zeros((info.shape[0], *part.shape[1:]), part.dtype) for part in made]
            end = begin + piece.shape[0]
            for array, part in zip(whole, made, strict=True):
                array[begin:end] = part
            mx.eval(whole)  # now, so that the piece's memory serves the next one
            begin = end
        self._unused.discard(name)
        self._advance(info.nbytes)
        return whole

    def _pieces(self, info: CheckpointTensor) -> Iterator[mx.array]:
        row_bytes = info.nbytes // max(1, info.shape[0])
        for view in self._checkpoint.rows(info.name, max(1, PIECE_BYTES // max(1, row_bytes))):
            array = mx.array(view)
            yield array.view(mx.bfloat16) if info.dtype == "bfloat16" else array
            del view
