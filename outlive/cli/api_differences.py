"""Names of the API that do something else on purpose, each with its reason in a clause.

docs/differences.md tells what exactly differs, beside what the reference does.
"""

from __future__ import annotations

_WIDE = "half types accumulate in float32 at least and are rounded once"
_NO_ALONE = "a group of one process has nobody to talk to; several processes come later"
_NO_KERNELS = "kernels in Metal or CUDA source come later"

NAMES: dict[str, str] = {
    **dict.fromkeys(
        "mean sum prod var std cumsum cumprod logsumexp logcumsumexp median array.mean array.sum array.prod array.var "
        "array.std array.cumsum array.cumprod array.logsumexp array.logcumsumexp linalg.norm trace".split(),
        _WIDE,
    ),
    **dict.fromkeys("cummax cummin array.cummax array.cummin sign".split(), "NaN follows NumPy"),
    **dict.fromkeys(
        "floor_divide remainder divmod array.__floordiv__ array.__mod__ array.__ifloordiv__ array.__imod__ "
        "array.__rfloordiv__ array.__rmod__".split(),
        "integers divided by zero give 0 and end no process",
    ),
    **dict.fromkeys(
        "left_shift right_shift bitwise_left_shift bitwise_right_shift array.__lshift__ array.__rshift__ array.__ilshift__ "
        "array.__irshift__".split(),
        "shifts by the type's width or more are defined: 0, or the sign",
    ),
    **dict.fromkeys(
        "power pow array.__pow__ array.__ipow__ array.__rpow__".split(),
        "negative powers of integers are the integer part",
    ),
    **dict.fromkeys("full full_like".split(), "the element type that is asked for is kept"),
    **dict.fromkeys("arange linspace".split(), "steps are computed in float64 and rounded once"),
    **dict.fromkeys(
        "array.__getitem__ array.__setitem__ array.at take slice slice_update as_strided".split(),
        "no index reaches foreign memory: an error, or the nearest place",
    ),
    **dict.fromkeys(
        "quantize dequantize to_fp8".split(), "values as the formula says, rounded once; NaN and huge numbers kept"
    ),
    **dict.fromkeys(
        "conv_transpose1d conv_transpose2d conv_transpose3d".split(),
        "padding beyond the window cuts as the formula says",
    ),
    **dict.fromkeys("conv3d conv_general".split(), "groups work in three dimensions"),
    **dict.fromkeys(
        "linalg.cholesky linalg.solve linalg.eigh linalg.eigvalsh".split(),
        "bad input is an error of the result, stacks broadcast",
    ),
    "gather_mm": "half types work",
    "fast.scaled_dot_product_attention": "a query that a mask leaves no key attends to all alike",
    "fast.cross_entropy": "targets out of range are an error of the result",
    "round": "rounded at the decimal itself",
    "pad": "an empty axis has no edge to repeat",
    **dict.fromkeys("isclose allclose".split(), "numbers are taken too"),
    **dict.fromkeys(
        "array asarray from_dlpack".split(), "lists of NumPy numbers, ranges and large unsigned numbers are taken"
    ),
    **dict.fromkeys("array.__eq__ array.__ne__".split(), "comparing with what is no number is False, no error"),
    **dict.fromkeys(
        "random.gumbel random.uniform random.normal random.laplace random.truncated_normal".split(),
        "half types are drawn in float32 and rounded once",
    ),
    **dict.fromkeys(
        "ThreadLocalStream new_thread_local_stream new_thread_unsafe_stream".split(), "any thread may use any stream"
    ),
    **dict.fromkeys(
        "save savez savez_compressed save_safetensors save_gguf".split(),
        "a file is replaced when its new content is complete",
    ),
    **dict.fromkeys("qqmm gather_qqmm".split(), "any number of rows on CPUs"),
    **dict.fromkeys("distributed.is_available distributed.init".split(), _NO_ALONE),
    "load": "corrupt files are errors in words, float64 tensors and crowds of open files work",
}
"""Name to reason, for names whose calls are all taken but whose answers differ somewhere."""

RAISING: dict[str, str] = {
    "metal.start_capture": "Metal captures need Apple's tools",
    "metal.stop_capture": "Metal captures need Apple's tools",
    **dict.fromkeys("fast.metal_kernel fast.cuda_kernel fast.precompiled_cuda_kernel".split(), _NO_KERNELS),
    **dict.fromkeys("distributed.send distributed.recv distributed.recv_like".split(), _NO_ALONE),
}
"""Name to reason, for names that raise whatever they are given."""
