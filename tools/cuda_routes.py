"""Writes docs/cuda-routes.md: which way each op takes on a GPU, by type, as the device chose it. Needs a GPU.

usage: PYTHONPATH=. python tools/cuda_routes.py [FILE]
"""

from __future__ import annotations

import sys
from collections import defaultdict

import outlive.core as mx
from outlive.graph import state
from tests.cuda.test_gpu import CASES, run

HEAD = """# Routes of ops on a GPU

Written by `tools/cuda_routes.py` on {name} from the calls of the GPU tests. A route is a compiled kernel of ours (CUDA
C or Triton), cuBLAS, CuPy (the op's reference kernel on the device), or the host (the same reference kernel on host
copies, in the stream's order). Types are those of the operands and results; complex numbers and whatever is not listed
take CuPy, or the host where CuPy refuses.

| op | route | types |
|---|---|---|
"""


def main() -> None:
    for _, call, inputs, dtype in CASES:
        run(call, inputs, dtype, mx.gpu)
    device = state.backend(state.Device(state.gpu))
    rows: dict[tuple[str, str], set[str]] = defaultdict(set)
    for op, types, route in device.routes():
        rows[op, route].update(types.split(", "))
    text = HEAD.format(name=device.facts.name)
    for (op, route), types in sorted(rows.items()):
        text += f"| {op} | {route} | {', '.join(sorted(types))} |\n"
    if device.host_routes:
        text += "\nCuPy refused, so that the host serves:\n\n"
        text += "".join(f"- {', '.join(route)}: {reason}\n" for route, reason in sorted(device.host_routes.items()))
    with open(sys.argv[1] if len(sys.argv) > 1 else "docs/cuda-routes.md", "w") as file:
        file.write(text)


if __name__ == "__main__":
    main()
