"""Benchmarks run in child processes: each library alone in its own, under the same conditions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from outlive.io.errors import UserError

# Together they make OpenBLAS choose kernels for another machine than this one; either peer or we would suffer.
_MISLEADING_VARIABLES = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


def run_json(command: Sequence[str], *, failure_allowed: bool = False) -> dict[str, Any]:
    """Run ``command`` with ``--json FILE`` and return what it wrote there; its output is shown on standard error.

    ``failure_allowed``: a status above 0 is fine if there are results (single rows failed).

    Raises:
        UserError: if the command cannot be started or gives no results.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _MISLEADING_VARIABLES}
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "results.json"
        whole = [*command, "--json", str(output)]
        try:
            status = subprocess.run(whole, env=environment, stdout=sys.stderr.fileno(), check=False).returncode
        except OSError as error:
            raise UserError(f"cannot run {command[0]}: {error.strerror}; check --peer-python") from error
        if not output.exists() or (status and not failure_allowed):
            raise UserError(f"the benchmark under {command[0]} failed with status {status}; what it said is above")
        return json.loads(output.read_text(encoding="utf-8"))


def check_device(name: str) -> None:
    """Refuse an unknown device before any child is started."""
    if name not in ("cpu", "gpu"):
        raise UserError(f"--device is {name!r}, but must be cpu or gpu")
