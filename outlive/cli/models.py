"""``outlive models``: what is cached, and removing it."""

from __future__ import annotations

import json

from outlive.cli.errors import say
from outlive.cli.progress import amount
from outlive.lm.library import cached_models, remove_model


def show(as_json: bool) -> None:
    """A line for each model: source, formats, size."""
    found = cached_models()
    if as_json:
        entries = [
            {"source": model.source, "formats": model.formats, "bytes": model.nbytes, "path": str(model.path)}
            for model in found
        ]
        print(json.dumps(entries, indent=1))
        return
    if not found:
        say("no models are cached; 'outlive generate' fetches one")
    width = max((len(model.source) for model in found), default=0)
    for model in found:
        print(f"{model.source:<{width}}  {'+'.join(model.formats) or '?':<11}  {amount(model.nbytes, 'bytes'):>12}")


def remove(sources: list[str]) -> None:
    """Remove each, and say what that freed."""
    for source in sources:
        removed = remove_model(source)
        say(f"removed {removed.source}: {amount(removed.nbytes, 'bytes')}")
