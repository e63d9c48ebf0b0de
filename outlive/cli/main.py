"""The commands and their options. Each loads what it needs when it is called, so that help appears at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outlive import __version__
from outlive.cli.bench.commands import bench
from outlive.cli.devices import DeviceOption, choose_device
from outlive.cli.errors import reported
from outlive.cli.model_commands import (
    CHAT_EXAMPLES,
    CONVERT_EXAMPLES,
    GENERATE_EXAMPLES,
    chat,
    convert,
    generate,
    models,
    perplexity,
)
from outlive.io.errors import UserError

app = typer.Typer(
    help="Arrays and language models on Linux CPUs and NVIDIA GPUs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(bench, name="bench")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"outlive {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


app.command(epilog=GENERATE_EXAMPLES)(generate)
app.command(epilog=CHAT_EXAMPLES)(chat)
app.command()(perplexity)
app.command(epilog=CONVERT_EXAMPLES)(convert)
app.add_typer(models, name="models")


@app.command(context_settings={"ignore_unknown_options": True})
def run(
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help="A Python file.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARG ...]", help="Passed to the program.")] = None,
    device: DeviceOption = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Find the smallest memory cap under which the program completes.")
    ] = False,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Write a timeline of the run in Perfetto's format.")
    ] = None,
) -> None:
    """Run a Python program; what follows a -- goes to the program even if it looks like an option of this command."""
    from outlive.cli.run_program import check_program, check_writable, run_program

    with reported():
        check_program(program)
        if calibrate:
            from outlive.cli.calibrate import calibrate as search

            search(program, arguments or [], device)
            raise typer.Exit
        choose_device(device)
        if trace is not None:
            check_writable(trace)
    if trace is None:
        raise typer.Exit(run_program(program, arguments or []))
    from outlive.check.timeline import timeline

    with timeline(trace):
        status = run_program(program, arguments or [])
    raise typer.Exit(status)


@app.command(context_settings={"ignore_unknown_options": True})
def check(
    program: Annotated[str | None, typer.Argument(metavar="[PROGRAM]", help="A Python file.")] = None,
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARG ...]", help="Passed to the program.")] = None,
    schedules: Annotated[int, typer.Option("--schedules", metavar="N", help="How many schedules to run.")] = 200,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="Where their decisions come from.")] = 0,
    profile: Annotated[
        str, typer.Option("--profile", metavar="P", help="Whose rules the simulated device follows.")
    ] = "sim",
    faults: Annotated[bool, typer.Option("--faults", help="Let allocations and launches fail now and then.")] = False,
    html: Annotated[str | None, typer.Option("--html", metavar="FILE", help="Write the report as one page.")] = None,
    trace: Annotated[
        str | None, typer.Option("--trace", metavar="FILE", help="Write a finding's timeline for Perfetto.")
    ] = None,
    replay: Annotated[
        str | None, typer.Option("--replay", metavar="SCHEDULE", help="Run the schedule of a report again.")
    ] = None,
    poison: Annotated[
        str, typer.Option("--poison", metavar="BYTE", help="What fresh memory holds in a replay.")
    ] = "0xff",
    mutants: Annotated[
        bool, typer.Option("--mutants", help="Check the checker: try every known fault of the runtime.")
    ] = False,
    trials: Annotated[int, typer.Option("--trials", metavar="N", help="Trials of each mutant.")] = 5,
    table: Annotated[
        str | None, typer.Option("--table", metavar="FILE", help="Write the mutants' table there.")
    ] = None,
) -> None:
    """Run a program under an adversary's schedules, and report every buffer that could be lost."""
    with reported():
        from outlive.check.command import check_file, check_mutants

        if mutants:
            raise typer.Exit(check_mutants(trials, seed or 1, table))
        if program is None:
            raise UserError("there is nothing to check; give the path of a Python file, or --mutants")
        status = check_file(
            program, arguments or [], schedules=schedules, seed=seed, profile=profile, faults=faults, html=html, timeline=trace,
            schedule=replay, poison=poison,
        )  # fmt: skip
    raise typer.Exit(status)


@app.command()
def doctor(
    api: Annotated[bool, typer.Option("--api", help="Show how each name of MLX's API stands here.")] = False,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="mlx==VERSION", help="With --api: install that version and ask it."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Show versions, devices and caches, and what to do about what is missing."""
    with reported():
        if api or against:
            from outlive.cli.api_coverage import report as report_api

            raise typer.Exit(1 if report_api(against) else 0)
        from outlive.cli.doctor import doctor as report

        report(as_json)


@app.command()
def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print a script that completes commands and options; for bash: eval "$(outlive completion bash)"."""
    with reported():
        if shell not in ("bash", "zsh", "fish"):
            raise UserError(f"there is no completion for {shell!r}; choose bash, zsh or fish")
        from typer.completion import get_completion_script

        app_name = "outlive"
        # The name under which typer asks for completions of a program.
        variable = f"_{app_name}_complete".upper()
        print(get_completion_script(prog_name=app_name, complete_var=variable, shell=shell))


def main() -> None:
    """The entry point of the ``outlive`` command."""
    app()
