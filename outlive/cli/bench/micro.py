"""``outlive bench micro``: single operations, us and mlx."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from outlive.cli.bench.child import check_device, run_json
from outlive.cli.bench.hardware import describe
from outlive.io.errors import UserError


def bench_micro(device: str, only: str, seconds: float, as_json: bool, peer_python: str | None) -> None:
    """Measure and print each row's median and spread (10th to 90th percentile), with the ratio to the peer."""
    if not seconds > 0:
        raise UserError(f"--seconds is {seconds}, but must be above 0")
    check_device(device)
    options = ["--device", device, "--only", only, "--seconds", str(seconds)]
    result = {"benchmark": "micro", "device": device, "machine": describe()}
    with tempfile.TemporaryDirectory() as folder:
        # A copy outside of the package: code inside it is no user's, and each op would look for the user's line further up.
        script = shutil.copy(Path(__file__).with_name("micro_workloads.py"), folder)
        result["outlive"] = run_json([sys.executable, script, "outlive.core", *options], failure_allowed=True)
        if peer_python is not None:
            result["peer"] = run_json([peer_python, script, "mlx.core", *options], failure_allowed=True)
    if as_json:
        print(json.dumps(result, indent=1))
    else:
        _print_table(result)


def _print_table(result: dict[str, Any]) -> None:
    machine = result["machine"]
    print(f"{machine['processor']}, {machine['processors_usable']} processors, load {machine['load_average_1min']}")
    peer_rows = {row["name"]: row for row in result.get("peer", {}).get("rows", [])}
    print(f"{'row':44s} {'ms':>11s} {'10th-90th percentile':>24s} {'peer ms':>11s} {'faster':>8s}")
    for row in result["outlive"]["rows"]:
        spread = f"{row['p10_ms']:.4f}-{row['p90_ms']:.4f}"
        line = f"{row['name']:44s} {row['ms']:11.4f} {spread:>24s}"
        if peer := peer_rows.get(row["name"]):
            line += f" {peer['ms']:11.4f} {peer['ms'] / row['ms']:7.2f}x"
        print(line)
