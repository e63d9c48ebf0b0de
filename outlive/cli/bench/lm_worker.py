"""Measures our own language model; a program of its own so that nothing else shares its process.

usage: lm_worker.py MODEL_FILE --prefill N --decode N --repeats N --device cpu|gpu --json FILE
"""

from __future__ import annotations

import argparse
import json
import resource
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import outlive.core as mx
from outlive import __version__
from outlive.lm.families import Network
from outlive.lm.generation import GenerationStats, generate_tokens
from outlive.lm.loading import load
from outlive.lm.progress import Silent
from outlive.lm.sampling import Sampler


def measure(network: Network, ids: Sequence[int], decode: int) -> dict[str, float]:
    """One greedy run over ``ids`` and ``decode`` steps; the first token counts to the prefill."""
    stats = GenerationStats()
    for _ in generate_tokens(network, ids, Sampler(), max_tokens=decode + 1, ends=(), progress=Silent(), stats=stats):
        pass
    return {
        "prefill_tokens_per_s": stats.prefill_tokens_per_s,
        "decode_tokens_per_s": stats.decode_tokens_per_s,
        "first_token_s": stats.first_token_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    for name in ("--prefill", "--decode", "--repeats"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    mx.set_default_device(getattr(mx, args.device))
    network = load(args.model).network
    ids = np.random.default_rng(0).integers(0, network.vocabulary_size, args.prefill).tolist()
    measure(network, ids, args.decode)
    runs = [measure(network, ids, args.decode) for _ in range(args.repeats)]
    report = {
        "library": "outlive",
        "version": __version__,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "peak_array_bytes": mx.get_peak_memory(),
        "runs": runs,
    }
    args.json.write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    main()
