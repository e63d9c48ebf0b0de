"""Transforms under an adversary's schedules: no wrong bit, no access out of order, nothing lost."""

import numpy as np
import pytest

import outlive.core as mx
from outlive.check.library import program

X = np.random.default_rng(0).normal(size=(16, 24)).astype(np.float32)
W = np.ascontiguousarray(X.T[:, :5])


def compiled_steps_that_share_arguments():
    x, w = mx.array(X), mx.array(W)
    step = mx.compile(lambda x, w: [mx.tanh(x @ w) * 2.0, mx.exp(x).sum(axis=1), (x.T + 1.0)[1:]])
    first, second = step(x, w), step(x * 2.0, w)
    return [first, second, step(x + first[1].reshape(16, 1), w)]


def compiled_training():
    x, w = mx.array(X), mx.array(W)
    step = mx.compile(mx.value_and_grad(lambda w, x: (mx.tanh(x @ w) ** 2).mean()))
    for _ in range(3):
        value, gradient = step(w, x)
        w = w - 0.1 * gradient
    return [w, value]


def several_streams():
    other = mx.new_stream(mx.default_device())
    step = mx.compile(lambda x: mx.exp(x, stream=other) * 2.0 + x)
    x = mx.array(X)
    return [step(x), step(step(x) * 0.1)]


def checkpoints_and_batches():
    x, w = mx.array(X), mx.array(W)
    block = mx.checkpoint(lambda x, w: mx.tanh(x @ w))
    return mx.grad(lambda w: (block(x, w) ** 2).sum())(w), mx.vmap(mx.grad(lambda r: (r * r * r).sum()))(x)


PROGRAMS = [compiled_steps_that_share_arguments, compiled_training, several_streams, checkpoints_and_batches]


@pytest.mark.parametrize("profile", ["sim", "metal"])
@pytest.mark.parametrize("function", PROGRAMS)
def test_nothing_is_found_under_any_schedule(function, profile):
    report = program(function, schedules=20, profile=profile)
    assert not report.findings, report.findings[0].violation
    assert report.exploration.launches > 0


@pytest.mark.parametrize("function", PROGRAMS)
def test_failing_allocations_and_launches_lose_nothing(function):
    report = program(function, schedules=20, faults=True)
    assert not report.findings, report.findings[0].violation
