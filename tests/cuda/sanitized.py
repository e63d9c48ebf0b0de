"""The kernel calls that run under compute-sanitizer; a program of its own, since every call costs seconds there.

usage: compute-sanitizer --tool memcheck --error-exitcode 9 python -m tests.cuda.sanitized
"""

from __future__ import annotations

import sys

import numpy as np

import outlive.core as mx
from tests.cuda.test_gpu import CASES, run

NAMES = (
    "add-float32 add-bfloat16 add_row-float32 add_transposed-float16 tanh-float32 where-int32 cast-float32"
    " reshape-bfloat16 turned-float32 turned_cast-uint8 slice-int64 assign-float32 concatenate-float32 pad-float16"
    " sum_0-float32 sum_1-bfloat16 sum_2-float32 sum_None-int32 max_2-float32 softmax-bfloat16 cumsum-float32"
    " cummax-int32 rms_norm-bfloat16 layer_norm-float32 rope_False-float32 rope_transposed_True-bfloat16"
    " matmul_2_65-float32 matmul_4_7-bfloat16 quantized_4_64_1-bfloat16 quantized_4_64_5-bfloat16"
    " quantized_4_32_65-bfloat16 quantized_3_64_1-bfloat16 quantized_6_128_65-bfloat16 quantized_8_64_5-bfloat16"
).split()


def main() -> None:
    """Run each named call, a long chain and a long sum on the GPU."""
    mx.set_default_device(mx.gpu)
    by_name = {name: case for name, *case in CASES}
    missing = [name for name in NAMES if name not in by_name]
    if missing:
        sys.exit(f"no such cases: {' '.join(missing)}")
    for name in NAMES:
        run(*by_name[name], mx.gpu)
    x = mx.zeros((65,))
    for _ in range(20):
        x = x + 1.0
    assert np.array(x).tolist() == [20.0] * 65
    long = mx.ones((300_001,))
    assert long.sum().item() == 300_001
    assert mx.cumsum(long)[-1].item() == 300_001
    print(f"{len(NAMES) + 3} calls, all fine")


if __name__ == "__main__":
    main()
