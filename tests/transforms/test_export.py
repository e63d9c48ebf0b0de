"""Exported functions: the same results from a file, in this process and another, and every kind of bad file refused."""

import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import outlive.core as mx
from outlive.transforms import export

X, Y = mx.array([1.0, 2.0, 3.0]), mx.array([0.5, 1.0, 2.0])


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "function")


def test_a_function_comes_back(path):
    held = mx.array([10, 20, 30], dtype=mx.bfloat16)

    def function(x, y):
        a, b = mx.split(mx.concatenate([x, y]), 2)
        return mx.softmax(x * y) + 1.5, (a - b) * held.astype(mx.float32), x, mx.cumsum(y)[::-1]

    mx.export_function(path, function, X, Y)
    imported = mx.import_function(path)
    expected = [r.tolist() for r in function(X, Y)]
    for call in (lambda: imported(X, Y), lambda: imported((X, Y)), lambda: imported([X, Y])):
        result = call()
        assert isinstance(result, tuple)
        assert [r.tolist() for r in result] == expected


def test_keywords_are_part_of_the_signature(path):
    mx.export_function(path, lambda x, *, y, z: x * y - z, X, z=Y, y=X)
    imported = mx.import_function(path)
    assert imported(X, y=X, z=Y)[0].tolist() == [0.5, 3.0, 7.0]
    assert imported((X,), {"y": X, "z": Y})[0].tolist() == [0.5, 3.0, 7.0]
    for args, kwargs in (((X, X), {"z": Y}), ((X,), {"y": X}), ((X,), {"y": X, "w": Y})):
        with pytest.raises(ValueError, match=r"has no trace for"):
            imported(*args, **kwargs)


def test_other_shapes_and_types_are_refused_and_what_is_there_is_listed(path):
    mx.export_function(path, lambda x: x + 1, X)
    imported = mx.import_function(path)
    for bad in (mx.ones((4,)), mx.ones((3,), dtype=mx.int32), mx.ones((3, 1))):
        with pytest.raises(ValueError, match=r"float32\[3\]"):
            imported(bad)
    with pytest.raises(ValueError, match="float"):
        imported(1.0)


def test_shapeless_functions_take_all_lengths(path):
    def function(x, y):
        return mx.softmax(mx.exp(x) * y + x, axis=-1), mx.sum(x, axis=0), (x @ mx.transpose(y)).astype(mx.float16)

    mx.export_function(path, function, mx.ones((2, 3)), mx.ones((2, 3)), shapeless=True)
    imported = mx.import_function(path)
    for shape in ((2, 3), (5, 7), (1, 1)):
        x, y = (mx.array(np.random.default_rng(k).normal(size=shape).astype(np.float32)) for k in range(2))
        for ours, theirs in zip(imported(x, y), function(x, y), strict=True):
            assert ours.dtype is theirs.dtype
            np.testing.assert_array_equal(np.array(ours), np.array(theirs))
    with pytest.raises(ValueError, match="no trace"):
        imported(mx.ones((3,)), mx.ones((3,)))


def test_several_traces_share_a_file(path):
    with mx.exporter(path, lambda *args: sum(args)) as exporter:
        exporter(X)
        exporter(X, Y)
        with pytest.raises(RuntimeError, match="already"):
            exporter(Y, X)
    with pytest.raises(RuntimeError, match="written"):
        exporter(X, X, X)
    imported = mx.import_function(path)
    assert imported(X)[0].tolist() == [1.0, 2.0, 3.0]
    assert imported(X, Y)[0].tolist() == [1.5, 3.0, 5.0]


def test_nothing_is_written_after_an_error(path):
    with pytest.raises(KeyError), mx.exporter(path, lambda x: x) as exporter:  # noqa: PT012
        exporter(X)
        raise KeyError
    assert not os.path.exists(path)
    assert os.listdir(os.path.dirname(path)) == []


def test_metadata_travels(path):
    mx.export_function(path, lambda x: x, X, metadata="a text, also ünicode")
    assert mx.import_function(path, return_metadata=True)[1] == "a text, also ünicode"
    mx.export_function(path, lambda x: x, X)
    assert mx.import_function(path, return_metadata=True)[1] == ""
    with pytest.raises(ValueError, match="callback"):
        mx.export_function(print, lambda x: x, X, metadata="a")


def test_imported_functions_can_be_transformed(path):
    mx.export_function(path, lambda x, y: (x * x * y).sum(), X, Y)
    imported = mx.import_function(path)
    assert mx.grad(lambda x: imported(x, Y)[0])(X).tolist() == (2 * np.array(X) * np.array(Y)).tolist()
    assert mx.compile(lambda x: imported(x, Y)[0])(X).item() == pytest.approx(22.5)
    mx.export_function(path, mx.grad(lambda x: mx.compile(mx.checkpoint(lambda x: x * x))(x).sum()), X)
    assert mx.import_function(path)(X)[0].tolist() == [2.0, 4.0, 6.0]


def test_another_process_reads_the_file(path):
    mx.export_function(path, lambda x: mx.exp(x) * mx.array([1.0, 2.0, 3.0]), X)
    program = (
        "import sys, outlive.core as mx\nprint(mx.import_function(sys.argv[1])(mx.array([1.0, 2.0, 3.0]))[0].tolist())"
    )
    found = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout) == (mx.exp(X) * X).tolist()


def test_a_callback_gets_the_graph():
    told = []
    mx.export_function(told.append, lambda x, y: mx.exp(x * y).sum(axis=0) + mx.array([1.0]), X, y=Y)
    kinds = [t["type"] for t in told]
    assert kinds[:4] == ["inputs", "keyword_inputs", "outputs", "constants"]
    assert told[0]["inputs"] == [("A", (3,), mx.float32), ("B", (3,), mx.float32)]
    assert told[1]["keywords"] == [("y", "B")]
    assert told[3]["constants"][0][1].tolist() == [1.0]
    assert [t["name"] for t in told[4:]][:2] == ["multiply", "exp"]
    made = {name for t in told[4:] for name, _, _ in t["outputs"]}
    assert {name for name, _, _ in told[2]["outputs"]} <= made


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda p: mx.export_function(p, lambda x: {"a": x}, X), "dict"),
        (lambda p: mx.export_function(p, lambda x, y: x, X, 2.0), "float"),
        (lambda p: mx.grad(lambda x: mx.export_function(p, lambda y: x * y, X) or x.sum())(X), "outside of grad"),
    ],
)
def test_what_cannot_be_exported_is_refused(path, call, words):
    with pytest.raises(ValueError, match=words):
        call(path)
    assert not os.path.exists(path)


def test_a_missing_file_is_named(path):
    with pytest.raises(RuntimeError, match=r"Cannot read .*function: No such file"):
        mx.import_function(path)


def rewritten(path, change):
    """The file with its header changed and its checksum made right again."""
    with open(path, "rb") as file:
        body = file.read()[len(export.MAGIC) + 32 :]
    size = int.from_bytes(body[:8], "little")
    header = json.loads(body[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    body = len(text).to_bytes(8, "little") + text + body[8 + size :]
    with open(path, "wb") as file:
        file.write(export.MAGIC + export.hashlib.sha256(body).digest() + body)


def step(header, **changes):
    index = {"op": 0, "parameters": 1, "inputs": 2, "outputs": 3, "layout": 4}
    for name, value in changes.items():
        header["traces"][0]["steps"][0][index[name]] = value


HOSTILE = {
    "another version": lambda h: h.update(version=99),
    "no version": lambda h: h.pop("version"),
    "an unknown op": lambda h: step(h, op="elementwise:Nothing"),
    "a function in place of an op": lambda h: step(h, op="elementwise:add"),
    "a class from elsewhere": lambda h: step(h, op="elementwise:array"),
    "a path out of the ops": lambda h: step(h, op="..runtime.stream:Stream"),
    "another module": lambda h: step(h, op="os:system"),
    "parameters too many": lambda h: step(h, parameters=[1, 2, 3]),
    "a value not made yet": lambda h: step(h, inputs=[0, 99]),
    "a negative value": lambda h: step(h, inputs=[0, -1]),
    "outputs that are not the next": lambda h: step(h, outputs=[0]),
    "a negative shape": lambda h: step(h, layout=["float32", [-3]]),
    "an unknown type": lambda h: step(h, layout=["float99", [3]]),
    "an output that is not made": lambda h: h["traces"][0].update(outputs=[1000]),
    "a constant outside": lambda h: h["traces"][0]["constants"][0].__setitem__(2, 1 << 40),
    "a constant before the start": lambda h: h["traces"][0]["constants"][0].__setitem__(2, -4),
    "arguments that are not there": lambda h: h["traces"][0].update(positional=5),
    "traces of another kind": lambda h: h.update(traces=3),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_header_is_refused(path, what):
    mx.export_function(path, lambda x, y: x * y + mx.array([1.0, 2.0, 3.0]), X, Y)
    rewritten(path, HOSTILE[what])
    with pytest.raises(RuntimeError, match=r"\[import_function\]"):
        mx.import_function(path)


@given(data=st.data())
def test_a_cut_or_changed_file_is_refused(data, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("export") / "function")
    mx.export_function(path, lambda x: x * mx.array([1.0, 2.0, 3.0]), X)
    with open(path, "rb") as file:
        content = bytearray(file.read())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    with open(path, "wb") as file:
        file.write(content)
    with pytest.raises(RuntimeError, match=r"\[import_function\]"):
        mx.import_function(path)


def test_every_op_has_a_name_of_its_own_in_files():
    seen = {}
    waiting = [export.Primitive]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith("outlive.ops."):
            name = export._class_name(kind)
            assert name not in seen, f"{kind} and {seen[name]}"
            seen[name] = kind
            assert export.op_classes(kind.__module__)[kind.__qualname__] is kind
    assert len(seen) > 50


def test_graphs_are_drawn_with_names_ops_and_shapes():
    text = io.StringIO()
    a, b = mx.array([1.0]), mx.array([2.0])
    mx.export_to_dot(text, mx.exp(a * b), a=a, quoted=b)
    lines = text.getvalue().splitlines()
    assert lines[0] == "digraph {"
    assert lines[-1] == "}"
    assert any('"a: float32[1]" -> op0' in line for line in lines)
    assert any("multiply" in line for line in lines)
    assert sum("shape=rectangle" in line for line in lines) == 2


def test_graphs_go_to_files_and_show_groups_once(path):
    parts = mx.split(mx.arange(4) * 2, 2)
    mx.export_to_dot(path, parts)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert text.count("split") <= 2
    with pytest.raises(ValueError, match="export_to_dot"):
        mx.export_to_dot(path, 3)
