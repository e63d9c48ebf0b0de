"""``outlive bench lm``: one model, one prompt of random tokens, us and llama.cpp."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from outlive.cli.bench.child import check_device, run_json
from outlive.cli.bench.hardware import describe
from outlive.cli.errors import say
from outlive.cli.progress import make_progress
from outlive.io.errors import UserError
from outlive.lm.sources import resolve

_MEASURED = ("prefill_tokens_per_s", "decode_tokens_per_s", "first_token_s")


def bench_lm(
    model: str, prefill: int, decode: int, repeats: int, device: str, as_json: bool, peer_python: str | None
) -> None:
    """Measure and print medians of ``repeats`` runs after one that is not counted; the spread is lowest to highest."""
    for option, value in (("--prefill", prefill), ("--decode", decode), ("--repeats", repeats)):
        if value < 1:
            raise UserError(f"{option} is {value}, but must be at least 1")
    check_device(device)
    path = resolve(model, make_progress())
    sizes = [str(path), "--prefill", str(prefill), "--decode", str(decode), "--repeats", str(repeats)]
    ours = _summary(run_json([sys.executable, "-m", "outlive.cli.bench.lm_worker", *sizes, "--device", device]))
    result = {"benchmark": "lm", "model": path.name, "prefill": prefill, "decode": decode, "device": device, **ours}
    if peer_python is not None:
        peer = _summary(run_json([peer_python, str(Path(__file__).with_name("llama_cpp_worker.py")), *sizes]))
        result["peer"] = peer
        result["ratio"] = {
            "prefill": ours["prefill_tokens_per_s"] / peer["prefill_tokens_per_s"],
            "decode": ours["decode_tokens_per_s"] / peer["decode_tokens_per_s"],
        }
    result["machine"] = describe()
    if as_json:
        print(json.dumps(result, indent=1))
    else:
        _print_table(result)


def _summary(report: dict[str, Any]) -> dict[str, Any]:
    """Medians and spreads of a worker's runs, beside what it says about itself."""
    runs: Sequence[dict[str, float]] = report.pop("runs")
    columns = {name: [run[name] for run in runs] for name in _MEASURED}
    medians = {name: statistics.median(values) for name, values in columns.items()}
    spreads = {name: [min(values), max(values)] for name, values in columns.items()}
    return {**report, **medians, "spread": spreads, "runs": len(runs)}


def _print_table(result: dict[str, Any]) -> None:
    machine = result["machine"]
    print(f"{result['model']} on {result['device']}: {result['prefill']} tokens in, {result['decode']} decoded")
    print(f"{machine['processor']}, {machine['processors_usable']} processors, load {machine['load_average_1min']}")
    for side in (result, result.get("peer")):
        if side is None:
            continue
        print(f"{side['library']} {side['version']}")
        for name in _MEASURED:
            low, high = side["spread"][name]
            print(f"  {name:22s} {side[name]:10.3f}  ({low:.3f} to {high:.3f}, {side['runs']} runs)")
        print(f"  {'peak_bytes':22s} {side['peak_bytes']:10d}")
    if "ratio" in result:
        print(f"ratio: prefill {result['ratio']['prefill']:.2f}, decode {result['ratio']['decode']:.2f}")
    else:
        say("no peer: give --peer-python a Python that has llama-cpp-python")
