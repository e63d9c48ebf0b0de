"""Llama in NumPy: an independent computation from the file dequantized to float32 by the ``gguf`` library.

It shares no code with the package: the library's own reader, complex numbers for the rotations, a plain softmax.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np


class NumpyLlama:
    """Logits for token ids, with the keys and values of earlier calls kept."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)

        def number(key: str, default: float | None = None) -> float:
            field = reader.get_field(f"llama.{key}")
            return default if field is None else field.contents()

        self.weights = {
            tensor.name: np.array(gguf.dequantize(tensor.data, tensor.tensor_type), np.float32)
            for tensor in reader.tensors
        }
        self.layers = int(number("block_count"))
        self.heads = int(number("attention.head_count"))
        self.key_heads = int(number("attention.head_count_kv", self.heads))
        self.epsilon = number("attention.layer_norm_rms_epsilon")
        self.head_dims = self.weights["blk.0.attn_q.weight"].shape[0] // self.heads
        rope_dims = int(number("rope.dimension_count", self.head_dims))
        frequencies = number("rope.freq_base", 10_000.0) ** (-np.arange(0, rope_dims, 2) / rope_dims)
        if "rope_freqs.weight" in self.weights:
            frequencies = frequencies / self.weights["rope_freqs.weight"]
        if number("rope.scaling.type", "none") == "linear":
            frequencies = frequencies / number("rope.scaling.factor")
        self.frequencies = frequencies
        self.past: list[tuple[np.ndarray, np.ndarray]] = []
        self.position = 0  # of the next token

    def restart(self) -> None:
        """Forget the tokens so far."""
        self.past, self.position = [], 0

    def logits(self, ids: list[int]) -> np.ndarray:
        """Logits after each of ``ids``, shape (len(ids), vocabulary), in float32."""
        x = self.weights["token_embd.weight"][ids]
        past, self.past = self.past, []
        for layer in range(self.layers):
            name = f"blk.{layer}"
            x = x + self._attention(self._norm(x, f"{name}.attn_norm"), name, past[layer] if past else None)
            y = self._norm(x, f"{name}.ffn_norm")
            gate, up = self._linear(y, f"{name}.ffn_gate"), self._linear(y, f"{name}.ffn_up")
            x = x + self._linear(gate / (1 + np.exp(-gate)) * up, f"{name}.ffn_down")
        self.position += len(ids)
        x = self._norm(x, "output_norm")
        return x @ self.weights.get("output.weight", self.weights["token_embd.weight"]).T

    def _linear(self, x: np.ndarray, name: str) -> np.ndarray:
        return x @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", np.float32(0))

    def _norm(self, x: np.ndarray, name: str) -> np.ndarray:
        scale = 1 / np.sqrt(np.mean(np.square(x, dtype=np.float64), -1, keepdims=True) + self.epsilon)
        return (x * scale).astype(np.float32) * self.weights[f"{name}.weight"]

    def _rotate(self, x: np.ndarray) -> np.ndarray:
        """Turn neighbours (2i, 2i + 1) of each head, shape (tokens, heads, head_dims), by position * frequency i."""
        dims = 2 * len(self.frequencies)
        positions = self.position + np.arange(len(x))
        turns = np.exp(1j * np.outer(positions, self.frequencies))[:, None, :]
        pairs = np.ascontiguousarray(x[..., :dims]).view(np.complex64) * turns
        return np.concatenate([pairs.astype(np.complex64).view(np.float32), x[..., dims:]], -1)

    def _attention(self, x: np.ndarray, name: str, past: tuple[np.ndarray, np.ndarray] | None) -> np.ndarray:
        def heads(which: str) -> np.ndarray:
            return self._linear(x, f"{name}.attn_{which}").reshape(len(x), -1, self.head_dims)

        query, key, value = self._rotate(heads("q")), self._rotate(heads("k")), heads("v")
        if past is not None:
            key, value = np.concatenate([past[0], key]), np.concatenate([past[1], value])
        self.past.append((key, value))
        shared = self.heads // self.key_heads
        key, value = np.repeat(key, shared, 1).transpose(1, 0, 2), np.repeat(value, shared, 1).transpose(1, 0, 2)
        scores = query.transpose(1, 0, 2) @ key.transpose(0, 2, 1) / np.sqrt(np.float32(self.head_dims))
        visible = np.arange(key.shape[1]) <= self.position + np.arange(len(x))[:, None]
        scores = np.where(visible, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mixed = (weights @ value).transpose(1, 0, 2).reshape(len(x), -1)
        return self._linear(mixed, f"{name}.attn_output")
