"""The array itself: making, printing, reading, operators, methods, exchange with NumPy and others, pickling."""

from __future__ import annotations

import copy
import gc
import pickle
import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import outlive.core as mx
from tests.reference import Program
from tests.reference.compare import assert_same_outcome
from tests.reference.strategies import NUMBERS, arrays, dtypes, shapes
from tests.reference.wire import Side

OURS = Side(mx)

TEXTS = """
mx.array([1, 2.5, True])
mx.array([1, 1j])
mx.array([True, 1])
mx.array([[], []])
mx.array([mx.array(1), 2])
mx.array([mx.array([1, 2]), mx.array([3, 4])])
mx.array([mx.array([1.5, 2], mx.float16), mx.array([3, 4])])
mx.array(2**31)
mx.array([1, 2**40])
mx.array(1.7, mx.int32)
mx.array(300, mx.uint8)
mx.array([-1], mx.uint8)
mx.array(True, mx.float32)
mx.array(b'abc')
mx.array((1, 2), mx.float32)
mx.array(np.float64(1.5))
mx.array(np.int64(1))
mx.array(np.array([1], np.int64))
mx.array(np.array([1.5]))
mx.array(np.array([1j]))
mx.array(np.arange(6).reshape(2, 3).T)
mx.array([[1, 2], [3]])
mx.array([mx.array([1.5, 2]), [3]])
mx.array('s')
mx.array(['a'])
mx.array(None)
mx.array({})
mx.array([1e-10, 1e10, 0.1, -0.0, 123456.7])
mx.array([float('inf'), -float('inf')])
mx.array([1 - 2j, 0.5j])
mx.array([0.1, 3.14159], mx.bfloat16)
mx.array([0.1, 3.14159], mx.float16)
mx.array([0.1, 3.14159], mx.float64)
mx.array([[True, False]])
mx.zeros((0, 3))
mx.zeros((2, 0))
mx.zeros((3, 0, 2))
mx.arange(6)
mx.arange(7)
mx.arange(2000)
mx.zeros((7, 2))
mx.zeros((2, 7, 2))
mx.zeros((10, 10, 20))
mx.array(3).item()
mx.array([3.5]).item()
mx.array([3, 4]).item()
mx.array([]).item()
float(mx.array([3.5]))
int(mx.array(3.5))
complex(mx.array(1.5))
range(mx.array(3))
range(mx.array(3.0))
bool(mx.array([1, 2]))
bool(mx.array(0.0))
len(mx.array(3))
len(mx.zeros((3, 2)))
list(mx.array([1, 2]))
list(mx.array(1))
bytes(mx.array([1, 2]))
mx.array([[1.5, 2]], mx.bfloat16).tolist()
mx.array(1).tolist()
mx.array([1j]).tolist()
f'{mx.array(1.5):.3f}'
f'{mx.array([1.5, 2])}'
f'{mx.array([1.5, 2]):.3f}'
mx.array([1, 2]) + 1.5
1 - mx.array([1, 2])
2 ** mx.array([1, 2])
7 // mx.array([1, 2])
7 % mx.array([4, 2])
1 / mx.array([4, 2])
-mx.array([1, 2])
~mx.array([1, 2])
abs(mx.array([-1, 2]))
mx.array([1, 2]) & 1
mx.array([1, 2]) << 1
mx.array([True]) | True
mx.array([1.5]) & 1
mx.array([1, 2]) > 1.5
1 < mx.array([1, 2])
mx.array([1, 2]) + 's'
mx.array([1, 2]) != 's'
mx.array([1, 2]) + np.array([1, 2])
mx.array([1.0, 2], mx.float16) * np.float32(2)
mx.array([1.0, 2], mx.float16) * np.array([1.5, 2])
mx.zeros((2, 3)) @ 2
sum(mx.array([1, 2, 3]))
max(mx.array([1, 5, 3]))
1 in mx.array([1, 2])
mx.array([1, 2]).sum()
mx.array([1, 2]).mean(keepdims=True)
mx.array([[1, 2]]).max(axis=1)
mx.array([[1, 2]]).T
mx.array([[1, 2]]).mT
mx.array([1 + 2j]).real
mx.array([1.0]).imag
mx.array([1.0]).view(mx.int32)
mx.array([[1.0, 2]]).split(2, axis=1)
mx.array([1, 2, 3]).cumsum(reverse=True)
mx.array([1.0, 2]).var(ddof=1)
mx.array([[3, 1]]).diagonal()
mx.arange(6).reshape(2, 3)
mx.arange(6).reshape((2, -1))
mx.arange(6).reshape([2, 3]).transpose(1, 0)
mx.arange(6).reshape(2, 3).transpose((1, 0)).shape
mx.arange(6).reshape(2, 3).squeeze().nbytes
mx.array([1, 2]).itemsize
mx.array([1, 2]).dtype.size
mx.array([1, 2]).__dlpack_device__()
pickle.loads(pickle.dumps(mx.array([1.5, 2], mx.bfloat16)))
mx.Device(mx.cpu)
mx.default_device()
mx.cpu == mx.default_device()
mx.finfo(mx.float16).eps
mx.finfo(mx.bfloat16).max
mx.finfo(mx.float32)
mx.finfo(mx.int32)
mx.iinfo(mx.uint64).max
mx.iinfo(mx.int8)
mx.iinfo(mx.bool_)
mx.isdtype(mx.bool_, 'integral')
mx.isdtype(mx.float16, ('bool', mx.float16))
mx.isdtype(mx.float16, 'x')
mx.can_cast(mx.int64, mx.float16)
mx.can_cast(mx.float32, mx.float16)
mx.result_type(mx.int8, mx.array(1.5, mx.float16), mx.uint8)
mx.result_type()
mx.issubdtype(mx.float32, mx.floating)
sorted(mx.__array_namespace_info__().dtypes())
mx.asarray(np.zeros(3), copy=False)
mx.asarray([1, 2])
"""


@pytest.fixture(scope="module")
def theirs(reference):
    programs = [Program(f"import pickle\nout = repr({text})", {}) for text in TEXTS.strip().splitlines()]
    return dict(zip(TEXTS.strip().splitlines(), reference.batch(programs), strict=True))


@pytest.mark.parametrize("text", TEXTS.strip().splitlines())
def test_expressions_show_what_the_reference_shows(theirs, text):
    ours = OURS.perform(Program(f"import pickle\nout = repr({text}).replace('outlive.core', 'mlx.core')", {}))
    assert_same_outcome(ours, theirs[text], context=text)


def test_precision_of_printing_can_be_set():
    a = mx.array([3.14159, 100000.5, 2])
    with mx.printoptions(precision=3):
        assert repr(a) == "array([3.142, 100000.500, 2.000], dtype=float32)"
        assert mx.get_printoptions().precision == 3
    assert repr(a) == "array([3.14159, 100000, 2], dtype=float32)"


@given(data=st.data(), dtype=dtypes(NUMBERS), shape=shapes(elements_max=256))
def test_values_survive_numpy_pickling_and_copying(data, dtype, shape):
    host = data.draw(arrays(dtype, shape))
    a = OURS.build(host)
    assert np.array(a).dtype == (ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype))
    stored = host.resolved()
    for made in (
        a,
        mx.array(np.array(a)),
        pickle.loads(pickle.dumps(a)),
        copy.copy(a),
        copy.deepcopy(a),
        mx.asarray(a),
    ):
        assert made.dtype is a.dtype
        np.testing.assert_array_equal(np.array(made).view(stored.dtype), stored)
    assert bytes(a) == np.ascontiguousarray(stored).tobytes()
    assert a.tolist() == np.array(a).tolist() or np.isnan(host.values()).any()


def test_a_numpy_view_is_a_lease_that_keeps_the_memory():
    a = mx.array([1.0, 2.0, 3.0])
    view = np.asarray(a)
    assert view.__array_interface__["data"][0] == a._node.data.operand.pointer
    a += 1
    a[0] = 9
    mx.eval(a)
    del a
    gc.collect()
    mx.eval([mx.full((3,), 7.0) for _ in range(20)])
    assert view.tolist() == [1, 2, 3]


def test_a_view_of_a_view_keeps_its_strides():
    a = mx.arange(12).reshape(3, 4)
    view = np.asarray(a.T[::2])
    np.testing.assert_array_equal(view, np.arange(12).reshape(3, 4).T[::2])
    assert view.strides == (8, 16)


def test_numpy_may_ask_for_a_type_a_copy_or_none():
    a = mx.array([1, 2], mx.uint8)
    assert np.array(a, dtype=np.float32).dtype == np.float32
    assert np.array(a, copy=False).tolist() == [1, 2]
    with pytest.raises(ValueError, match="allow a copy"):
        np.array(a, dtype=np.float32, copy=False)


def test_dlpack_exports_host_memory_and_imports_anything():
    a = mx.arange(6).reshape(2, 3)
    shared = np.from_dlpack(a.T)
    np.testing.assert_array_equal(shared, np.arange(6).reshape(2, 3).T)
    assert mx.from_dlpack(np.arange(3, dtype=np.int16)).dtype == mx.int16
    assert mx.from_dlpack(np.arange(3.0)).dtype == mx.float32
    assert mx.from_dlpack(a).tolist() == a.tolist()
    with pytest.raises(BufferError, match="bfloat16"):
        a.astype(mx.bfloat16).__dlpack__()
    with pytest.raises(BufferError, match="device"):
        a.__dlpack__(dl_device=(2, 0))


def test_the_buffer_protocol_shows_the_arrays_memory():
    a = mx.array([1.5, 2.0])
    # Python itself asks from 3.12 on
    seen = memoryview(a) if sys.version_info >= (3, 12) else a.__buffer__(0)  # type: ignore[arg-type]
    assert seen.tolist() == [1.5, 2.0]


def test_assignment_and_operators_in_place_change_this_handle_alone():
    a = mx.array([1, 2])
    alias, other = a, mx.array(a)
    a += 1
    a *= 2
    assert alias.tolist() == [4, 6]
    assert other.tolist() == [1, 2]
    a += 0.5
    assert a.dtype == mx.float32


def test_iteration_is_not_disturbed_by_assignment():
    a = mx.array([1, 2, 3])
    seen = []
    for x in a:
        a[...] = 0
        seen.append(x.item())
    assert seen == [1, 2, 3]


def test_nothing_is_computed_before_it_is_read():
    a = mx.array([mx.ones(3) * 2, mx.zeros(3)])
    assert a._node.data is None
    a[0] = 5
    b = a.at[mx.array([1])].add(1)[:, 1:].reshape(-1) @ mx.ones((4, 2))
    assert b._node.data is None
    assert b.tolist() == [12, 12]


class _Like:
    def __mlx_array__(self):
        return mx.array([1, 2])


def test_objects_that_make_arrays_are_taken():
    assert mx.array(_Like()).tolist() == [1, 2]
    assert mx.array(mx.ArrayLike([3])).tolist() == [3]
    assert mx.array(range(3)).dtype == mx.int32


def test_arrays_are_hashed_by_identity_and_equal_elementwise():
    a, b = mx.array([1, 2]), mx.array([1, 2])
    assert len({a, b, a}) == 2
    assert (a == b).tolist() == [True, True]
    assert (a == None) is False  # noqa: E711
    assert (a != "x") is True
