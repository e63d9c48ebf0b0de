"""The CUDA device over a driver without a GPU: order, lifetimes, migration, failures."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

import outlive.core as mx
from outlive.backends.cuda.device import CudaDevice
from outlive.graph import state
from outlive.graph.state import Device
from outlive.runtime.errors import ExecutionError, OutOfMemory
from tests.cuda.fake_driver import FakeDriver, FakeLibrary

GPU = Device(state.gpu, 7)


@pytest.fixture
def driver() -> Iterator[FakeDriver]:
    """A fake GPU as the default device."""
    fake = FakeDriver()
    state._backends[GPU] = CudaDevice(state.runtime, fake, GPU.index, FakeLibrary(fake))
    mx.set_default_device(GPU)
    yield fake
    mx.set_default_device(mx.cpu)
    gc.collect()
    state.runtime.drain()
    device = state._backends.pop(GPU)
    state._default_streams.pop(GPU, None)
    state._constants.pop(GPU, None)
    state.runtime.streams[:] = [s for s in state.runtime.streams if s.device is not device]
    assert not fake.early_releases


def gpu() -> CudaDevice:
    return state._backends[GPU]


def test_a_chain_runs_in_order_with_the_host_waiting_once(driver: FakeDriver) -> None:
    x = mx.array(np.arange(5, dtype=np.float32))
    driver.calls.clear()
    for _ in range(100):
        x = x + 1.0
    mx.eval(x)
    assert driver.calls.count("wait") == 1
    assert np.array(x).tolist() == [100, 101, 102, 103, 104]


def test_encoding_neither_synchronizes_nor_asks_the_driver_for_memory_twice(driver: FakeDriver) -> None:
    def chain() -> mx.array:
        x = mx.array(np.ones(3, np.float32))
        for _ in range(10):
            x = (x + 1.0) * 2.0
        return x

    mx.eval(chain())
    x = chain()
    driver.calls.clear()
    mx.async_eval(x)
    assert driver.calls == ["replay"]


def test_a_long_command_buffer_is_a_graph_and_the_same_one_again_is_only_replayed(driver: FakeDriver) -> None:
    def chain() -> mx.array:
        x = mx.array(np.ones(3, np.float32))
        for _ in range(50):
            x = x + 1.0
        return x

    made = []
    for _ in range(4):
        driver.calls.clear()
        made.append(np.array(chain()).tolist())
    assert made == [[51.0] * 3] * 4
    assert driver.calls.count("replay") == 1
    assert "instantiate" not in driver.calls
    assert gpu().ledger.graphs > 0


def test_a_compiled_function_is_one_launch_whatever_its_length(driver: FakeDriver) -> None:
    def f(x: mx.array, y: mx.array) -> mx.array:
        for _ in range(40):
            x = x * y + 1.0
        return x

    fast = mx.compile(f)
    x, y = (mx.array(np.full(5, v, np.float32)) for v in (2.0, 1.0))
    for n in range(12):
        x = mx.array(np.full(5, n, np.float32))
        driver.calls.clear()
        assert np.array(fast(x, y)).tolist() == [40.0 + n] * 5
        assert driver.calls.count("replay") == 1


def test_graphs_that_do_not_fit_under_the_cap_are_launched_directly(driver: FakeDriver) -> None:
    x = mx.array(np.ones(3, np.float32))
    mx.eval(x + 1.0)
    ledger = gpu().ledger
    ledger.cap = ledger.allocated + 100_000
    for _ in range(100):
        x = x + 1.0
    assert np.array(x).tolist() == [101.0] * 3
    assert ledger.graphs == 0
    assert "replay" not in driver.calls


def test_a_buffer_outlives_the_work_that_reads_it(driver: FakeDriver) -> None:
    x = mx.array(np.full(1000, 3.0, np.float32))
    y = x * 2.0
    mx.async_eval(y)
    del x
    gc.collect()
    mx.clear_cache()
    mx.eval([mx.array(np.full(1000, -1.0, np.float32)) + 0.0 for _ in range(4)])
    assert np.array(y).tolist() == [6.0] * 1000


def test_streams_wait_for_each_other(driver: FakeDriver) -> None:
    first, second = mx.new_stream(GPU), mx.new_stream(GPU)
    x = mx.array(np.ones(7, np.float32))
    y = mx.add(x, 1.0, stream=first)
    z = mx.multiply(y, 5.0, stream=second)
    w = mx.add(z, y, stream=first)
    mx.eval(w)
    assert np.array(w).tolist() == [12.0] * 7


def test_inputs_move_to_the_device_of_the_op_and_back(driver: FakeDriver) -> None:
    with mx.stream(mx.cpu):
        x = mx.array(np.arange(6, dtype=np.float32)) + 1.0
    y = mx.multiply(x, 2.0, stream=mx.default_stream(GPU))
    z = mx.add(y, x, stream=mx.cpu)
    assert np.array(z).tolist() == [3.0, 6.0, 9.0, 12.0, 15.0, 18.0]
    assert np.array(x).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def test_work_that_waits_for_the_host_is_launched_by_its_worker(driver: FakeDriver) -> None:
    with mx.stream(mx.cpu):
        x = mx.array(np.arange(6, dtype=np.float32)) + 1.0
    y = mx.multiply(x, 2.0, stream=mx.default_stream(GPU))
    mx.async_eval(y)
    mx.synchronize(mx.default_stream(GPU))
    assert np.array(y).tolist() == [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]


def test_an_op_without_a_kernel_runs_on_the_host_in_the_streams_order(driver: FakeDriver) -> None:
    x = mx.array(np.array([[4.0, 1.0], [2.0, 3.0]], np.float32)) + 0.0
    y = mx.subtract(x, 1.0) * 2.0
    assert np.array(y).tolist() == [[6.0, 0.0], [2.0, 4.0]]
    assert any(route[0] == "subtract" for route in gpu().host_routes)


def test_a_refused_launch_belongs_to_its_own_arrays(driver: FakeDriver) -> None:
    x = mx.array(np.ones(3, np.float32))
    mx.eval(x + 1.0)
    driver.refuse_launch = gpu()._library.handles["add"]
    bad, good = x + 2.0, x * 2.0
    worse = bad * 3.0
    mx.async_eval(bad, good, worse)
    for array in (bad, worse, bad):
        with pytest.raises(ExecutionError, match=r"\[add\].*cuLaunchKernel"):
            np.array(array)
    assert np.array(good).tolist() == [2.0, 2.0, 2.0]
    driver.refuse_launch = None
    assert np.array(x + 2.0).tolist() == [3.0, 3.0, 3.0]


def test_a_fault_loses_the_device_and_nothing_else(driver: FakeDriver) -> None:
    x = mx.array(np.ones(3, np.float32))
    before = x * 1.0
    mx.eval(before + 1.0)
    driver.fault = gpu()._library.handles["add"]
    bad = x + 2.0
    for array in (bad, before, bad):
        with pytest.raises(RuntimeError, match="lost"):
            np.array(array)
    with pytest.raises(RuntimeError, match="lost"):
        mx.eval(mx.array([1.0, 2.0]))
    with mx.stream(mx.cpu):
        assert np.array(mx.array([1.0]) + 1.0).tolist() == [2.0]


def test_an_interrupt_while_launching_fails_that_command_buffer_alone(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = mx.array(np.ones(3, np.float32))
    mx.eval(x + 1.0)
    launch = driver.launch

    def interrupted(words: object, stream: int) -> tuple[int, int]:
        monkeypatch.setattr(driver, "launch", launch)
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "launch", interrupted)
    bad = x + 2.0
    with pytest.raises(KeyboardInterrupt):
        mx.eval(bad)
    with pytest.raises(ExecutionError, match="interrupted by KeyboardInterrupt"):
        np.array(bad)
    assert np.array(x + 3.0).tolist() == [4.0] * 3


def test_memory_queries_see_what_the_device_finished_though_nobody_waited(driver: FakeDriver) -> None:
    x = mx.array(np.ones(1000, np.float32))
    mx.eval(x, x + 1.0, x + 2.0)  # the numbers stay
    before = mx.get_active_memory()
    mx.async_eval(x + 1.0, x + 2.0)
    gc.collect()
    (stream,) = [s for s in state.runtime.streams if s.device is gpu()]
    driver.synchronize(stream.state.handle)
    mx.clear_cache()
    assert mx.get_active_memory() == before


def test_a_stream_that_the_driver_refuses_fails_its_own_work_alone(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = mx.array(np.ones(3, np.float32))
    mx.eval(x + 1.0)
    stream = mx.new_stream(GPU)

    def refused() -> int:
        raise RuntimeError("no more streams")

    with monkeypatch.context() as patched:
        patched.setattr(driver, "create_stream", refused)
        bad = mx.add(x, 1.0, stream=stream)
        with pytest.raises(ExecutionError, match=r"\[add\] no more streams"):
            np.array(bad)
    assert np.array(x + 1.0).tolist() == [2.0] * 3
    assert np.array(mx.add(x, 2.0, stream=stream)).tolist() == [3.0] * 3


def test_a_kernel_that_waits_for_its_own_stream_is_refused(driver: FakeDriver) -> None:
    stream = mx.default_stream(GPU)
    x = mx.array(np.ones(3, np.float32))
    mx.eval(x)
    stream.runner = 1
    stream.baton.acquire()
    try:
        y = x + 1.0
        with pytest.raises(RuntimeError, match="same stream"):
            mx.eval(y)
    finally:
        stream.runner = 0
        stream.baton.release()
    assert np.array(y).tolist() == [2.0] * 3


def test_running_out_of_memory_is_caught_and_the_next_op_works(driver: FakeDriver) -> None:
    with pytest.raises(OutOfMemory, match="live"):
        mx.eval([mx.array(np.ones(1 << 26, np.float32)) for _ in range(5)])
    gc.collect()
    assert np.array(mx.array([1.0]) + 1.0).tolist() == [2.0]


def test_every_byte_goes_back(driver: FakeDriver) -> None:
    x = mx.array(np.ones(1000, np.float32))
    mx.eval((x + 1.0) * 2.0)
    del x
    gc.collect()
    mx.clear_cache()
    mx.synchronize()
    ledger = gpu().ledger
    state._constants[GPU].clear()
    gc.collect()
    mx.clear_cache()
    assert ledger.live == ledger.quarantined == ledger.cached == 0
    assert driver.allocated == 0


def test_views_are_read_back_element_by_element(driver: FakeDriver) -> None:
    x = mx.array(np.arange(12, dtype=np.float32).reshape(3, 4)) * 1.0
    assert np.array(x.T).tolist() == np.arange(12).reshape(3, 4).T.tolist()
    assert np.array(x[::-1, 1::2]).tolist() == np.arange(12).reshape(3, 4)[::-1, 1::2].tolist()
