"""Run by the reference's interpreter: quantizes checkpoints with mlx-lm where asked, and writes the logits it computes.

The one argument is a JSON file with a list of jobs: folder, ids, out (an .npz), and optionally quantize (arguments of
mlx-lm's quantize_model; ``named`` maps layers to their own) with save (the folder to write).
"""

import copy
import json
import shutil
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm.utils import load_model, quantize_model, save_config, save_model


def perform(job: dict) -> None:
    model, config = load_model(Path(job["folder"]))
    if "quantize" in job:
        arguments = copy.deepcopy(job["quantize"])
        named = arguments.pop("named", None)
        inputs = arguments["group_size"]

        def predicate(path: str, module) -> bool | dict:
            if not hasattr(module, "to_quantized") or module.weight.shape[-1] % inputs:
                return False
            return True if named is None else named.get(path, True)

        model, config = quantize_model(model, config, quant_predicate=predicate, **arguments)
        target = Path(job["save"])
        save_model(target, model)
        save_config(config, target / "config.json")
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(Path(job["folder"]) / name, target / name)
    logits = model(mx.array(job["ids"])[None])[0]
    np.savez(job["out"], logits=np.array(logits.astype(mx.float32)))


def main() -> None:
    mx.set_default_device(mx.cpu)
    for job in json.loads(Path(sys.argv[1]).read_text()):
        perform(job)


if __name__ == "__main__":
    main()
