"""How well a model predicts a text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import outlive.core as mx
from outlive.lm.errors import PromptError
from outlive.lm.families import Network
from outlive.lm.progress import Progress


@dataclass(frozen=True, slots=True)
class Perplexity:
    """exp of the mean negative log-likelihood of ``tokens`` tokens; ``error`` is one standard error of it."""

    value: float
    error: float
    tokens: int


def perplexity(network: Network, ids: Sequence[int], context: int, progress: Progress) -> Perplexity:
    """Of the text ``ids`` in pieces of ``context`` tokens, each token after a piece's first predicted from those before.

    Raises:
        PromptError: if ``context`` does not fit the model, or the text has fewer than two tokens.
    """
    if not 2 <= context <= network.context_length:
        raise PromptError(f"context is {context}, but must lie between 2 and the model's {network.context_length}")
    if len(ids) < 2:
        raise PromptError(f"the text has {len(ids)} tokens, but at least 2 are needed; give a longer one")
    losses: list[float] = []
    with progress.stage("perplexity", len(ids), "tokens") as advance:
        for begin in range(0, len(ids), context):
            piece = mx.array(ids[begin : begin + context], mx.uint32)
            if piece.size > 1:
                losses += _losses(network, piece).tolist()
            advance(piece.size)
    mean = math.fsum(losses) / len(losses)
    variance = math.fsum((loss - mean) ** 2 for loss in losses) / max(1, len(losses) - 1)
    value = math.exp(mean)
    return Perplexity(value, value * math.sqrt(variance / len(losses)), len(losses))


def _losses(network: Network, piece: mx.array) -> mx.array:
    logits = network.logits(network.hidden(piece[None, :-1], network.make_cache()))[0].astype(mx.float32)
    chosen = mx.take_along_axis(logits, piece[1:, None], axis=-1)[:, 0]
    return mx.logsumexp(logits, axis=-1) - chosen
