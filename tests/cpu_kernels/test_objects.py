"""The cache of compiled kernels: what is damaged or foreign is compiled anew, what cannot be written is no failure."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from outlive.backends.cpu import objects

PROGRAM = """
import ctypes, sys
from outlive.backends.cpu import objects
text = "define i64 @seven() { ret i64 7 }"
address = objects.function_address("seven", text, lambda: text)
assert ctypes.CFUNCTYPE(ctypes.c_int64)(address)() == 7
print(objects.cache_status())
"""


def run(folder, **environment):
    env = {**os.environ, "XDG_CACHE_HOME": str(folder), **environment}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def entry(folder):
    (only,) = (folder / "outlive" / "kernels").glob("*.o")
    return only


def test_the_second_process_loads_what_the_first_compiled(tmp_path):
    assert "0 loaded, 1 compiled" in run(tmp_path)
    assert "1 loaded, 0 compiled" in run(tmp_path)


def _truncate(data):
    return data[: len(data) // 2]


def _flip(data):
    return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]


@pytest.mark.parametrize("damage", [_truncate, _flip, lambda d: b"", lambda d: b"\x7fELF" + d, lambda d: d[:44]])
def test_a_damaged_entry_is_compiled_anew_and_replaced(tmp_path, damage):
    run(tmp_path)
    place = entry(tmp_path)
    whole = place.read_bytes()
    place.write_bytes(damage(whole))
    assert "0 loaded, 1 compiled" in run(tmp_path)
    assert place.read_bytes() == whole
    assert [p.name for p in place.parent.iterdir()] == [place.name]


def test_a_processor_with_other_features_has_entries_of_its_own(tmp_path):
    run(tmp_path)
    assert "0 loaded, 1 compiled" in run(tmp_path, OUTLIVE_CPU_FEATURES="avx2")
    assert len(list(entry_folder(tmp_path).glob("*.o"))) == 2


def entry_folder(folder):
    return folder / "outlive" / "kernels"


def test_a_folder_that_cannot_be_written_costs_the_cache_alone(tmp_path):
    (tmp_path / "outlive").write_text("a file where a folder should be")
    said = run(tmp_path)
    assert "kept in memory only" in said
    assert "XDG_CACHE_HOME" in said


def test_a_module_that_lacks_the_symbol_is_refused():
    text = "define i64 @present_symbol() { ret i64 7 }"
    with pytest.raises(RuntimeError, match="absent_symbol"):
        objects.function_address("absent_symbol", text, lambda: text)


def test_assembly_shows_what_a_kernel_became():
    assert "ret" in objects.assembly("define i64 @shown() { ret i64 7 }")


def test_one_module_may_define_several_functions():
    text = "define i64 @first_of_two() { ret i64 1 }\ndefine i64 @second_of_two() { ret i64 2 }"
    addresses = objects.function_addresses(("first_of_two", "second_of_two"), text, lambda: text)
    assert [ctypes.CFUNCTYPE(ctypes.c_int64)(a)() for a in addresses] == [1, 2]


@pytest.mark.parametrize("level", ["none", "avx9"])
def test_an_unknown_level_of_features_is_refused(level):
    env = {**os.environ, "OUTLIVE_CPU_FEATURES": level}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 1
    assert f"OUTLIVE_CPU_FEATURES='{level}' is not one of" in done.stderr
