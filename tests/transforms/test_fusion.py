"""Fusion: grouped work gives the bits of single ops, no group depends on itself, places in memory never overlap."""

import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import outlive.core as mx
from outlive.graph.tracing import Trace
from outlive.runtime.encoder import CommandEncoder
from outlive.runtime.layout import layout
from outlive.transforms import fusion, program
from outlive.transforms.plan import Plan, Step, make_plan
from outlive.transforms.tape import placeholder
from tests.transforms.support import values

FLOATS = [mx.float32, mx.float16, mx.bfloat16]
UNARY = [
    "exp",
    "log",
    "sin",
    "cos",
    "tanh",
    "sigmoid",
    "erf",
    "sqrt",
    "rsqrt",
    "square",
    "abs",
    "negative",
    "reciprocal",
    "sign",
]
BINARY = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "power"]
SHAPES = [(), (1,), (7,), (63,), (65,), (500,), (3, 1), (1, 5), (3, 5), (3, 7, 65), (0,), (2, 0, 3)]


def bits(a):
    kind = {1: mx.uint8, 2: mx.uint16, 4: mx.uint32, 8: mx.uint64}[a.dtype.size]
    return np.array(a.view(kind) if a.ndim else a.reshape(1).view(kind))


def program_of(data):
    """A random function of three arrays, as text of what it did."""
    steps = data.draw(st.lists(st.tuples(st.sampled_from(UNARY + BINARY + ["where", "astype", "sum"]),
                                         st.integers(0, 50), st.integers(0, 50)), min_size=2, max_size=25))  # fmt: skip
    results = data.draw(st.lists(st.integers(0, 50), min_size=1, max_size=4))
    types = data.draw(st.lists(st.sampled_from(FLOATS), min_size=len(steps), max_size=len(steps)))

    def function(*inputs):
        made = list(inputs)
        for (op, i, j), kind in zip(steps, types, strict=True):
            a, b = made[i % len(made)], made[j % len(made)]
            if op in UNARY:
                made.append(getattr(mx, op)(a))
            elif op == "where":
                made.append(mx.where(a > b, a, b))
            elif op == "astype":
                made.append(a.astype(kind))
            elif op == "sum":
                made.append(mx.sum(a, axis=-1, keepdims=True) if a.ndim else a)
            else:
                made.append(getattr(mx, op)(a, b))
        return [made[r % len(made)] for r in results]

    return function


@given(data=st.data(), shape=st.sampled_from(SHAPES), dtype=st.sampled_from(FLOATS))
def test_compiled_functions_give_the_bits_of_their_ops(data, shape, dtype):
    function = program_of(data)
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-30, 3e4])

    def draw(shape):
        made = rng.normal(size=shape) * 3
        return np.where(rng.random(shape) < 0.1, rng.choice(special, shape), made).astype(np.float32)

    kinds = [shape, tuple(1 if data.draw(st.booleans()) else n for n in shape), ()]
    inputs = [mx.array(draw(s)).astype(dtype) for s in kinds]
    compiled = mx.compile(function)
    for _ in range(2):
        for plain, fused in zip(function(*inputs), compiled(*inputs), strict=True):
            assert plain.dtype is fused.dtype
            assert plain.shape == fused.shape
            nan = np.isnan(values(plain))
            np.testing.assert_array_equal(np.isnan(values(fused)), nan)
            np.testing.assert_array_equal(bits(fused).reshape(nan.shape)[~nan], bits(plain).reshape(nan.shape)[~nan])


ANY_TYPE = [mx.bool_, mx.uint8, mx.int8, mx.uint16, mx.int32, mx.uint32, mx.int64, mx.uint64, *FLOATS, mx.float64]
ANY_OP = ["add", "subtract", "multiply", "maximum", "minimum", "equal", "less", "greater_equal", "not_equal", "where"]


@given(
    steps=st.lists(
        st.tuples(st.sampled_from([*ANY_OP, "astype", "logical_and", "bitwise_xor"]), *[st.integers(0, 30)] * 3),
        min_size=2,
        max_size=15,
    ),
    types=st.lists(st.sampled_from(ANY_TYPE), min_size=3, max_size=3),
    size=st.sampled_from([1, 7, 63, 65]),
)
def test_every_element_type_keeps_its_bits(steps, types, size):
    def function(*inputs):
        made = list(inputs)
        for op, i, j, k in steps:
            a, b = made[i % len(made)], made[j % len(made)]
            if op == "astype":
                made.append(a.astype(ANY_TYPE[k % len(ANY_TYPE)]))
            elif op == "where":
                made.append(mx.where(made[k % len(made)], a, b))
            elif op in ("bitwise_xor",) and (issubfloat(a) or issubfloat(b)):
                made.append(mx.abs(a))
            elif op in ("subtract",) and a.dtype is b.dtype is mx.bool_:
                made.append(mx.logical_not(a))
            else:
                made.append(getattr(mx, op)(a, b))
        return made[3:]

    rng = np.random.default_rng(size)
    inputs = [mx.array((rng.normal(size=size) * 60).astype(np.float32)).astype(t) for t in types]
    for plain, fused in zip(function(*inputs), mx.compile(function)(*inputs), strict=True):
        assert plain.dtype is fused.dtype
        if issubfloat(plain):
            nan = np.isnan(np.array(plain.astype(mx.float64)))
            np.testing.assert_array_equal(bits(fused)[~nan], bits(plain)[~nan])
        else:
            np.testing.assert_array_equal(np.array(fused), np.array(plain))


def issubfloat(a):
    return mx.issubdtype(a.dtype, mx.floating)


def plan_of(function, *shapes):
    with Trace() as trace:
        arguments = [placeholder(layout(s, mx.float32), trace) for s in shapes]
        outs = function(*[mx_array(a) for a in arguments])
        outs = outs if isinstance(outs, (list, tuple)) else [outs]
        return make_plan(arguments, [o._node for o in outs])


def mx_array(node):
    from outlive.graph.array import wrap

    return wrap(node)


def test_a_plan_does_repeated_work_once_and_needless_work_never():
    plan = plan_of(lambda x: (mx.sin(x), mx.exp(x) * mx.exp(x) + mx.exp(x))[1], (8,))
    assert [s.primitive.name for s in plan.steps] == ["exp", "multiply", "add"]


def test_a_plan_keeps_small_results_without_arguments_and_makes_large_ones_anew():
    plan = plan_of(lambda x: x * mx.sin(mx.zeros((8,))), (8,))
    assert [s.primitive.name for s in plan.steps] == ["multiply"]
    assert len(plan.constants) == 1
    plan = plan_of(lambda x: (mx.sin(mx.zeros((1 << 20,))) * x).sum(), ())
    assert "sin" in [s.primitive.name for s in plan.steps]


def always(primitive, reads, write):
    return primitive.name in (*UNARY, *BINARY)


def test_a_chain_becomes_one_step():
    fused = fusion.fuse(plan_of(lambda x, y: mx.tanh(mx.exp(x) * y + 1.0) - x, (8, 8), (8,)), always)
    assert [s.primitive.name for s in fused.steps] == ["fused"]
    assert len(fused.steps[0].primitive.members) == 5


def test_only_results_that_others_need_leave_a_group():
    fused = fusion.fuse(plan_of(lambda x: ((a := mx.exp(x)) * 2.0, a.sum()), (8,)), always)
    (step,) = [s for s in fused.steps if s.primitive.name == "fused"]
    assert len(step.outputs) == 2


def test_a_group_stops_where_another_op_stands_between():
    def function(x):
        a = mx.exp(x)
        total = mx.cumsum(a)
        return a * total  # a and the product cannot be one: the scan comes between

    fused = fusion.fuse(plan_of(function, (8,)), always)
    names = [s.primitive.name for s in fused.steps]
    assert names.index("exp") < names.index("cumsum") < names.index("multiply")


def ends(primitive, reads, write):
    return primitive.name == "sum" and primitive.axes == (reads[0].ndim - 1,)


def test_a_reduction_ends_the_group_of_what_it_reads():
    def normalized(x, w):
        return x * mx.rsqrt((x * x).sum(axis=-1, keepdims=True) + 1e-5) * w

    fused = fusion.fuse(plan_of(normalized, (8, 16), (16,)), always, ends)
    groups = [s for s in fused.steps if s.primitive.name == "fused"]
    assert [s.primitive.ends for s in groups] == [True, False, False]
    assert [p.name for p, _ in groups[0].primitive.members] == ["multiply", "sum"]
    assert [p.name for p, _ in groups[2].primitive.members] == ["multiply", "multiply"]


def test_what_depends_on_a_reduced_result_is_outside_of_its_group():
    def centred(x):
        y = mx.exp(x)
        return y - y.sum(axis=-1, keepdims=True)

    first, second = [
        s
        for s in fusion.fuse(plan_of(centred, (8, 16)), always, ends).steps
        if s.primitive.name in ("fused", "subtract")
    ]
    assert first.primitive.ends
    assert len(first.outputs) == 2
    assert second.primitive.name == "subtract"


def test_a_group_that_was_read_does_not_grow_behind_its_readers_back():
    def function(x, r):
        a = mx.exp(x)
        u = mx.min(a, axis=1, keepdims=True)
        b = mx.exp(r)
        return b + u, a * b, u  # plans begin at the last; b + u must not join b, where a * b joins a

    plan = plan_of(function, (4, 8), (4, 1))
    assert [s.primitive.name for s in plan.steps] == ["exp", "min", "exp", "multiply", "add"]
    fused = fusion.fuse(plan, always)
    known = {0, 1}
    for step in fused.steps:
        assert {*step.inputs} <= known
        known |= {*step.outputs}


def test_a_reduced_result_never_lies_over_what_other_rows_read():
    function = mx.compile(lambda x, w: (x * mx.cumsum(w)).sum(axis=1))
    x, w = np.arange(256, dtype=np.float32).reshape(16, 16), np.arange(16, dtype=np.float32)
    assert function(mx.array(x), mx.array(w)).tolist() == (x * np.cumsum(w)).sum(axis=1).tolist()


def several_uses(x):
    a = mx.sin(x)
    c = mx.exp(a)
    d = a * 2.0 + c
    return [a * d, d - c]


def results_that_are_read_again(x):
    e = mx.sin(x)
    return [e, mx.exp(e), mx.cos(mx.exp(e))]


def updated_by_itself(x):
    y = mx.sin(x)
    y[::-1] = y
    return [y]


def updated_part(x):
    y = mx.sin(x)[100:]
    y[3:7] = x[:4]
    z = mx.cos(x)[::2]
    z[3:7] = x[:4]
    return [y, z]


@pytest.mark.parametrize("function", [several_uses, results_that_are_read_again, updated_by_itself, updated_part])
def test_no_value_is_written_over_while_it_is_needed(function, monkeypatch):
    monkeypatch.setenv("OUTLIVE_DISABLE_FUSION", "1")
    x = mx.array(np.random.default_rng(0).normal(size=500).astype(np.float32))
    compiled = mx.compile(function)
    for _ in range(2):
        for one, all_at_once in zip(function(x), compiled(x), strict=True):
            np.testing.assert_array_equal(bits(one), bits(all_at_once))


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16, mx.int32])
@pytest.mark.parametrize("shape", [(9, 1), (9, 63), (33, 65), (1, 500), (70, 5000), (3, 4, 130)])
@pytest.mark.parametrize("op", ["sum", "max", "min"])
def test_reductions_at_the_end_of_a_group_give_their_own_bits(dtype, shape, op, monkeypatch):
    rng = np.random.default_rng(sum(shape))
    x, row, column = (mx.array(rng.normal(size=s).astype(np.float32) * 50).astype(dtype)
                      for s in (shape, shape[-1:], (*shape[:-1], 1)))  # fmt: skip

    def function(x, row, column):
        y = mx.maximum(x * row - column, -x)
        return [y, getattr(mx, op)(y, axis=-1), getattr(mx, op)(y * y, axis=tuple(range(len(shape)))[-2:])]

    for arguments in ((x, row, column), (x.T.T[::-1], row[::-1], mx.broadcast_to(column, shape))):
        fused = mx.compile(function)(*arguments)
        for one, all_at_once in zip(function(*arguments), fused, strict=True):
            np.testing.assert_array_equal(bits(one), bits(all_at_once))


def test_fused_reductions_are_served_by_one_kernel():
    from outlive.backends.cpu.kernels import fused as generator

    served = []
    original = generator._select_rows
    try:
        generator._select_rows = lambda *a: served.append(original(*a)) or served[-1]
        x = mx.array(np.arange(5 * 17 * 31, dtype=np.float32).reshape(5, 17, 31))
        mx.eval(mx.compile(lambda x, w: (mx.exp(-x) * w).sum(axis=-1) + 1.0)(x, mx.ones((31,))))
    finally:
        generator._select_rows = original
    assert served
    assert all(s is not None for s in served)


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16])
def test_the_reference_kernel_of_a_group_rounds_as_its_members_do(dtype):
    def function(x, y):
        a = mx.maximum(x * y + 0.3, x)
        return [mx.where(a > y, a, x * x), mx.sum(a - y, axis=-1)]

    rng = np.random.default_rng(1)
    x, y = (mx.array(rng.normal(size=s).astype(np.float32)).astype(dtype) for s in ((4, 9), (9,)))
    with Trace() as trace:
        arguments = [placeholder(a._node.layout, trace) for a in (x, y)]
        plan = make_plan(arguments, [o._node for o in function(*map(mx_array, arguments))])
    from outlive.backends.cpu.kernels.fused import ends, serves

    fused = fusion.fuse(plan, serves, ends)
    known = [np.array(a.view(mx.uint16) if dtype is mx.bfloat16 else a) for a in (x, y)]
    known += [np.array(mx_array(n).view(mx.uint16) if dtype is mx.bfloat16 else mx_array(n)) for n in plan.constants]
    group = next(s for s in fused.steps if s.primitive.name == "fused")
    assert group.primitive.ends
    seen = group.layout if isinstance(group.layout, tuple) else (group.layout,)
    writes = [np.full(n.shape, 77, n.dtype.storage) for n in seen]
    group.primitive.reference(np, tuple(known[i] for i in group.inputs), writes)
    made = dict(zip(group.outputs, writes, strict=True))
    expected = function(x, y)
    first = made[plan.outputs[0]].view(np.uint16 if dtype.size == 2 else np.uint32)
    np.testing.assert_array_equal(first, bits(expected[0]))
    total = next(w for v, w in made.items() if v != plan.outputs[0]).astype(np.float64)
    if dtype is not mx.bfloat16:
        np.testing.assert_allclose(total.reshape(-1), np.array(expected[1], np.float64), rtol=2e-3)


def test_groups_that_are_too_large_are_cut():
    def chain(x):
        for _ in range(3 * fusion.LIMIT_MEMBERS):
            x = x + 1.0
        return x

    fused = fusion.fuse(plan_of(chain, (4,)), always)
    assert all(len(s.primitive.members) <= fusion.LIMIT_MEMBERS for s in fused.steps)
    assert sum(len(s.primitive.members) for s in fused.steps) == 3 * fusion.LIMIT_MEMBERS

    wide = fusion.fuse(plan_of(lambda *xs: [x + 1.0 for x in xs] + [sum(xs)], *[(4,)] * 40), always)
    for step in wide.steps:
        assert len(step.inputs) + len(step.outputs) <= fusion.LIMIT_OPERANDS


@st.composite
def random_plans(draw):
    """Plans over one shape of fusable steps "add" and others, with any dependencies."""
    count = draw(st.integers(1, 3))
    shape = layout((4,), mx.float32)
    plain = plan_of(lambda x, y: [x + y, mx.cumsum(x)], (4,), (4,))
    add, scan = (s.primitive for s in plain.steps)
    steps = []
    for k in range(draw(st.integers(1, 30))):
        value = st.integers(0, count + k - 1)
        fusable = draw(st.booleans())
        inputs = (draw(value), draw(value)) if fusable else (draw(value),)
        steps.append(Step(add if fusable else scan, inputs, (count + k,), shape, None, None))
    read = {value for step in steps for value in step.inputs}
    unread = [step.outputs[0] for step in steps if step.outputs[0] not in read]  # plans hold no needless steps
    outputs = (*unread, *draw(st.lists(st.integers(0, count + len(steps) - 1), max_size=3)))
    return Plan(count, (), tuple(steps), outputs, (shape,) * (count + len(steps)), None)


@given(plan=random_plans())
def test_no_group_depends_on_itself_and_every_step_follows_what_it_reads(plan):
    fused = fusion.fuse(plan, always)
    known = {*range(plan.argument_count)}
    members = 0
    for step in fused.steps:
        assert {*step.inputs} <= known
        known |= {*step.outputs}
        members += len(step.primitive.members) if step.primitive.name == "fused" else 1
    assert {*plan.outputs} <= known
    assert members == len(plan.steps)


@given(spans=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 10), st.integers(0, 5000)), min_size=1, max_size=40))
def test_places_in_the_arena_never_overlap_while_both_are_needed(spans):
    slots = []
    for first, length, nbytes in spans:
        slot = program.Slot(layout((nbytes,), mx.uint8), first)
        slot.last = first + length
        slots.append(slot)
    size = program._place(slots)
    for k, a in enumerate(slots):
        assert a.offset % program.ALIGNMENT == 0
        assert a.offset + a.layout.nbytes <= size
        for b in slots[:k]:
            together = a.first <= b.last and b.first <= a.last
            apart = a.offset + a.layout.nbytes <= b.offset or b.offset + b.layout.nbytes <= a.offset
            assert apart or not together or not (a.layout.nbytes and b.layout.nbytes)


def test_a_planner_has_every_verb_that_a_primitive_may_use():
    verbs = {"output", "donated", "temporary", "view", "view_as", "reshaped", "dispatch", "learn_pair", "fill", "copy"}
    evaluation = {"probe", "begin", "accept", "pair", "roll_back", "replay", "part_of", "device"}
    public = {n for n, _ in inspect.getmembers(CommandEncoder) if not n.startswith("_")} - {"command_buffer"}
    assert public == verbs | evaluation
    for verb in verbs:
        ours, theirs = (inspect.signature(getattr(c, verb)) for c in (program.Planner, CommandEncoder))
        assert [*ours.parameters] == [*theirs.parameters], verb


def test_fusion_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("OUTLIVE_DISABLE_FUSION", "1")
    plan = plan_of(lambda x: mx.exp(x) + 1.0, (8,))
    assert fusion.fused_for_device(plan) is plan


@pytest.mark.parametrize("size", [1, 3, 7, 63, 65, 500, 100_003])
def test_a_fused_kernel_writes_its_elements_and_no_others(size):
    function = mx.compile(lambda x, y: (mx.exp(x) * y, mx.maximum(x, y) > 0.5))
    x, y = (np.random.default_rng(size + k).normal(size=size).astype(np.float32) for k in range(2))
    product, larger = function(mx.array(x), mx.array(y))
    np.testing.assert_allclose(np.array(product), np.exp(x.astype(np.float64)) * y, rtol=1e-6)
    np.testing.assert_array_equal(np.array(larger), np.maximum(x, y) > 0.5)
