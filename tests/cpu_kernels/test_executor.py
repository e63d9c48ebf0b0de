"""Word lists: order, failure, shared records, several callers, forks and exit."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from array import array

import numpy as np
import pytest
from llvmlite.ir import IntType

from outlive.backends.cpu import executor, pool
from outlive.backends.cpu.abi import SHARE_PER_THREAD, float_word
from outlive.backends.cpu.executor_ir import BACKOFF_MIN, OFFSETS
from outlive.backends.cpu.kernels import library
from outlive.backends.cpu.kernels.emit import I64, STORAGES

INT64 = STORAGES["int64"]


def _write_append(k):
    """Appends its second argument to a list whose first word is its length."""
    place, value = k.pointer(0), k.integer(1)
    length = k.load(place, 0, INT64)
    k.store(place, length + 1, value, INT64)
    k.store(place, 0, length + 1, INT64)


def _write_fail(k):
    k.fail(k.integer(0).differs(0), 7)


def _write_mark(k):
    """Counts every element of its share, and spins on it for a while so that shares overlap."""
    place, count = k.pointer(0), k.integer(1)
    low, high = k.share(count)
    with k.loop(low, high) as i:
        with k.loop(0, 50):
            k.store(place, i, k.load(place, i, INT64) + 1, INT64)
        k.store(place, count + i, k.part_count, INT64)


def _write_nap(k):
    """The first part ends as soon as the second has begun, which then sleeps for 0.1 s: one waits for the other."""
    begun, shared = k.pointer(0), k.part_count.equals(2)
    with k.when(shared & k.part.equals(0)), k.loop(0, 50_000), k.when(k.load(begun, 0, INT64).equals(0)):
        k.call("usleep", IntType(32), [k.constant(20, IntType(32))])
    with k.when(k.part.equals(1)):
        k.store(begun, 0, k.constant(1), INT64)
        k.call("usleep", IntType(32), [k.constant(100_000, IntType(32))])


def kernel(name):
    write = {"append": _write_append, "fail": _write_fail, "mark": _write_mark, "nap": _write_nap}[name]
    return library.compiled(f"test_{name}", write, "test").address


def execute(words, held=False):
    packed = array("q", words)
    return (executor.run_holding_gil if held else executor.run)(packed, len(packed))


def mark(target, parts):
    return [kernel("mark"), 2, parts, target.ctypes.data, len(target) // 2]


@pytest.mark.parametrize("held", [False, True])
def test_records_run_in_order(held):
    log = np.zeros(8, np.int64)
    words = [w for value in (3, 1, 2) for w in (kernel("append"), 2, 0, log.ctypes.data, value)]
    assert execute(words, held) == -1
    assert log[:4].tolist() == [3, 3, 1, 2]


def test_an_empty_list_runs():
    assert execute([]) == -1


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("parts", [0, 5])
def test_a_failing_record_stops_the_list_and_is_named_by_its_offset(held, parts):
    log = np.zeros(8, np.int64)
    append = [kernel("append"), 2, 0, log.ctypes.data, 5]
    words = [*append, kernel("fail"), 1, parts, 0, kernel("fail"), 1, parts, 1, *append]
    assert execute(words, held) == len(append) + 4
    assert log[:2].tolist() == [1, 5]
    assert execute(append) == -1  # the pool is free again


@pytest.mark.parametrize("parts", [0, 1, 2, 3, 8, 1000, 1 << 20, SHARE_PER_THREAD | 50])
def test_every_element_of_a_shared_record_is_done_once(parts):
    for count in (1, 7, 1000):
        target = np.zeros(2 * count, np.int64)
        assert execute(mark(target, parts) * 3) == -1
        assert (target[:count] == 150).all()


def test_shares_are_limited_by_the_threads():
    threads = executor.start().threads
    target = np.zeros(2000, np.int64)
    execute(mark(target, 1 << 20))
    assert set(target[1000:]) == {threads * pool.PARTS_PER_THREAD if threads > 1 else 1}
    execute(mark(target, SHARE_PER_THREAD | 1000))
    assert set(target[1000:]) == {threads}


def test_a_caller_that_was_held_up_runs_its_next_records_alone():
    started = executor.start()
    if started.threads == 1:
        assert started.words[OFFSETS["PARTS_MAX"]] == 1
        return
    target, seen = np.zeros(2000, np.int64), []
    started.words[OFFSETS["ALONE"]] = 3
    for _ in range(5):
        execute(mark(target, 8))
        seen.append(int(target[1000]))
    assert seen[:4] == [1, 1, 1, 8]


def test_a_worker_that_sleeps_in_its_part_is_avoided_for_a_while():
    executor.stop()
    try:
        started = executor.start(2)
        for _ in range(20):  # the worker may be the one that waits
            begun = np.zeros(1, np.int64)
            execute([kernel("nap"), 1, 2, begun.ctypes.data])
            if started.words[OFFSETS["BACKOFF"]] >= BACKOFF_MIN:
                break
        assert started.words[OFFSETS["ALONE"]] == BACKOFF_MIN
    finally:
        executor.stop()


def test_callers_at_once_all_get_their_results():
    results = [np.zeros(400, np.int64) for _ in range(6)]

    def work(target):
        for _ in range(300):
            assert execute(mark(target, 8)) == -1

    threads = [threading.Thread(target=work, args=(r,)) for r in results]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all((r[:200] == 15000).all() for r in results)


def test_a_stopped_pool_is_started_again_and_sleeping_workers_wake():
    executor.stop()
    target = np.zeros(2000, np.int64)
    for _ in range(3):
        assert execute(mark(target, 8)) == -1
        threading.Event().wait(0.01)  # longer than workers spin: they sleep
    assert (target[:1000] == 150).all()


def test_workers_are_started_by_the_callable_that_is_given():
    executor.stop()
    started = []

    def spawn(target):
        thread = threading.Thread(target=target, daemon=True)
        started.append(thread)
        thread.start()
        return thread

    try:
        assert executor.start(3, spawn).threads == 3
        assert len(started) == 2
        target = np.zeros(200, np.int64)
        assert execute(mark(target, 8)) == -1
        assert (target[:100] == 50).all()
    finally:
        executor.stop()
    assert not any(t.is_alive() for t in started)


FORKED = """
import os, sys
sys.path.insert(0, os.getcwd())
import numpy as np
from tests.cpu_kernels.test_executor import execute, mark
def go():
    target = np.zeros(2000, np.int64)
    assert execute(mark(target, 8)) == -1 and (target[:1000] == 50).all()
go()
child = os.fork()
go()
if child == 0:
    sys.exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
go()
sys.exit(5)
"""


def test_a_fork_has_a_pool_of_its_own_and_exit_statuses_stay():
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 5, done.stderr


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_a_wrong_number_of_threads_is_refused(monkeypatch, text):
    monkeypatch.setenv("OUTLIVE_NUM_THREADS", text)
    with pytest.raises(ValueError, match="OUTLIVE_NUM_THREADS"):
        pool.thread_count()


def test_threads_follow_the_variable_the_affinity_and_the_quota(monkeypatch):
    monkeypatch.setenv("OUTLIVE_NUM_THREADS", "5")
    assert pool.thread_count() == 5
    monkeypatch.delenv("OUTLIVE_NUM_THREADS")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    for quota, threads in ((float("inf"), 8), (2.5, 3), (0.5, 1), (20.0, 8)):
        monkeypatch.setattr(pool, "_quota_cores", lambda quota=quota: quota)
        assert pool.thread_count() == threads


def test_numbers_travel_as_their_bits():
    assert [float_word(v) for v in (0.0, -0.0, 1.0)] == [0, -(2**63), 0x3FF0000000000000]
    assert I64.width == 64
