"""Measures llama.cpp on the same file and the same kind of prompt; needs llama-cpp-python and nothing of ours.

usage: llama_cpp_worker.py MODEL_FILE --prefill N --decode N --repeats N --json FILE
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from pathlib import Path

import llama_cpp
import numpy as np


def greedy(model: llama_cpp.Llama) -> int:
    """The likeliest next token, found by NumPy: the library's own sampler builds 10^5 Python-side candidates."""
    logits = llama_cpp.llama_get_logits_ith(model.ctx, -1)
    return int(np.ctypeslib.as_array(logits, shape=(model.n_vocab(),)).argmax())


def measure(model: llama_cpp.Llama, ids: list[int], decode: int) -> dict[str, float]:
    """One greedy run over ``ids`` and ``decode`` steps; the first token counts to the prefill."""
    model.reset()
    start = time.perf_counter()
    model.eval(ids)
    token = greedy(model)
    first = time.perf_counter()
    for _ in range(decode):
        model.eval([token])
        token = greedy(model)
    end = time.perf_counter()
    return {
        "prefill_tokens_per_s": len(ids) / (first - start),
        "decode_tokens_per_s": decode / (end - first),
        "first_token_s": first - start,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    for name in ("--prefill", "--decode", "--repeats"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    model = llama_cpp.Llama(
        str(args.model),
        n_ctx=args.prefill + args.decode + 1,
        n_batch=512,
        n_threads=threads,
        n_threads_batch=threads,
        verbose=False,
    )
    ids = np.random.default_rng(0).integers(0, model.n_vocab(), args.prefill).tolist()
    measure(model, ids, args.decode)
    runs = [measure(model, ids, args.decode) for _ in range(args.repeats)]
    report = {
        "library": "llama.cpp",
        "version": f"llama-cpp-python {llama_cpp.__version__}",
        "system": llama_cpp.llama_print_system_info().decode(),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "runs": runs,
    }
    args.json.write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    main()
