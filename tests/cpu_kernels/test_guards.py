"""Memory that is not an operand's is never touched; no result depends on shares, poison, or what it is laid over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.cpu_kernels.calls import all_calls
from tests.cpu_kernels.support import bits, run

OVERREADING = """
import numpy as np
from outlive.backends.cpu.kernels import library
from outlive.backends.cpu.kernels.emit import F32, LANES
from tests.cpu_kernels.guarded import guarded
from tests.cpu_kernels.support import run_words

def write(k):
    k.store(k.pointer(1), 0, k.load(k.pointer(0), 0, F32, LANES), F32)

kernel = library.compiled("test_overreading", write, "test")
source, target = guarded(4 * 15, True), np.zeros(64, np.uint8)
run_words([kernel.address, 2, 0, source.ctypes.data, target.ctypes.data])
"""


def child(*command: str, doomed: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"OUTLIVE_DOOMED": doomed} if doomed else {})}
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment, check=False)


@pytest.mark.parametrize("side", ["end", "begin"])
def test_no_kernel_reaches_past_an_operand(side):
    done = child("-m", "tests.cpu_kernels.guarded", side)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"ended by {done.returncode} in: {lines[-1:]} {done.stderr[-400:]}"
    assert lines[-1] == "done"


def test_the_guard_catches_one_element_too_many():
    assert child("-c", OVERREADING, doomed="guarded-kernel").returncode == -signal.SIGSEGV


def test_bits_do_not_depend_on_the_number_of_shares_or_on_poison():
    for call in all_calls():
        alone = run(call.op, call.reads, call.outputs(), parts=0, **call.params)
        for parts in (2, 7):
            shared = run(call.op, call.reads, call.outputs(0x7B), parts=parts, **call.params)
            assert [bits(a) for a in shared] == [bits(a) for a in alone], f"{call} in {parts} shares"
