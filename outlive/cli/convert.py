"""``outlive convert``: any model as an MLX folder."""

from __future__ import annotations

from pathlib import Path

import outlive.core as mx
from outlive.cli.errors import say
from outlive.cli.progress import amount, make_progress
from outlive.io.errors import UserError
from outlive.lm.convert import ConvertOptions
from outlive.lm.convert import convert as write
from outlive.lm.quantization import Quantization
from outlive.lm.sources import resolve


def convert(
    source: str, target: Path, revision: str | None, quantize: str | None, dequantize: bool, dtype: str | None
) -> None:
    """Convert, and say what was written."""
    if quantize is not None and dequantize:
        raise UserError("--quantize and --dequantize do not go together; give one of them")
    if dtype not in (None, "float32", "float16", "bfloat16"):
        raise UserError(f"--dtype is {dtype!r}, but must be float32, float16 or bfloat16")
    options = ConvertOptions(
        None if quantize is None else Quantization.parse(quantize),
        dequantize,
        None if dtype is None else getattr(mx, dtype),
    )
    progress = make_progress()
    write(resolve(source, progress, revision=revision), target, options, progress)
    total = sum(path.stat().st_size for path in target.iterdir())
    say(f"wrote {target}: {amount(total, 'bytes')}, digests in SHA256SUMS")
