"""Tiny random Llama models as GGUF files, with a byte-level vocabulary, written through the library's own writer."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind

# GPT-2's characters for bytes, from the definition: printable ones stand for themselves, the rest from U+0100 on.
_PRINTABLE = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
_REST = iter(range(0x100, 0x200))
BYTE_CHARACTERS = [chr(byte) if byte in _PRINTABLE else chr(next(_REST)) for byte in range(256)]

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGED = ["he", "ll", "hell", "hello", BYTE_CHARACTERS[ord(" ")] + "w"]
MERGES = ["h e", "l l", "he ll", "hell o", BYTE_CHARACTERS[ord(" ")] + " w"]
TOKENS = CONTROL + BYTE_CHARACTERS + MERGED
VOCABULARY = len(TOKENS)


@dataclass
class TinyLlama:
    """What to write; the weights are normal with standard deviation 1 / sqrt(inputs)."""

    layers: int = 2
    dims: int = 96
    hidden_dims: int = 160
    heads: int = 3
    key_heads: int = 1
    context: int = 600
    kind: Kind = Kind.F32
    tied: bool = True
    rope_factors: bool = False
    bias: bool = False
    seed: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)  # overrides by key; None leaves the key out
    tensors: dict[str, np.ndarray | None] = field(default_factory=dict)  # overrides by name; None leaves it out

    def write(self, path: Path) -> Path:
        writer = gguf.GGUFWriter(path, "llama")
        for key, value in (self.default_metadata() | self.metadata).items():
            if value is not None and key != "general.architecture":
                _add(writer, key, value)
        if "general.architecture" in self.metadata:
            writer.kv_data[0]["general.architecture"].value = self.metadata["general.architecture"]
        for name, tensor in (self._tensors() | self.tensors).items():
            if tensor is None:
                continue
            if tensor.ndim == 1:
                writer.add_tensor(name, tensor.astype(np.float32))
            else:
                writer.add_tensor(name, gguf.quantize(tensor.astype(np.float32), self.kind), raw_dtype=self.kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def default_metadata(self) -> dict[str, Any]:
        return {
            "general.name": "tiny",
            "llama.block_count": self.layers,
            "llama.context_length": self.context,
            "llama.embedding_length": self.dims,
            "llama.feed_forward_length": self.hidden_dims,
            "llama.attention.head_count": self.heads,
            "llama.attention.head_count_kv": self.key_heads,
            "llama.attention.layer_norm_rms_epsilon": 1e-5,
            "llama.rope.freq_base": 10_000.0,
            "llama.rope.dimension_count": self.dims // self.heads,
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "smollm",
            "tokenizer.ggml.tokens": TOKENS,
            "tokenizer.ggml.token_type": [3] * len(CONTROL) + [1] * (VOCABULARY - len(CONTROL)),
            "tokenizer.ggml.merges": MERGES,
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.add_bos_token": False,
            "tokenizer.chat_template": TEMPLATE,
        }

    def _tensors(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(self.seed)
        head_dims = self.dims // self.heads
        queries, keys = self.heads * head_dims, self.key_heads * head_dims

        def matrix(rows: int, columns: int) -> np.ndarray:
            return rng.normal(0, columns**-0.5, (rows, columns))

        tensors = {
            "token_embd.weight": rng.normal(0, 1, (VOCABULARY, self.dims)),
            "output_norm.weight": rng.normal(1, 0.1, self.dims),
        }
        for index in range(self.layers):
            name = f"blk.{index}"
            tensors |= {
                f"{name}.attn_norm.weight": rng.normal(1, 0.1, self.dims),
                f"{name}.attn_q.weight": matrix(queries, self.dims),
                f"{name}.attn_k.weight": matrix(keys, self.dims),
                f"{name}.attn_v.weight": matrix(keys, self.dims),
                f"{name}.attn_output.weight": matrix(self.dims, queries),
                f"{name}.ffn_norm.weight": rng.normal(1, 0.1, self.dims),
                f"{name}.ffn_gate.weight": matrix(self.hidden_dims, self.dims),
                f"{name}.ffn_up.weight": matrix(self.hidden_dims, self.dims),
                f"{name}.ffn_down.weight": matrix(self.dims, self.hidden_dims),
            }
            if self.bias:
                tensors[f"{name}.attn_q.bias"] = rng.normal(0, 1, queries)
                tensors[f"{name}.attn_k.bias"] = rng.normal(0, 1, keys)
        if not self.tied:
            tensors["output.weight"] = matrix(VOCABULARY, self.dims)
        if self.rope_factors:
            tensors["rope_freqs.weight"] = rng.uniform(1, 8, head_dims // 2)
        return tensors


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    adders = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    adders.get(type(value), writer.add_array)(key, value)
