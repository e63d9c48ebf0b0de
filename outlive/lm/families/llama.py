"""The Llama family: Llama 1 to 3, SmolLM, and whatever else a file calls ``llama``.

A layer is attention with grouped heads and rotary positions, then a gated feed-forward network (SwiGLU), each behind
an RMS norm and added to the stream. Converters to GGUF reorder the rows of the query and key projections so that the
two numbers that rotate together are neighbours: rotary positions are the interleaved (``traditional``) kind here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import outlive.core as mx
from outlive.lm.cache import KVCache, LayerCache
from outlive.lm.errors import ModelError
from outlive.lm.layers import Linear
from outlive.lm.metadata import Metadata
from outlive.lm.weights import Weights


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """Sizes and constants; names after the file's metadata, sizes in elements, ``context_length`` in tokens."""

    layers: int
    dims: int
    hidden_dims: int
    heads: int
    key_heads: int
    head_dims: int
    rope_dims: int
    rope_base: float
    rope_scale: float
    norm_epsilon: float
    vocabulary_size: int
    context_length: int

    @classmethod
    def from_metadata(cls, metadata: Metadata) -> LlamaConfig:
        heads = metadata.count("llama.attention.head_count")
        dims = metadata.count("llama.embedding_length")
        head_dims = metadata.count("llama.attention.key_length", dims // heads if heads <= dims else 1)
        config = cls(
            layers=metadata.count("llama.block_count", maximum=10_000),
            dims=dims,
            hidden_dims=metadata.count("llama.feed_forward_length"),
            heads=heads,
            key_heads=metadata.count("llama.attention.head_count_kv", heads),
            head_dims=head_dims,
            rope_dims=metadata.count("llama.rope.dimension_count", head_dims),
            rope_base=metadata.positive("llama.rope.freq_base", 10_000.0),
            rope_scale=_rope_scale(metadata),
            norm_epsilon=metadata.positive("llama.attention.layer_norm_rms_epsilon"),
            vocabulary_size=len(metadata.texts("tokenizer.ggml.tokens")),
            context_length=metadata.count("llama.context_length"),
        )
        config._check(metadata)
        return config

    def _check(self, metadata: Metadata) -> None:
        problem = None
        if self.heads % self.key_heads:
            problem = f"{self.heads} heads do not share {self.key_heads} key heads evenly"
        elif self.rope_dims > self.head_dims or self.rope_dims % 2:
            problem = f"{self.rope_dims} rotary dimensions do not fit heads of {self.head_dims}"
        elif metadata.count("llama.attention.value_length", self.head_dims) != self.head_dims:
            problem = "values and keys of different sizes are not supported"
        elif "llama.expert_count" in metadata and metadata.count("llama.expert_count") > 1:
            problem = "mixtures of experts are not supported yet"
        if problem is not None:
            raise ModelError(f"{metadata.where}: {problem}")


def _rope_scale(metadata: Metadata) -> float:
    kind = metadata.text("llama.rope.scaling.type", "none")
    if kind == "none":
        return 1.0
    if kind == "linear":
        return 1.0 / metadata.positive("llama.rope.scaling.factor")
    raise ModelError(f"{metadata.where}: rotary scaling of type {kind!r} is not supported yet (only 'linear' is)")


class Llama:
    """The network: embedding, layers, final norm, and an output matrix, which may be the embedding's own."""

    def __init__(self, config: LlamaConfig, weights: Weights) -> None:
        self.config = config
        self.context_length = config.context_length
        self.vocabulary_size = config.vocabulary_size
        self.decode_steps: dict[float, Callable] = {}
        self._embedding = weights.embedding("token_embd", config.vocabulary_size, config.dims)
        rope = _Rope(config, weights)
        self._layers = [_Layer(config, weights, f"blk.{index}", rope) for index in range(config.layers)]
        self._norm = weights.vector("output_norm.weight", config.dims)
        if "output.weight" in weights:
            self._output: Linear = weights.linear("output", config.vocabulary_size, config.dims)
        else:
            self._output = self._embedding.as_linear

    def make_cache(self) -> list[KVCache]:
        return [KVCache() for _ in self._layers]

    def hidden(self, ids: mx.array, cache: Sequence[LayerCache]) -> mx.array:
        x = self._embedding(ids)
        for layer, entry in zip(self._layers, cache, strict=True):
            x = layer(x, entry)
        return x

    def logits(self, hidden: mx.array) -> mx.array:
        return self._output(mx.fast.rms_norm(hidden, self._norm, self.config.norm_epsilon))


class _Rope:
    """Rotary positions; a file may carry factors, one a frequency, that stretch the slow ones (Llama 3.1)."""

    def __init__(self, config: LlamaConfig, weights: Weights) -> None:
        self._dims, self._base, self._scale = config.rope_dims, config.rope_base, config.rope_scale
        self._wavelengths: mx.array | None = None
        if "rope_freqs.weight" in weights:
            factors = weights.vector("rope_freqs.weight", self._dims // 2).astype(mx.float32)
            exponents = mx.arange(0, self._dims, 2, dtype=mx.float32) / self._dims
            self._wavelengths = mx.power(mx.array(self._base, mx.float32), exponents) * factors

    def __call__(self, x: mx.array, offset: int | mx.array) -> mx.array:
        base = self._base if self._wavelengths is None else None
        return mx.fast.rope(
            x, self._dims, traditional=True, base=base, scale=self._scale, offset=offset, freqs=self._wavelengths
        )


class _Layer:
    def __init__(self, config: LlamaConfig, weights: Weights, name: str, rope: _Rope) -> None:
        self._config = config
        self._rope = rope
        queries, keys = config.heads * config.head_dims, config.key_heads * config.head_dims
        self._attention_norm = weights.vector(f"{name}.attn_norm.weight", config.dims)
        self._query = weights.linear(f"{name}.attn_q", queries, config.dims)
        self._key = weights.linear(f"{name}.attn_k", keys, config.dims)
        self._value = weights.linear(f"{name}.attn_v", keys, config.dims)
        self._attention_output = weights.linear(f"{name}.attn_output", config.dims, queries)
        self._feed_forward_norm = weights.vector(f"{name}.ffn_norm.weight", config.dims)
        self._gate = weights.linear(f"{name}.ffn_gate", config.hidden_dims, config.dims)
        self._up = weights.linear(f"{name}.ffn_up", config.hidden_dims, config.dims)
        self._down = weights.linear(f"{name}.ffn_down", config.dims, config.hidden_dims)

    def __call__(self, x: mx.array, cache: LayerCache) -> mx.array:
        epsilon = self._config.norm_epsilon
        x = x + self._attention(mx.fast.rms_norm(x, self._attention_norm, epsilon), cache)
        return x + self._feed_forward(mx.fast.rms_norm(x, self._feed_forward_norm, epsilon))

    def _attention(self, x: mx.array, cache: LayerCache) -> mx.array:
        config = self._config
        tokens = x.shape[1]
        query = self._rope(self._split_heads(self._query(x), config.heads), cache.offset)
        key = self._rope(self._split_heads(self._key(x), config.key_heads), cache.offset)
        keys, values = cache.update(key, self._split_heads(self._value(x), config.key_heads))
        mixed = mx.fast.scaled_dot_product_attention(
            query, keys, values, scale=config.head_dims**-0.5, mask=cache.mask(tokens)
        )
        if tokens > 1:
            mixed = mixed.transpose(0, 2, 1, 3)
        return self._attention_output(mixed.reshape(*x.shape[:2], -1))

    def _split_heads(self, x: mx.array, heads: int) -> mx.array:
        batch, tokens, _ = x.shape
        if tokens == 1:  # every decode step: the same elements in the same order, one node less
            return x.reshape(batch, heads, 1, self._config.head_dims)
        return x.reshape(batch, tokens, heads, self._config.head_dims).transpose(0, 2, 1, 3)

    def _feed_forward(self, x: mx.array) -> mx.array:
        gate = self._gate(x)
        return self._down(gate * mx.sigmoid(gate) * self._up(x))
