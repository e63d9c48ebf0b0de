"""No name of the API is compared with the reference nowhere: it has an entry, or a test of its own that is named here."""

from __future__ import annotations

from pathlib import Path

from outlive.cli.api_coverage import kept_reference
from tests.differential import elementwise, facts, numerics, products, reductions, shapes  # noqa: F401 - they register ops
from tests.differential.registry import OPS

ROOT = Path(__file__).parents[2]

_CLASSES = (
    "ArrayAt ArrayIterator ArrayLike Device DeviceType Dtype DtypeCategory FunctionExporter PrintOptions Stream StreamContext "
    "ThreadLocalStream distributed.Group array.__array_namespace__ array.__dlpack_device__ array.__setstate__"
)
_TYPES = (
    "bool_ uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complexfloating floating "
    "inexact signedinteger unsignedinteger integer number generic cpu gpu cuda distributed fast fft linalg metal random"
)
_MACHINE = (
    "clear_cache clear_streams cuda.is_available default_device default_stream device_count device_info get_active_memory "
    "get_cache_memory get_memory_limit get_peak_memory is_available new_stream new_thread_local_stream new_thread_unsafe_stream "
    "reset_peak_memory set_cache_limit set_default_device set_default_stream set_memory_limit set_wired_limit "
    "metal.clear_cache metal.device_info metal.get_active_memory metal.get_cache_memory metal.get_peak_memory "
    "metal.is_available metal.reset_peak_memory metal.set_cache_limit metal.set_memory_limit metal.set_wired_limit"
)
_RAISING = (
    "fast.cuda_kernel fast.metal_kernel fast.precompiled_cuda_kernel metal.start_capture metal.stop_capture distributed.send "
    "distributed.recv distributed.recv_like"
)

# Name to the test that holds it, where random calls beside the reference tell nothing.
ELSEWHERE = {
    **dict.fromkeys(_CLASSES.split(), "tests/cli/test_api_coverage.py"),
    **dict.fromkeys(_TYPES.split(), "tests/cli/test_api_coverage.py"),
    **dict.fromkeys(_MACHINE.split(), "tests/ops/test_namespace.py"),
    **dict.fromkeys(_RAISING.split(), "tests/cli/test_api_coverage.py"),
    **dict.fromkeys(
        "load save savez savez_compressed save_safetensors save_gguf".split(), "tests/io/test_reference_files.py"
    ),
    "gather_qqmm": "tests/ops/test_quantize.py",  # the reference has none for CPUs
    "import_function": "tests/differential/facts.py",  # with export_function
}


def test_every_name_is_compared_somewhere():
    _, reference = kept_reference()
    assert set(reference) - set(OPS.entries) - set(ELSEWHERE) == set()
    assert set(ELSEWHERE) <= set(reference)
    assert set(ELSEWHERE) & set(OPS.entries) == set()


def test_the_tests_that_are_named_exist():
    assert [path for path in set(ELSEWHERE.values()) if not (ROOT / path).exists()] == []
