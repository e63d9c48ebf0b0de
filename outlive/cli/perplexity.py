"""``outlive perplexity``: how well a model predicts a text."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from outlive.cli.devices import choose_device
from outlive.cli.progress import make_progress
from outlive.cli.texts import read_text
from outlive.lm.loading import load
from outlive.lm.perplexity import perplexity as measure


def perplexity(
    text: str, source: str, revision: str | None, quantize: str | None, device: str | None, context: int, as_json: bool
) -> None:
    """Print the perplexity of a file or of standard input (``-``)."""
    content = read_text(None if text == "-" else Path(text))
    choose_device(device)
    progress = make_progress()
    model = load(source, quantize=quantize, revision=revision, progress=progress)
    found = measure(model.network, model.tokenizer.encode(content), context, progress)
    if as_json:
        print(json.dumps({"model": model.name, "context": context, **asdict(found)}))
    else:
        print(f"perplexity: {found.value:.4f} +- {found.error:.4f} over {found.tokens} tokens")
