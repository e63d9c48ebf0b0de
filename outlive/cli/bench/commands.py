"""The options of ``outlive bench lm`` and ``outlive bench micro``."""

from __future__ import annotations

from typing import Annotated

import typer

from outlive.cli.errors import reported
from outlive.lm import DEFAULT_SOURCE

bench = typer.Typer(
    help="Measure speed, with a peer beside it in the same run.", no_args_is_help=True, rich_markup_mode=None
)

JsonOption = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]
PeerOption = Annotated[
    str | None, typer.Option("--peer-python", metavar="PATH", help="A Python whose environment has the peer.")
]


@bench.command()
def lm(
    model: Annotated[str, typer.Option("--model", metavar="SOURCE", help="As in generate.")] = DEFAULT_SOURCE,
    prefill: Annotated[int, typer.Option("--prefill", metavar="N", help="Tokens in the prompt.")] = 512,
    decode: Annotated[int, typer.Option("--decode", metavar="N", help="Tokens decoded after it.")] = 128,
    repeats: Annotated[int, typer.Option("--repeats", metavar="N", help="Runs after one to warm up.")] = 5,
    device: Annotated[str, typer.Option("--device", metavar="cpu|gpu", help="Where arrays are computed.")] = "cpu",
    json: JsonOption = False,
    peer_python: PeerOption = None,
) -> None:
    """A language model: prefill and decode speed; the peer is llama-cpp-python."""
    with reported():
        from outlive.cli.bench.lm import bench_lm

        bench_lm(model, prefill, decode, repeats, device, json, peer_python)


@bench.command()
def micro(
    device: Annotated[str, typer.Option("--device", metavar="cpu|gpu", help="Where arrays are computed.")] = "cpu",
    only: Annotated[str, typer.Option("--only", metavar="PREFIX,...", help="Only rows with these beginnings.")] = "",
    seconds: Annotated[float, typer.Option("--seconds", metavar="S", help="Time given to each row.")] = 2.0,
    json: JsonOption = False,
    peer_python: PeerOption = None,
) -> None:
    """Single operations; the peer is mlx."""
    with reported():
        from outlive.cli.bench.micro import bench_micro

        bench_micro(device, only, seconds, json, peer_python)
