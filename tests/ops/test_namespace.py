"""The namespace has every public name of the reference; memory, devices and streams."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

import outlive.core as mx
from tests.reference import Program, Returned

NAMES = """
import types
spaces = [''] + [n for n in dir(mx) if isinstance(getattr(mx, n), types.ModuleType)]
out = {s: [n for n in dir(getattr(mx, s) if s else mx) if not n.startswith('_')] for s in spaces}
out['array'] = [n for n in dir(mx.array) if n.startswith('__') or not n.startswith('_')]
"""


def test_every_public_name_is_there(reference):
    theirs = reference.batch([Program(NAMES, {})])[0]
    assert isinstance(theirs, Returned), theirs
    missing = {}
    for space, names in theirs.value.items():
        ours = getattr(mx, space) if space else mx
        absent = [n for n in names if not hasattr(ours, n)]
        if absent:
            missing[space or "core"] = absent
    assert not missing


def test_importing_touches_no_driver_and_no_heavy_library():
    text = (
        "import sys, outlive.core\n"
        "heavy = {'ml_dtypes', 'numba', 'triton', 'cupy', 'cuda', 'scipy', 'torch', 'mlx'} & set(sys.modules)\n"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_memory_functions_count_what_arrays_hold():
    mx.synchronize()
    mx.clear_cache()
    before = mx.get_active_memory()
    a = mx.zeros((1 << 18,)) + 1
    mx.eval(a)
    assert mx.get_active_memory() - before >= 1 << 20
    assert mx.get_array_buffer_size(a, [a]) >= 1 << 20
    mx.reset_peak_memory()
    b = a + 1
    mx.eval(b)
    assert mx.get_peak_memory() >= mx.get_active_memory() > 0
    del a, b
    assert mx.get_active_memory() - before < 1 << 18
    assert mx.get_cache_memory() >= 1 << 20
    mx.clear_cache()
    assert mx.get_cache_memory() == 0


def test_a_cache_limit_holds_at_once_and_later():
    previous = mx.set_cache_limit(1 << 20)
    try:
        for n in (1, 3, 7, 15):
            mx.eval(mx.ones((n << 17,)) + 1)
        assert mx.get_cache_memory() <= 1 << 20
        assert mx.set_cache_limit(0) == 1 << 20
        assert mx.get_cache_memory() == 0
    finally:
        mx.set_cache_limit(previous)


def test_a_memory_limit_gives_cached_memory_back_but_never_refuses_work():
    previous = mx.set_memory_limit(1 << 16)
    try:
        assert mx.get_memory_limit() == 1 << 16
        mx.eval(mx.ones((1 << 18,)) + 1)
        assert (mx.ones((1 << 18,)) * 2)[5].item() == 2
    finally:
        mx.set_memory_limit(previous)
    with pytest.raises(ValueError, match="not below 0"):
        mx.set_memory_limit(-1)


def test_buffers_of_arrays_not_computed_yet_cannot_be_measured():
    with pytest.raises(ValueError, match="not computed yet"):
        mx.get_array_buffer_size(mx.ones(3) + 1)


def test_trees_are_evaluated_and_other_leaves_passed_over():
    a, b, c = mx.ones(3) + 1, mx.ones(3) + 2, mx.ones(3) + 3
    mx.eval(a, [b, {"x": (c, None, "text", 3)}], object())
    assert all(x._node.data is not None for x in (a, b, c))
    mx.async_eval({"a": a * 2}, [])


def test_streams_are_chosen_by_context_and_by_argument():
    s = mx.new_stream(mx.cpu)
    with mx.stream(s):
        assert (mx.ones(3) + 1)._node.stream is s
        with mx.stream(mx.cpu):
            assert mx.default_stream(mx.cpu) is not None
    assert mx.add(mx.ones(3), 1, stream=s)._node.stream is s
    context = mx.StreamContext(s)
    with context, context:
        assert (mx.ones(3) + 1)._node.stream is s
    found = []
    thread = threading.Thread(target=lambda: found.append(mx.add(mx.ones(3), 1, stream=s).tolist()))
    thread.start()
    thread.join()
    assert found == [[2, 2, 2]]
    mx.synchronize(s)
    mx.synchronize(mx.cpu)
    mx.clear_streams()


def test_devices_that_are_not_there_are_refused_in_one_sentence():
    assert mx.is_available(mx.cpu)
    assert not mx.is_available(mx.Device(mx.cpu, 3))
    assert mx.device_count(mx.cpu) == 1
    assert mx.device_info(mx.cpu)["architecture"]
    if not mx.is_available(mx.gpu):
        assert mx.device_info(mx.gpu) == {}
        with pytest.raises(ValueError, match="GPU"):
            mx.set_default_device(mx.gpu)
        assert mx.default_device() == mx.cpu


def test_collectives_of_one_process_are_the_identity():
    group = mx.distributed.init()
    assert (group.rank(), group.size()) == (0, 1)
    assert mx.distributed.all_sum(mx.ones(3)).tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="no other process"):
        mx.distributed.send(mx.ones(3), 0)
    with pytest.raises(RuntimeError, match="several processes"):
        mx.distributed.init(strict=True)


def test_what_metal_and_custom_kernels_need_is_said():
    assert not mx.metal.is_available()
    with pytest.raises(RuntimeError, match="Apple"):
        mx.metal.start_capture("x")
    with pytest.raises(RuntimeError, match=r"\[cuda_kernel\]"):
        mx.fast.cuda_kernel("a", ["x"], ["y"], "")
