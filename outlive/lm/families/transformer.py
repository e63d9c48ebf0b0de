"""The decoder-only transformer that the families share; a family's file says how its models differ.

A layer is attention with grouped heads and rotary positions, then a gated feed-forward network (or a choice of several
such, the experts), each behind an RMS norm and added to the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import outlive.core as mx
from outlive.lm.cache import (
    EVERYTHING,
    CacheOptions,
    KVCache,
    LayerCache,
    QuantizedKVCache,
    WindowKVCache,
    cache_group,
)
from outlive.lm.errors import ModelError, PromptError
from outlive.lm.layers import Linear
from outlive.lm.rope import Rope, RopeConfig
from outlive.lm.weights import Weights

SORTED_PAIRS_MIN = 64  # from so many pairs of token and expert on, pairs are sorted by expert


@dataclass(frozen=True, slots=True)
class ExpertsConfig:
    """A mixture: each token goes through ``per_token`` of ``count`` networks with ``hidden_dims`` inside.

    ``normalized`` lets a token's weights sum to one; ``layers`` tells which layers have experts.
    """

    count: int
    per_token: int
    hidden_dims: int
    normalized: bool
    layers: frozenset[int]


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """Sizes in elements, ``context_length`` and windows in tokens.

    Attributes:
        windows: for each layer, the number of last tokens it attends to, or None for all.
        local_rope: of the layers with a window; ``rope`` where it is None.
        query_key_norm: each head's queries and keys are normalized before they turn.
        attention_bias: whether query, key and value projections have biases; None: where the file has them.
        norms_after: the outputs of attention and feed-forward are normalized as well (Gemma).
        norm_shift: added to every norm's weights (a file may store them less one).
        embedding_scale: multiplies the embeddings.
        tied: the output matrix is the embedding's; None: where the file has no other.
    """

    family: str
    layers: int
    dims: int
    hidden_dims: int
    heads: int
    key_heads: int
    head_dims: int
    norm_epsilon: float
    vocabulary_size: int
    context_length: int
    rope: RopeConfig
    attention_scale: float
    local_rope: RopeConfig | None = None
    windows: tuple[int | None, ...] | None = None
    query_key_norm: bool = False
    attention_bias: bool | None = None
    norms_after: bool = False
    norm_shift: float = 0.0
    embedding_scale: float | None = None
    activation: Literal["silu", "gelu"] = "silu"
    tied: bool | None = None
    experts: ExpertsConfig | None = None

    def check(self, where: str) -> None:
        """Refuse sizes that do not fit each other."""
        problem = None
        if self.heads % self.key_heads:
            problem = f"{self.heads} heads do not share {self.key_heads} key heads evenly"
        elif self.rope.dims > self.head_dims or self.rope.dims % 2:
            problem = f"{self.rope.dims} rotary dimensions do not fit heads of {self.head_dims}"
        elif self.experts and self.experts.per_token > self.experts.count:
            problem = f"{self.experts.per_token} experts a token are more than the {self.experts.count} that there are"
        if problem is not None:
            raise ModelError(f"{where}: {problem}")

    def window(self, layer: int) -> int | None:
        return self.windows[layer] if self.windows else None


class Transformer:
    """The network: embedding, layers, final norm, and an output matrix, which may be the embedding's own."""

    def __init__(self, config: TransformerConfig, weights: Weights) -> None:
        self.config = config
        self.context_length = config.context_length
        self.vocabulary_size = config.vocabulary_size
        self.decode_steps: dict[Hashable, Callable] = {}
        self._embedding = weights.embedding("model.embed_tokens", config.vocabulary_size, config.dims)
        factors = None
        if "rope.freqs.weight" in weights:
            factors = weights.vector("rope.freqs.weight", config.rope.dims // 2)
        rope = Rope(config.rope, factors)
        local_rope = rope if config.local_rope is None else Rope(config.local_rope)
        ropes = [rope if config.window(index) is None else local_rope for index in range(config.layers)]
        self._layers = [_Layer(config, weights, index, ropes[index]) for index in range(config.layers)]
        self._norm = _norm(weights, "model.norm", config.dims, config)
        self._output: Linear = self._embedding.as_linear
        if not config.tied and (config.tied is False or "lm_head.weight" in weights):
            self._output = weights.linear("lm_head", config.vocabulary_size, config.dims)

    def make_cache(self, options: CacheOptions = EVERYTHING) -> list[KVCache]:
        """An empty cache, one entry a layer.

        Raises:
            PromptError: for options that do not go with this model.
        """
        config = self.config
        if options.bits and not cache_group(config.head_dims):
            raise PromptError(
                f"heads of {config.head_dims} elements do not divide into groups of 32, so their cache stays whole"
            )
        made: list[KVCache] = []
        for layer in range(config.layers):
            windows = [window for window in (config.window(layer), options.window) if window is not None]
            if windows:
                made.append(WindowKVCache(min(windows)))
            elif options.bits:
                made.append(QuantizedKVCache(options.bits, config.head_dims))
            else:
                made.append(KVCache())
        return made

    def hidden(self, ids: mx.array, cache: Sequence[LayerCache]) -> mx.array:
        x = self._embedding(ids)
        if self.config.embedding_scale is not None:
            x = x * self.config.embedding_scale
        for layer, entry in zip(self._layers, cache, strict=True):
            x = layer(x, entry)
        return x

    def logits(self, hidden: mx.array) -> mx.array:
        return self._output(mx.fast.rms_norm(hidden, self._norm, self.config.norm_epsilon))


class _Layer:
    def __init__(self, config: TransformerConfig, weights: Weights, index: int, rope: Rope) -> None:
        name = f"model.layers.{index}"
        dims = config.dims
        self._epsilon = config.norm_epsilon
        self._attention_norm = _norm(weights, f"{name}.input_layernorm", dims, config)
        self._attention = _Attention(config, weights, f"{name}.self_attn", rope)
        after = f"{name}.post_attention_layernorm"
        before_feed_forward = f"{name}.pre_feedforward_layernorm" if config.norms_after else after
        self._after_attention = _norm(weights, after, dims, config) if config.norms_after else None
        self._feed_forward_norm = _norm(weights, before_feed_forward, dims, config)
        self._feed_forward: Callable[[mx.array], mx.array]
        if config.experts is not None and index in config.experts.layers:
            self._feed_forward = _Mixture(config, config.experts, weights, f"{name}.mlp")
        else:
            self._feed_forward = _FeedForward(config, weights, f"{name}.mlp")
        self._after_feed_forward = None
        if config.norms_after:
            self._after_feed_forward = _norm(weights, f"{name}.post_feedforward_layernorm", dims, config)

    def __call__(self, x: mx.array, cache: LayerCache) -> mx.array:
        y = self._attention(self._normed(x, self._attention_norm), cache)
        x = x + self._normed(y, self._after_attention)
        y = self._feed_forward(self._normed(x, self._feed_forward_norm))
        return x + self._normed(y, self._after_feed_forward)

    def _normed(self, x: mx.array, weight: mx.array | None) -> mx.array:
        return x if weight is None else mx.fast.rms_norm(x, weight, self._epsilon)


class _Attention:
    def __init__(self, config: TransformerConfig, weights: Weights, name: str, rope: Rope) -> None:
        self._config = config
        self._rope = rope
        dims, biased = config.dims, config.attention_bias
        queries, keys = config.heads * config.head_dims, config.key_heads * config.head_dims
        self._query = weights.linear(f"{name}.q_proj", queries, dims, biased=biased)
        self._key = weights.linear(f"{name}.k_proj", keys, dims, biased=biased)
        self._value = weights.linear(f"{name}.v_proj", keys, dims, biased=biased)
        self._output = weights.linear(f"{name}.o_proj", dims, queries)
        self._query_norm = self._key_norm = None
        if config.query_key_norm:
            self._query_norm = _norm(weights, f"{name}.q_norm", config.head_dims, config)
            self._key_norm = _norm(weights, f"{name}.k_norm", config.head_dims, config)

    def __call__(self, x: mx.array, cache: LayerCache) -> mx.array:
        config = self._config
        tokens = x.shape[1]
        query = self._turned(self._query(x), config.heads, self._query_norm, cache.offset)
        key = self._turned(self._key(x), config.key_heads, self._key_norm, cache.offset)
        keys, values = cache.update(key, self._split_heads(self._value(x), config.key_heads))
        mixed = mx.fast.scaled_dot_product_attention(
            query, keys, values, scale=config.attention_scale, mask=cache.mask(tokens)
        )
        if tokens > 1:
            mixed = mixed.transpose(0, 2, 1, 3)
        return self._output(mixed.reshape(*x.shape[:2], -1))

    def _turned(self, x: mx.array, heads: int, norm: mx.array | None, offset: int | mx.array) -> mx.array:
        x = self._split_heads(x, heads)
        if norm is not None:
            x = mx.fast.rms_norm(x, norm, self._config.norm_epsilon)
        return self._rope(x, offset)

    def _split_heads(self, x: mx.array, heads: int) -> mx.array:
        batch, tokens, _ = x.shape
        if tokens == 1:  # every decode step: the same elements in the same order, one node less
            return x.reshape(batch, heads, 1, self._config.head_dims)
        return x.reshape(batch, tokens, heads, self._config.head_dims).transpose(0, 2, 1, 3)


class _FeedForward:
    def __init__(self, config: TransformerConfig, weights: Weights, name: str) -> None:
        self._activation = config.activation
        self._gate = weights.linear(f"{name}.gate_proj", config.hidden_dims, config.dims)
        self._up = weights.linear(f"{name}.up_proj", config.hidden_dims, config.dims)
        self._down = weights.linear(f"{name}.down_proj", config.dims, config.hidden_dims)

    def __call__(self, x: mx.array) -> mx.array:
        return self._down(_gated(self._gate(x), self._up(x), self._activation))


class _Mixture:
    """A router gives each token's experts and their weights, by softmax over all; their outputs are summed."""

    def __init__(self, config: TransformerConfig, experts: ExpertsConfig, weights: Weights, name: str) -> None:
        self._experts = experts
        self._activation = config.activation
        self._router = weights.linear(f"{name}.gate", experts.count, config.dims, keep=True)
        inside, dims = experts.hidden_dims, config.dims
        self._gate = weights.experts(name, "gate_proj", experts.count, inside, dims)
        self._up = weights.experts(name, "up_proj", experts.count, inside, dims)
        self._down = weights.experts(name, "down_proj", experts.count, dims, inside)

    def __call__(self, x: mx.array) -> mx.array:
        count = self._experts.per_token
        shares = mx.softmax(self._router(x).astype(mx.float32), axis=-1)
        chosen = mx.stop_gradient(mx.argpartition(-shares, count - 1, axis=-1)[..., :count])
        shares = mx.take_along_axis(shares, chosen, axis=-1)
        if self._experts.normalized:
            shares = shares / shares.sum(axis=-1, keepdims=True)
        y = self._outputs(x, chosen)
        return (y * shares.astype(y.dtype)[..., None]).sum(axis=-2)

    def _outputs(self, x: mx.array, chosen: mx.array) -> mx.array:
        """Shape (batch, tokens, experts a token, dims)."""
        if chosen.size < SORTED_PAIRS_MIN:
            return self._through(x[..., None, None, :], chosen, False).squeeze(-2)
        pairs = chosen.flatten()
        order = mx.argsort(pairs)
        rows = x.reshape(-1, x.shape[-1])[order // self._experts.per_token]
        sorted_outputs = self._through(rows[:, None], pairs[order], True).squeeze(-2)
        return sorted_outputs[mx.argsort(order)].reshape(*chosen.shape, -1)

    def _through(self, x: mx.array, indices: mx.array, ascending: bool) -> mx.array:
        gate, up = self._gate(x, indices, ascending), self._up(x, indices, ascending)
        return self._down(_gated(gate, up, self._activation), indices, ascending)


def _norm(weights: Weights, name: str, length: int, config: TransformerConfig) -> mx.array:
    weight = weights.vector(f"{name}.weight", length)
    return weight + config.norm_shift if config.norm_shift else weight


def _gated(gate: mx.array, up: mx.array, activation: str) -> mx.array:
    if activation == "silu":
        return gate * mx.sigmoid(gate) * up
    # The tanh form of GELU: Hendrycks and Gimpel 2016.
    return 0.5 * gate * (1 + mx.tanh(0.7978845608028654 * (gate + 0.044715 * gate * gate * gate))) * up
