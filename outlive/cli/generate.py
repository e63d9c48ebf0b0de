"""``outlive generate``: answer one prompt."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import outlive.core as mx
from outlive.cli.devices import choose_device
from outlive.cli.errors import EXIT_INTERRUPTED, say
from outlive.cli.options import SamplingArguments
from outlive.cli.progress import make_progress
from outlive.cli.texts import read_messages, read_text, read_tools
from outlive.io.errors import UserError
from outlive.lm.cache import CacheOptions
from outlive.lm.generation import GenerationStats
from outlive.lm.loading import load
from outlive.lm.model import LanguageModel, Piece
from outlive.lm.progress import Progress
from outlive.lm.prompt_cache import PromptCache, identity_of
from outlive.lm.sampling import Sampler


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """The options of one call, named as on the command line."""

    prompt: str | None
    model: str
    revision: str | None
    quantize: str | None
    device: str | None
    prompt_file: Path | None
    system: str | None
    messages: Path | None
    tools: Path | None
    raw: bool
    max_tokens: int
    stop: list[str]
    sampling: SamplingArguments
    logprobs: int | None
    prompt_cache: Path | None
    save_prompt_cache: Path | None
    cache: CacheOptions
    json: bool
    verbose: bool


def generate(options: GenerateOptions) -> int:
    """Stream the answer to standard output, all else to standard error; returns the exit status."""
    if options.max_tokens < 1:
        raise UserError(f"--max-tokens is {options.max_tokens}, but at least 1 token must be asked for")
    sampler = options.sampling.sampler(options.logprobs)
    conversation = _conversation(options)
    tools = None if options.tools is None else read_tools(options.tools)
    choose_device(options.device)
    progress = make_progress()
    model = load(options.model, quantize=options.quantize, revision=options.revision, progress=progress)
    ids = _encode(model, options, conversation, tools, progress)
    cache = _open_cache(model, options)
    stats = GenerationStats()
    pieces = model.generate(
        ids,
        max_tokens=options.max_tokens,
        sampler=sampler,
        stop=options.stop,
        cache=cache,
        progress=progress,
        stats=stats,
    )
    shown = Shown(model)
    interrupted = print_pieces(shown.watch(pieces), quiet=options.json)
    if options.save_prompt_cache is not None:
        cache.save(options.save_prompt_cache, identity_of(model.name, model.network))
    if options.json:
        print(json.dumps(_as_json(model, sampler, stats, shown, interrupted), ensure_ascii=False))
    elif options.logprobs is not None:
        for entry in shown.tokens:
            say(json.dumps(entry, ensure_ascii=False))
    if options.verbose:
        report(model, sampler, stats, interrupted)
    return EXIT_INTERRUPTED if interrupted else 0


def _conversation(options: GenerateOptions) -> list[dict[str, Any]] | str:
    """Messages, or the text itself for ``--raw``."""
    prompt = _prompt(options)
    if options.raw:
        if options.system is not None or options.messages is not None or options.tools is not None:
            raise UserError("--raw continues the prompt as it is: --system, --messages and --tools do not go with it")
        return prompt or ""
    messages = [] if options.system is None else [{"role": "system", "content": options.system}]
    messages += [] if options.messages is None else read_messages(options.messages)
    return messages + ([] if prompt is None else [{"role": "user", "content": prompt}])


def _prompt(options: GenerateOptions) -> str | None:
    """The prompt's text; None where the messages are all there is."""
    if options.prompt is not None and options.prompt_file is not None:
        raise UserError("PROMPT and --prompt-file are both given; give one of them")
    if options.prompt_file is not None:
        prompt = read_text(options.prompt_file)
    elif options.prompt == "-":
        prompt = read_text(None)
    elif options.prompt is None:
        if options.messages is not None:
            return None
        raise UserError("there is no PROMPT; give one, - for standard input, --prompt-file or --messages")
    else:
        prompt = options.prompt
    if not prompt.strip():
        raise UserError("PROMPT is empty; give some text")
    return prompt


def _encode(
    model: LanguageModel,
    options: GenerateOptions,
    conversation: list[dict[str, Any]] | str,
    tools: list[dict[str, Any]] | None,
    progress: Progress,
) -> list[int]:
    if isinstance(conversation, str):
        return model.tokenizer.encode(conversation)
    if model.chat_template is None and len(conversation) == 1 and options.messages is None:
        progress.note(f"{model.name} has no chat template: it continues the prompt as plain text")
        return model.tokenizer.encode(conversation[0]["content"])
    return model.encode(conversation, tools=tools)


def _open_cache(model: LanguageModel, options: GenerateOptions) -> PromptCache:
    if options.prompt_cache is None:
        return PromptCache(model.network, options.cache)
    return PromptCache.load(options.prompt_cache, model.network, identity_of(model.name, model.network), options.cache)


@dataclass(slots=True)
class Shown:
    """What an answer consisted of: its text, and its tokens as they stand in JSON."""

    model: LanguageModel
    text: str = ""
    tokens: list[dict[str, Any]] = field(default_factory=list)

    def watch(self, pieces: Iterable[Piece]) -> Iterable[str]:
        """The pieces' texts, remembered as they pass."""
        for piece in pieces:
            self.text += piece.text
            if piece.token is not None:
                entry: dict[str, Any] = self._entry(piece.token.id)
                if piece.token.logprob is not None:
                    entry["logprob"] = piece.token.logprob
                    best = piece.token.alternatives
                    entry["top_logprobs"] = [{**self._entry(token), "logprob": logprob} for token, logprob in best]
                self.tokens.append(entry)
            yield piece.text

    def _entry(self, token: int) -> dict[str, Any]:
        return {"id": token, "token": self.model.tokenizer.token_text(token)}


def print_pieces(pieces: Iterable[str], *, quiet: bool = False) -> bool:
    """Write pieces as they come and end the line; returns whether the user interrupted, which keeps what there is."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show a character must not end the answer
    interrupted = False
    try:
        for piece in pieces:
            if not quiet and piece:
                sys.stdout.write(piece)
                sys.stdout.flush()
    except KeyboardInterrupt:
        interrupted = True
    if not quiet:
        sys.stdout.write("\n")
        sys.stdout.flush()
    if interrupted:
        say("outlive: interrupted")
    return interrupted


def _as_json(
    model: LanguageModel, sampler: Sampler, stats: GenerationStats, shown: Shown, interrupted: bool
) -> dict[str, Any]:
    return {
        "model": model.name,
        "text": shown.text,
        "tokens": shown.tokens,
        "finish_reason": "interrupted" if interrupted else stats.finish_reason,
        "prompt_tokens": stats.prompt_tokens,
        "reused_tokens": stats.reused_tokens,
        "generated_tokens": stats.generated_tokens,
        "seed": sampler.seed if sampler.temperature > 0 else None,
        "first_token_s": stats.first_token_s,
        "decode_tokens_per_s": stats.decode_tokens_per_s,
    }


def report(model: LanguageModel, sampler: Sampler, stats: GenerationStats, interrupted: bool) -> None:
    """Speed and memory, on standard error."""
    say(f"model: {model.name}" + (f" (license: {model.license})" if model.license else ""))
    say(f"device: {mx.default_device()}")
    if sampler.temperature > 0:
        say(f"temperature: {sampler.temperature}, seed: {sampler.seed}")
    reused = f" ({stats.reused_tokens} of them cached)" if stats.reused_tokens else ""
    say(f"prompt: {stats.prompt_tokens} tokens{reused}, first token after {stats.first_token_s:.2f} s")
    say(f"answer: {stats.generated_tokens} tokens, {stats.decode_tokens_per_s:.1f} tokens/s")
    reasons = {
        "end": "the model ended it",
        "length": "--max-tokens reached",
        "context": "the context is full",
        "stop": "a stop string came",
    }
    say(f"finished: {'interrupted' if interrupted else reasons.get(stats.finish_reason or '', 'unfinished')}")
    say(f"peak array memory: {mx.get_peak_memory() / 1e6:.1f} MB")
