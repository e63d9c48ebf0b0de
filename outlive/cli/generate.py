"""``outlive generate``: answer one prompt."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass

import outlive.core as mx
from outlive.cli.devices import choose_device
from outlive.cli.errors import EXIT_INTERRUPTED, say
from outlive.cli.progress import make_progress
from outlive.io.errors import UserError
from outlive.lm.generation import GenerationStats
from outlive.lm.loading import load
from outlive.lm.model import LanguageModel
from outlive.lm.sampling import Sampler


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """The options of one call, named as on the command line."""

    prompt: str
    model: str
    device: str | None
    max_tokens: int
    temperature: float
    seed: int | None
    verbose: bool


def generate(options: GenerateOptions) -> int:
    """Stream the answer to standard output, all else to standard error; returns the exit status."""
    if not options.prompt.strip():
        raise UserError("PROMPT is empty; give some text")
    if options.max_tokens < 1:
        raise UserError(f"--max-tokens is {options.max_tokens}, but at least 1 token must be asked for")
    sampler = Sampler(options.temperature, options.seed)
    choose_device(options.device)
    progress = make_progress()
    model = load(options.model, progress=progress)
    if model.chat_template is None:
        progress.note(f"{model.name} has no chat template: it continues the prompt as plain text")
    stats = GenerationStats()
    pieces = model.stream(
        options.prompt, max_tokens=options.max_tokens, sampler=sampler, progress=progress, stats=stats
    )
    interrupted = _print_stream(pieces)
    if options.verbose:
        _report(model, sampler, stats, interrupted)
    return EXIT_INTERRUPTED if interrupted else 0


def _print_stream(pieces) -> bool:
    """Write pieces as they come and end the line; returns whether the user interrupted, which keeps what there is."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show a character must not end the answer
    interrupted = False
    try:
        for piece in pieces:
            sys.stdout.write(piece)
            sys.stdout.flush()
    except KeyboardInterrupt:
        interrupted = True
    sys.stdout.write("\n")
    sys.stdout.flush()
    if interrupted:
        say("outlive: interrupted")
    return interrupted


def _report(model: LanguageModel, sampler: Sampler, stats: GenerationStats, interrupted: bool) -> None:
    say(f"model: {model.name}" + (f" (license: {model.license})" if model.license else ""))
    say(f"device: {mx.default_device()}")
    if sampler.temperature > 0:
        say(f"temperature: {sampler.temperature}, seed: {sampler.seed}")
    say(f"prompt: {stats.prompt_tokens} tokens, first token after {stats.first_token_s:.2f} s")
    say(f"answer: {stats.generated_tokens} tokens, {stats.decode_tokens_per_s:.1f} tokens/s")
    reasons = {"end": "the model ended it", "length": "--max-tokens reached", "context": "the context is full"}
    say(f"finished: {'interrupted' if interrupted else reasons.get(stats.finish_reason or '', 'unfinished')}")
    say(f"peak array memory: {mx.get_peak_memory() / 1e6:.1f} MB")
