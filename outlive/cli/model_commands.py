"""The commands about language models and their options; each loads what it needs when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outlive.cli.devices import DeviceOption
from outlive.cli.errors import reported
from outlive.cli.options import (
    BiasOption,
    FrequencyOption,
    KVBitsOption,
    MaxKVSizeOption,
    MaxTokensOption,
    MinPOption,
    ModelOption,
    PresenceOption,
    QuantizeOption,
    RepetitionOption,
    RevisionOption,
    SamplingArguments,
    SeedOption,
    StopOption,
    SystemOption,
    TemperatureOption,
    TopKOption,
    TopPOption,
    TypicalPOption,
    VerboseOption,
)
from outlive.lm import DEFAULT_SOURCE

GENERATE_EXAMPLES = """Examples:

outlive generate "Why is the sky blue?"

outlive generate --model hf:Qwen/Qwen3-0.6B --quantize affine4 --temperature 0.7 --top-p 0.9 "A haiku"

git diff | outlive generate --system "Write a commit message" -
"""
CHAT_EXAMPLES = """Inside: /help lists the commands. Ctrl-C stops an answer, Ctrl-D ends the chat."""
CONVERT_EXAMPLES = """Examples:

outlive convert hf:Qwen/Qwen3-0.6B qwen3-4bit --quantize affine4

outlive convert model.gguf model-mlx
"""


def generate(
    prompt: Annotated[
        str | None, typer.Argument(metavar="[PROMPT]", help="What to say to the model; - reads standard input.")
    ] = None,
    model: ModelOption = DEFAULT_SOURCE,
    revision: RevisionOption = None,
    quantize: QuantizeOption = None,
    device: DeviceOption = None,
    prompt_file: Annotated[
        Path | None, typer.Option("--prompt-file", metavar="FILE", help="Read the prompt from FILE.")
    ] = None,
    system: SystemOption = None,
    messages: Annotated[
        Path | None, typer.Option("--messages", metavar="FILE", help="A JSON list of messages before the prompt.")
    ] = None,
    tools: Annotated[
        Path | None, typer.Option("--tools", metavar="FILE", help="A JSON list of functions that the model may call.")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the prompt as it is, without the chat template.")
    ] = False,
    max_tokens: MaxTokensOption = 256,
    stop: StopOption = None,
    temperature: TemperatureOption = 0.0,
    top_k: TopKOption = 0,
    top_p: TopPOption = 1.0,
    min_p: MinPOption = 0.0,
    typical_p: TypicalPOption = 1.0,
    repetition_penalty: RepetitionOption = 1.0,
    presence_penalty: PresenceOption = 0.0,
    frequency_penalty: FrequencyOption = 0.0,
    logit_bias: BiasOption = None,
    seed: SeedOption = None,
    logprobs: Annotated[
        int | None,
        typer.Option("--logprobs", metavar="N", help="Tell each token's log-probability and the N likeliest."),
    ] = None,
    prompt_cache: Annotated[
        Path | None, typer.Option("--prompt-cache", metavar="FILE", help="Go on from a saved cache.")
    ] = None,
    save_prompt_cache: Annotated[
        Path | None, typer.Option("--save-prompt-cache", metavar="FILE", help="Save the keys and values afterwards.")
    ] = None,
    max_kv_size: MaxKVSizeOption = None,
    kv_bits: KVBitsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object at the end instead of text.")] = False,
    verbose: VerboseOption = False,
) -> None:
    """Answer PROMPT: the text on standard output, progress on standard error."""
    with reported():
        from outlive.cli.generate import GenerateOptions
        from outlive.cli.generate import generate as run
        from outlive.cli.options import cache_options

        sampling = SamplingArguments(
            temperature, top_k, top_p, min_p, typical_p, repetition_penalty, presence_penalty, frequency_penalty,
            logit_bias or [], seed,
        )  # fmt: skip
        options = GenerateOptions(
            prompt, model, revision, quantize, device, prompt_file, system, messages, tools, raw, max_tokens,
            stop or [], sampling, logprobs, prompt_cache, save_prompt_cache, cache_options(max_kv_size, kv_bits),
            as_json, verbose,
        )  # fmt: skip
        status = run(options)
    raise typer.Exit(status)


def chat(
    model: ModelOption = DEFAULT_SOURCE,
    revision: RevisionOption = None,
    quantize: QuantizeOption = None,
    device: DeviceOption = None,
    system: SystemOption = None,
    max_tokens: MaxTokensOption = 1024,
    stop: StopOption = None,
    temperature: TemperatureOption = 0.0,
    top_k: TopKOption = 0,
    top_p: TopPOption = 1.0,
    min_p: MinPOption = 0.0,
    typical_p: TypicalPOption = 1.0,
    repetition_penalty: RepetitionOption = 1.0,
    presence_penalty: PresenceOption = 0.0,
    frequency_penalty: FrequencyOption = 0.0,
    logit_bias: BiasOption = None,
    seed: SeedOption = None,
    max_kv_size: MaxKVSizeOption = None,
    kv_bits: KVBitsOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Talk with a model; each answer sees the conversation so far."""
    with reported():
        from outlive.cli.chat import ChatOptions
        from outlive.cli.chat import chat as run
        from outlive.cli.options import cache_options

        sampling = SamplingArguments(
            temperature, top_k, top_p, min_p, typical_p, repetition_penalty, presence_penalty, frequency_penalty,
            logit_bias or [], seed,
        )  # fmt: skip
        options = ChatOptions(
            model, revision, quantize, device, system, max_tokens, stop or [], sampling,
            cache_options(max_kv_size, kv_bits), verbose,
        )  # fmt: skip
        run(options)


def perplexity(
    text: Annotated[str, typer.Argument(metavar="FILE", help="A text file; - reads standard input.")],
    model: ModelOption = DEFAULT_SOURCE,
    revision: RevisionOption = None,
    quantize: QuantizeOption = None,
    device: DeviceOption = None,
    context: Annotated[int, typer.Option("--context", metavar="N", help="Tokens of a piece.")] = 512,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Tell how well a model predicts a text."""
    with reported():
        from outlive.cli.perplexity import perplexity as run

        run(text, model, revision, quantize, device, context, as_json)


def convert(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="What --model of 'generate' takes.")],
    target: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that is not there yet.")],
    revision: RevisionOption = None,
    quantize: QuantizeOption = None,
    dequantize: Annotated[bool, typer.Option("--dequantize", help="Write quantized matrices as plain ones.")] = False,
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", metavar="T", help="float32, float16 or bfloat16, for what is not quantized."),
    ] = None,
) -> None:
    """Write a model as an MLX folder, quantized or not."""
    with reported():
        from outlive.cli.convert import convert as run

        run(source, target, revision, quantize, dequantize, dtype)


models = typer.Typer(help="Show or remove cached models.", rich_markup_mode=None)


@models.callback(invoke_without_command=True)
def list_models(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list instead of text.")] = False,
) -> None:
    """Show which models are cached, with format and size; 'outlive models rm SOURCE' removes one."""
    if context.invoked_subcommand is None:
        with reported():
            from outlive.cli.models import show

            show(as_json)


@models.command("rm")
def remove(
    source: Annotated[list[str], typer.Argument(metavar="SOURCE ...", help="As 'outlive models' lists them.")],
) -> None:
    """Remove models from their cache."""
    with reported():
        from outlive.cli.models import remove as run

        run(source)
