"""The transforms beside the reference: structure of results, kinds of errors, exact values of integer programs."""

import numpy as np
import pytest

import outlive.core as mx
from tests.reference import Array, Program
from tests.reference.compare import assert_same_outcome
from tests.reference.wire import Side

OURS = Side(mx)
INPUTS = {
    "x": Array.of(np.array([1.0, 2.0, 3.0], np.float32)),
    "m": Array.of(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)),
}

PROGRAMS = {
    # grad and value_and_grad
    "grad": "out = mx.grad(lambda x: (x * x * x).sum())(x)",
    "grad of integers": "out = mx.grad(lambda x: x.sum())(mx.array([1, 2]))",
    "grad of two positions": "out = mx.grad(lambda x, y: (x * y).sum(), argnums=[0, 1])(x, x + 1)",
    "grad of one position in a list": "out = mx.grad(lambda x, y: (x * y).sum(), argnums=[0])(x, x + 1)",
    "grad by name": "out = mx.grad(lambda x, y: (x * y).sum(), argnames='y')(x, y=x)",
    "grad by position and name": "out = mx.grad(lambda x, y: (x * y).sum(), argnums=0, argnames=['y'])(x, y=x)",
    "grad of trees": "out = mx.grad(lambda p: (p['a'] * p['b'][0] * p['c'][0]).sum())({'a': x, 'b': [x], 'c': (x,)})",
    "grad of a float argument": "out = mx.grad(lambda x: x * 2)(3.0)",
    "grad of a tuple": "out = mx.grad(lambda x: (x.sum(), x))(x)",
    "grad of an array that is no scalar": "out = mx.grad(lambda x: x * 2)(x)",
    "negative position": "out = mx.grad(lambda x: x.sum(), argnums=-1)(x)",
    "position twice": "out = mx.grad(lambda x: x.sum(), argnums=[0, 0])(x)",
    "no position": "out = mx.grad(lambda x: x.sum(), argnums=[], argnames=[])(x)",
    "position out of range": "out = mx.grad(lambda x: x.sum(), argnums=2)(x)",
    "unknown name": "out = mx.grad(lambda x, y: (x * y).sum(), argnames=['z'])(x, y=x)",
    "value and grad": "out = mx.value_and_grad(lambda x: (x * x).sum())(x)",
    "value and grad with the rest": "out = mx.value_and_grad(lambda x: ((x * x).sum(), {'x': x}, 'a', 3))(x)",
    "value and grad of a list": "out = mx.value_and_grad(lambda x: [x.sum(), x])(x)",
    "value and grad of None": "out = mx.value_and_grad(lambda x: None)(x)",
    "evaluation inside grad": "def f(x):\n y = x * x\n mx.eval(y)\n return (y * x).sum()\nout = mx.grad(f)(x)",
    "branch inside grad": "out = mx.grad(lambda x: (x * x).sum() if x[0].item() > 0 else x.sum())(x)",
    "assignment inside grad": "def f(x):\n y = x * 1\n y[0] = y[1] * 5\n return (y * y).sum()\nout = mx.grad(f)(x)",
    "assignment to an argument": "def f(x):\n x[0] = x[1] * 5\n return (x * x).sum()\nout = [mx.grad(f)(x), x]",
    "augmented assignment": "def f(x):\n x += 1\n return (x * x).sum()\nout = [mx.grad(f)(x), x]",
    "stop_gradient": "out = mx.grad(lambda x: (mx.stop_gradient(x) * x).sum())(x)",
    "second derivative": "out = mx.grad(lambda x: mx.grad(lambda y: (y * y * y).sum())(x).sum())(x)",
    # vjp and jvp
    "vjp": "out = mx.vjp(lambda x, y: (x * y, x + y), [x, x + 1], [x, x])",
    "vjp of constants": "out = mx.vjp(lambda x: mx.ones((3,)), [x], [x])",
    "vjp of the argument": "out = mx.vjp(lambda x: x, [x], [x])",
    "vjp with cotangents of another shape": "out = mx.vjp(lambda x: x * x, [x], [mx.ones((4,))])",
    "jvp": "out = mx.jvp(lambda x, y: (x * y, x + y), [x, x + 1], [x, x])",
    "jvp of integers": "out = mx.jvp(lambda x: x + x, [mx.array([1, 2])], [mx.array([1, 2])])",
    "jvp of constants": "out = mx.jvp(lambda x: mx.ones((2,)), [x], [x])",
    "jvp with too few tangents": "out = mx.jvp(lambda x, y: x * y, [x, x], [x])",
    "jvp with tangents of another shape": "out = mx.jvp(lambda x: x * x, [x], [mx.ones((4,))])",
    # vmap
    "vmap": "out = mx.vmap(lambda a, b: a * b)(x, x)",
    "vmap over one of two": "out = mx.vmap(lambda a, b: a * b, in_axes=(0, None))(x, x)",
    "vmap over axes": "out = mx.vmap(lambda a, b: a * b, in_axes=(-1, 0))(m, x)",
    "vmap to axes": "out = mx.vmap(lambda a: (a, a * 2), out_axes=(0, 1))(m)",
    "vmap repeats results without batch": "out = mx.vmap(lambda a: mx.ones(2))(m)",
    "vmap with a dictionary": "out = mx.vmap(lambda a: a['x'] * a['y'], in_axes={'x': 0, 'y': 0})({'x': x, 'y': x})",
    "vmap to trees": "out = mx.vmap(lambda a: {'q': a, 'r': [a, a * 2]}, out_axes={'q': 0, 'r': 1})(m)",
    "vmap of lengths that differ": "out = mx.vmap(lambda a, b: a * b)(x, mx.ones((4,)))",
    "vmap over nothing": "out = mx.vmap(lambda a, b: a * b, in_axes=(None, None))(x, x)",
    "vmap out of range": "out = mx.vmap(lambda a: a, in_axes=1)(x)",
    "vmap of floats": "out = mx.vmap(lambda a, b: a * b)(x, 2.0)",
    "vmap to a number": "out = mx.vmap(lambda a: 3)(x)",
    "vmap with keywords": "out = mx.vmap(lambda a, b: a * b)(x, b=x)",
    "vmap with axes that do not fit": "out = mx.vmap(lambda a, b: a * b, in_axes=(0,))(x, x)",
    "evaluation inside vmap": "out = mx.vmap(lambda a: mx.array(a.item()))(x)",
    "vmap of grad": "out = mx.vmap(mx.grad(lambda a: (a * a).sum()))(m)",
    "grad of vmap": "out = mx.grad(lambda a: mx.vmap(lambda b: (b * b).sum())(a).sum())(m)",
    # compile
    "compile": "f = mx.compile(lambda x: x * x + x)\nout = [f(x), f(m), f(x)]",
    "compile with constants": "f = mx.compile(lambda x, s: x * s)\nout = [f(x, 3), f(x, 4)]",
    "compile of trees": "out = mx.compile(lambda x: {'a': x['a'] + 1, 'b': (x['b'], 3, None)})({'a': x, 'b': [x]})",
    "compile with keywords": "out = mx.compile(lambda x, *, y: x + y)(x, y=x)",
    "compile with an object": "out = mx.compile(lambda x, o: x)(x, object())",
    "evaluation inside compile": "out = mx.compile(lambda x: x if x[0].item() > 0 else -x)(x)",
    "compile with state": (
        "state = {'n': mx.array(0), 'w': [x]}\n"
        "def step(y):\n state['n'] = state['n'] + 1\n state['w'][0] = state['w'][0] + y\n return state['w'][0] * 2\n"
        "f = mx.compile(step, inputs=state, outputs=state)\nout = [f(x), f(x), state['n'], state['w'][0]]"
    ),
    "compile with outputs alone": (
        "state = [mx.array(0)]\ndef step(y):\n state[0] = state[0] + 1\n return y\n"
        "f = mx.compile(step, outputs=state)\nf(x)\nout = [f(x), state[0]]"
    ),
    "grad in compile": "out = mx.compile(lambda a: mx.grad(lambda b: (b * b * a).sum())(a))(x)",
    "grad of compile": "out = mx.grad(lambda a: mx.compile(lambda b: (b * b).sum())(a))(x)",
    "vmap of compile": "out = mx.vmap(mx.compile(lambda b: (b * b).sum()))(m)",
    # custom functions and checkpoints
    "custom vjp": (
        "f = mx.custom_function(lambda x, y: x * y)\nf.vjp(lambda p, c, o: (c * 100, c * 10))\n"
        "out = mx.grad(lambda a, b: f(a, b).sum(), argnums=(0, 1))(x, x)"
    ),
    "custom jvp with one tangent": (
        "f = mx.custom_function(lambda x, y: x * y)\nf.jvp(lambda p, t: t[0] * (3 if t[1] is None else 5))\n"
        "out = mx.jvp(lambda a: f(a, x), [x], [x])"
    ),
    "custom trees": (
        "f = mx.custom_function(lambda t: {'a': t['p'] * 2, 'b': [t['p']]})\n"
        "f.vjp(lambda p, c, o: {'p': c['a'] * 7 + o['a']})\nout = mx.grad(lambda a: f({'p': a})['a'].sum())(x)"
    ),
    "custom vmap": (
        "f = mx.custom_function(lambda x, y: x * y)\nf.vmap(lambda i, a: (i[0] * 2, a[0]))\n"
        "out = mx.vmap(f, in_axes=(0, None))(x, x)"
    ),
    "checkpoint": "out = mx.grad(lambda a: mx.checkpoint(lambda b: b * b * b)(a).sum())(x)",
    "checkpoint of trees": "out = mx.checkpoint(lambda b, k: {'a': b['x'] * k})({'x': x}, 3)",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_ends_as_with_the_reference(reference, name):
    program = Program(PROGRAMS[name], INPUTS)
    assert_same_outcome(OURS.perform(program), reference.batch([program])[0], "transforms", context=program.text)


def test_exported_functions_refuse_what_the_reference_refuses(reference, tmp_path):
    for text in (
        "mx.export_function(path, lambda x, y: (x * y, x), x, y=x)\nout = mx.import_function(path)(x, y=x)",
        "mx.export_function(path, lambda x: [x + 1], (x,))\nout = mx.import_function(path)((x,))",
        "mx.export_function(path, lambda x: x + 1, x)\nout = mx.import_function(path)(m)",
        "mx.export_function(path, lambda x: x + 1, x)\nout = mx.import_function(path)(1.0)",
        "mx.export_function(path, lambda x: {'a': x}, x)",
        "mx.export_function(path, lambda x: x, 2.0)",
        "mx.export_function(path, lambda x: x, x, metadata='m')\nout = mx.import_function(path, True)[1]",
        "out = mx.import_function(path + 'missing')",
    ):
        program = Program(f"path = {str(tmp_path / 'f')!r}\n{text}", INPUTS)
        assert_same_outcome(OURS.perform(program), reference.batch([program])[0], "export", context=text)
