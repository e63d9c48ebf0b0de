"""`compile`: when it traces, what it captures, what it gives back, and that replaying changes no bit."""

import gc
import threading

import numpy as np
import pytest

import outlive.core as mx
from tests.transforms.support import values


class Counted:
    """A function that counts how often its Python code runs."""

    def __init__(self, function):
        self.function = function
        self.calls = 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        return self.function(*args, **kwargs)


def test_one_trace_serves_all_values_of_a_shape_and_type():
    counted = Counted(lambda x: x + 1)
    function = mx.compile(counted)
    assert function(mx.array([1.0, 2.0])).tolist() == [2.0, 3.0]
    assert function(mx.array([5.0, 6.0])).tolist() == [6.0, 7.0]
    assert counted.calls == 1
    assert function(mx.array([1.0, 2.0, 3.0])).tolist() == [2.0, 3.0, 4.0]
    assert function(mx.array([1, 2])).tolist() == [2, 3]
    assert counted.calls == 3


def test_constants_and_structure_are_part_of_what_a_trace_is_for():
    counted = Counted(lambda tree, factor, name=None: tree["x"] * factor if name is None else tree["x"])
    function = mx.compile(counted)
    x = mx.array([1.0, 2.0])
    assert function({"x": x}, 2).tolist() == [2.0, 4.0]
    assert function({"x": x}, 3).tolist() == [3.0, 6.0]
    assert function({"x": x}, 3.0).tolist() == [3.0, 6.0]
    assert function({"x": x}, 3, name="a").tolist() == [1.0, 2.0]
    assert counted.calls == 4
    assert function({"x": x}, 2).tolist() == [2.0, 4.0]
    assert counted.calls == 4


@pytest.mark.parametrize(("first", "second"), [(0.0, -0.0), (1, True), (1, 1.0)])
def test_equal_constants_of_other_kinds_are_other_traces(first, second):
    counted = Counted(lambda x, c: x)
    function = mx.compile(counted)
    function(mx.array(1.0), first)
    function(mx.array(1.0), second)
    assert counted.calls == 2


def test_results_keep_their_structure():
    function = mx.compile(lambda x: {"a": (x + 1, 3), "b": [x, None, "s"], "c": x + 1})
    for _ in range(2):
        result = function(mx.array([1.0]))
        assert result["a"][0].tolist() == [2.0]
        assert result["a"][1] == 3
        assert result["b"][0].tolist() == [1.0]
        assert result["b"][1:] == [None, "s"]
        assert result["c"].tolist() == [2.0]


def test_a_result_that_is_an_argument_stays_it():
    x = mx.array([1.0, 2.0])
    assert mx.compile(lambda x: (x, x))(x)[1].tolist() == [1.0, 2.0]
    assert mx.compile(lambda: mx.arange(3))().tolist() == [0, 1, 2]
    assert mx.compile(lambda x: 5)(x) == 5


def test_state_is_read_and_replaced():
    state = {"count": mx.array(0), "weights": [mx.array([1.0, 2.0])]}
    counted = Counted(lambda x: step(x))

    def step(x):
        state["count"] = state["count"] + 1
        state["weights"][0] = state["weights"][0] * x
        return state["weights"][0].sum()

    function = mx.compile(counted, inputs=state, outputs=state)
    assert [function(mx.array(2.0)).item() for _ in range(3)] == [6.0, 12.0, 24.0]
    assert counted.calls == 1
    assert state["count"].item() == 3
    assert state["weights"][0].tolist() == [8.0, 16.0]
    state["weights"][0] = mx.array([100.0, 0.0])
    assert function(mx.array(2.0)).item() == 200.0
    assert counted.calls == 1


def test_random_state_advances_when_captured_and_stands_still_otherwise():
    def draw():
        return mx.random.uniform(shape=(3,))

    mx.random.seed(11)
    plain = [draw().tolist() for _ in range(3)]
    mx.random.seed(11)
    live = mx.compile(draw, inputs=mx.random.state, outputs=mx.random.state)
    assert [live().tolist() for _ in range(3)] == plain
    frozen = mx.compile(draw)
    assert frozen().tolist() == frozen().tolist()


def test_a_failed_trace_puts_captured_state_back():
    state = [mx.array(1.0)]

    def broken(x):
        state[0] = state[0] + 1.0
        raise KeyError("broken")

    for captured in ({"inputs": state, "outputs": state}, {"inputs": state}, {"outputs": state}):
        with pytest.raises(KeyError):
            mx.compile(broken, **captured)(mx.array(1.0))
        assert state[0].item() == 1.0


def test_state_of_another_structure_is_traced_anew():
    state = {"a": mx.array(1.0)}
    function = mx.compile(lambda x: x * state.get("a", x) + state.get("b", x), inputs=state)
    assert function(mx.array(2.0)).item() == 4.0
    state["b"] = state.pop("a")
    assert function(mx.array(2.0)).item() == 5.0


def test_state_advances_once_a_call_also_inside_another_transform():
    state = [mx.array(0)]

    def step(x, w):
        state[0] = state[0] + 1
        return x * w

    function = mx.compile(step, outputs=state)
    for captured in (lambda w: function(mx.array(2.0), w), lambda w: mx.compile(lambda x: x * w)(mx.array(2.0))):
        assert mx.grad(captured)(mx.array(3.0)).item() == 2.0
    assert state[0].item() == 1
    within = mx.compile(lambda x: step(x, x), outputs=state)
    assert mx.grad(lambda w: within(mx.array(2.0)) * w)(mx.array(3.0)).item() == 4.0
    assert state[0].item() == 2


def test_what_escapes_a_trace_says_that_it_has_no_value():
    escaped = []
    mx.compile(lambda x: escaped.append(x * 2) or x)(mx.array(1.0))
    with pytest.raises(ValueError, match="no value"):
        escaped[0].item()


def test_evaluation_inside_is_refused():
    def branch(x):
        return x if x.item() > 0 else -x

    with pytest.raises(ValueError, match="no value"):
        mx.compile(branch)(mx.array(1.0))


def test_arrays_from_outside_are_constants():
    held = [mx.array([1.0, 2.0])]
    function = mx.compile(lambda x: x * held[0])
    assert function(mx.array([1.0, 1.0])).tolist() == [1.0, 2.0]
    held[0] = mx.array([5.0, 5.0])
    assert function(mx.array([1.0, 1.0])).tolist() == [1.0, 2.0]


def test_large_results_without_arguments_are_not_kept():
    def function(x):
        return (mx.zeros((1 << 20,)) + x).sum()

    compiled = mx.compile(function)
    mx.eval(compiled(mx.array(1.0)))
    gc.collect()
    before = mx.get_active_memory()
    assert compiled(mx.array(2.0)).item() == float(1 << 21)
    gc.collect()
    assert mx.get_active_memory() <= before + 4096


def test_shapeless_functions_are_right_for_every_shape():
    function = mx.compile(lambda x: mx.sum(x, axis=0), shapeless=True)
    assert function(mx.ones((1, 2))).tolist() == [1.0, 1.0]
    assert function(mx.ones((3, 2))).tolist() == [3.0, 3.0]
    flat = mx.compile(lambda x: x.reshape(x.shape[0] * x.shape[1]), shapeless=True)
    assert flat(mx.ones((2, 3))).shape == (6,)
    assert flat(mx.ones((3, 3))).shape == (9,)


def test_other_transforms_see_through():
    x = mx.array([1.0, 2.0, 3.0])
    cube = mx.compile(lambda x: (x * x * x).sum())
    assert mx.grad(cube)(x).tolist() == [3.0, 12.0, 27.0]
    assert mx.compile(mx.grad(cube))(x).tolist() == [3.0, 12.0, 27.0]
    assert mx.compile(mx.grad(lambda x: mx.grad(cube)(x).sum()))(x).tolist() == [6.0, 12.0, 18.0]
    assert mx.vmap(mx.compile(lambda a: a * a))(x).tolist() == [1.0, 4.0, 9.0]
    assert mx.compile(mx.vmap(lambda a: a * a))(x).tolist() == [1.0, 4.0, 9.0]
    assert mx.jvp(mx.compile(lambda a: a * a), [x], [x])[1][0].tolist() == [2.0, 8.0, 18.0]
    assert mx.compile(mx.compile(lambda a: a * a))(x).tolist() == [1.0, 4.0, 9.0]


def test_a_gradient_reaches_what_a_compiled_function_captures():
    x = mx.array([1.0, 2.0])
    assert mx.grad(lambda w: mx.compile(lambda x: x * w)(x).sum())(x).tolist() == [1.0, 2.0]
    function = mx.compile(lambda x, w: x * w)
    assert mx.grad(lambda w: function(x, w).sum())(x).tolist() == [1.0, 2.0]
    assert function(x, x).tolist() == [1.0, 4.0]


def test_a_training_step_equals_the_same_step_without_compilation():
    rng = np.random.default_rng(0)
    data, target = (
        mx.array(rng.normal(size=(33, 7)).astype(np.float32)),
        mx.array(rng.normal(size=33).astype(np.float32)),
    )

    def loss(p, x, y):
        hidden = mx.tanh(x @ p["w1"] + p["b1"])
        return ((hidden @ p["w2"] - y) ** 2).mean()

    def step(p, x, y):
        value, gradient = mx.value_and_grad(loss)(p, x, y)
        return {k: p[k] - 0.1 * gradient[k] for k in p}, value

    def start():
        return {"w1": mx.array(rng2.normal(size=(7, 65)).astype(np.float32)), "b1": mx.zeros((65,)),
                "w2": mx.array(rng2.normal(size=65).astype(np.float32))}  # fmt: skip

    trained = []
    for function in (step, mx.compile(step)):
        rng2 = np.random.default_rng(1)
        parameters, losses = start(), []
        for _ in range(5):
            parameters, value = function(parameters, data, target)
            losses.append(value.item())
        trained.append((losses, {k: values(v) for k, v in parameters.items()}))
    assert trained[0][0] == trained[1][0]
    for k in trained[0][1]:
        np.testing.assert_array_equal(trained[0][1][k], trained[1][1][k])


def test_arguments_nobody_else_holds_are_written_over():
    size = 1 << 18
    function = mx.compile(lambda x: mx.sin(x) * 2.0)
    x = mx.zeros((size,)) + 1.0
    mx.eval(function(mx.zeros((size,)) + 1.0), x)
    gc.collect()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    x = function(x)
    mx.eval(x)
    assert mx.get_peak_memory() <= before + 4096
    np.testing.assert_allclose(x[:3].tolist(), [2 * np.sin(1.0)] * 3, rtol=1e-6)


def test_arguments_that_others_hold_are_left_alone():
    function = mx.compile(lambda x: x + 1.0)
    x = mx.zeros((1000,)) + 1.0
    mx.eval(x)
    other = x
    y = function(x)
    mx.eval(y)
    assert other.tolist() == [1.0] * 1000
    assert y.tolist() == [2.0] * 1000
    view = mx.zeros((4, 3)) + 1.0
    part = view[1:]
    mx.eval(view, part)
    assert function(part).tolist() == [[2.0] * 3] * 3
    assert view.tolist() == [[1.0] * 3] * 4


def test_strided_arguments_and_results_that_are_views():
    function = mx.compile(lambda x: (mx.transpose(x), x[1:, ::2], (x + 1.0).T))
    base = mx.arange(24, dtype=mx.float32).reshape(4, 6)
    for x in (base, base[::2], base.T, base[:, ::-1], mx.broadcast_to(base[0], (3, 6))):
        expected = np.array(x)
        got = function(x)
        np.testing.assert_array_equal(np.array(got[0]), expected.T)
        np.testing.assert_array_equal(np.array(got[1]), expected[1:, ::2])
        np.testing.assert_array_equal(np.array(got[2]), (expected + 1).T)


def test_several_streams_inside_one_function():
    other = mx.new_stream(mx.cpu)
    function = mx.compile(lambda x: mx.add(x, 1.0, stream=other) * 2.0)
    for _ in range(3):
        assert function(mx.array([1.0, 2.0])).tolist() == [4.0, 6.0]


def test_disabled_compilation_runs_the_function_itself():
    counted = Counted(lambda x: x + 1)
    function = mx.compile(counted)
    mx.disable_compile()
    try:
        assert [function(mx.array(1)).item() for _ in range(2)] == [2, 2]
        assert counted.calls == 2
    finally:
        mx.enable_compile()
    assert [function(mx.array(1)).item() for _ in range(2)] == [2, 2]
    assert counted.calls == 3


def test_failed_work_belongs_to_the_results_it_made():
    function = mx.compile(lambda x, y: (mx.linalg.inv(x, stream=mx.cpu), y + 1.0))
    bad, good = function(mx.zeros((2, 2)), mx.array([1.0]))
    with pytest.raises(RuntimeError, match="inv"):
        bad.tolist()
    assert function(mx.eye(2), mx.array([1.0]))[0].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert good is not None


def test_threads_may_share_a_compiled_function():
    function = mx.compile(lambda x: (mx.exp(x) * 2.0 + x).sum())
    expected = [function(mx.full((100,), i * 0.1)).item() for i in range(8)]
    found = [None] * 8

    def work(i):
        for _ in range(20):
            found[i] = function(mx.full((100,), i * 0.1)).item()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == expected


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: mx.compile(3), TypeError, r"\[compile\].*int"),
        (lambda x: mx.compile(lambda x, o: x)(x, object()), ValueError, r"\[compile\].*object"),
        (lambda x: mx.compile(lambda x, o: x)(x, np.ones(3)), ValueError, r"\[compile\].*ndarray"),
        (lambda x: mx.compile(lambda x: x, inputs=x), TypeError, r"inputs must be a list or a dictionary"),
        (lambda x: mx.compile(lambda: x, inputs=[(x,)])(), ValueError, r"lists and dictionaries"),
    ],
)
def test_bad_input_gets_one_clear_sentence(call, error, words):
    with pytest.raises(error, match=words):
        call(mx.array([1.0, 2.0, 3.0]))


def test_a_long_program_of_compiled_kernels_is_one_record(monkeypatch):
    from outlive.backends.cpu import captured as module

    monkeypatch.setenv("OUTLIVE_DISABLE_FUSION", "1")
    launches = []
    original = module.captured
    monkeypatch.setattr(module, "captured", lambda p: launches.append(original(p)) or launches[-1])

    def function(x, w):
        for _ in range(6):
            x = mx.softmax(x * w, axis=-1) + x
        return x, x.T

    x, w = (mx.array(np.random.default_rng(k).normal(size=(5, 5)).astype(np.float32)) for k in range(2))
    compiled = mx.compile(function)
    for scale in (1.0, 2.0, 3.0):  # other buffers each time
        expected, got = function(x * scale, w), compiled(x * scale, w)
        for a, b in zip(expected, got, strict=True):
            np.testing.assert_array_equal(np.array(a), np.array(b))
    assert [op for _, op, _, _ in launches[0].sources] == ["multiply", "softmax", "add"] * 6


def test_a_kernel_that_fails_in_a_program_is_named_and_other_arrays_are_not_affected(monkeypatch):
    monkeypatch.setenv("OUTLIVE_DISABLE_FUSION", "1")

    def function(table, at):
        rows = mx.take(table, at, axis=0)
        for _ in range(10):
            rows = mx.softmax(rows + 1.0, axis=-1)
        return rows

    compiled = mx.compile(function)
    table, inside, outside = mx.ones((4, 3)), mx.array([0, 3]), mx.array([0, 99])
    bad, good = compiled(table, outside), table * 2.0
    for _ in range(2):
        with pytest.raises(
            RuntimeError,
            match=r"\[take\] an index is out of range for axis 0 with size 4 .*float32\[4, 3\], int32\[2\].*test_compile",
        ):
            bad.tolist()
    assert good.tolist() == [[2.0] * 3] * 4
    assert compiled(table, inside).tolist() == function(table, inside).tolist()
    with pytest.raises(RuntimeError, match="take"):
        (bad + 1.0).tolist()
