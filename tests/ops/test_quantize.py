"""Quantization: the reference's bits, values in float32 rounded once, products against float64 over a grid of geometries."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import outlive.core as mx
from outlive.runtime.errors import ExecutionError
from tests.ops.rules import check_batching, check_derivatives, numbers
from tests.reference import Array, Program
from tests.reference.compare import assert_same_array
from tests.reference.wire import Side, bfloat16_bits

OURS = Side(mx)
AFFINE = [("affine", bits, group) for bits in (1, 2, 3, 4, 5, 6, 8) for group in (32, 64, 128)]
MICRO = [("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)]


def weights(kind: str, *shape: int, scale: float = 1.0, seed: int = 0) -> Array:
    """Numbers in `kind`, among them a row of zeros, one of a constant and one of positive numbers."""
    values = numbers(*shape, seed=seed).astype(np.float32) * np.float32(scale)
    values[0], values[1], values[2] = 0, 3, np.abs(values[2])
    if kind == "bfloat16":
        return Array(kind, bfloat16_bits(values))
    return Array(kind, values.astype(kind))


QUANTIZE = "q = mx.quantize(w, group, bits, mode)\nout = list(q)"


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("mode", "bits", "group"), AFFINE + MICRO)
def test_quantize_gives_the_references_bits(reference, mode, bits, group, kind):
    programs = [
        Program(QUANTIZE, {"w": weights(kind, 9, 256, scale=s, seed=i), "group": group, "bits": bits, "mode": mode})
        for i, s in enumerate((1.0, 1e-3, 50.0))
    ]
    for program, theirs in zip(programs, reference.batch(programs), strict=True):
        ours = OURS.perform(program)
        for found, wanted in zip(ours.value, theirs.value, strict=True):
            assert_same_array(found, wanted, context=(mode, bits, group, kind))


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("largest", [1.0, 3.3, 100.0, 2688.0, 0.02])
def test_nvfp4_under_a_global_scale_gives_the_references_bits(reference, kind, largest):
    text = "q = mx.quantize(w, mode='nvfp4', global_scale=mx.array(largest))\n"
    text += "out = [*q, mx.dequantize(*q, mode='nvfp4', global_scale=mx.array(largest), dtype=mx.float32)]"
    program = Program(text, {"w": weights(kind, 9, 256, scale=min(largest, 5) / 4), "largest": largest})
    ours, theirs = OURS.perform(program), reference.batch([program])[0]
    for found, wanted in zip(ours.value[:2], theirs.value[:2], strict=True):
        assert_same_array(found, wanted)
    np.testing.assert_allclose(ours.value[2].values(), theirs.value[2].values(), rtol=1e-6)


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("mode", "bits", "group"), AFFINE)
def test_a_dequantized_value_is_scale_times_code_plus_bias_rounded_once(mode, bits, group, kind):
    dtype = getattr(mx, kind)
    words, scales, biases = mx.quantize(OURS.build(weights(kind, 9, 256)), group, bits, mode)
    stream = np.unpackbits(np.array(words).view(np.uint8), axis=-1, bitorder="little").reshape(9, 256, bits)
    codes = (stream * (1 << np.arange(bits))).sum(-1).reshape(9, 256 // group, group).astype(np.float64)
    wide = [np.array(a.astype(mx.float32))[..., None] for a in (scales, biases)]
    exact = (codes * wide[0] + wide[1]).reshape(9, 256).astype(np.float32)
    assert mx.array_equal(mx.dequantize(words, scales, biases, group, bits), mx.array(exact).astype(dtype)).item()
    assert mx.array_equal(mx.dequantize(words, scales, biases, group, bits, dtype=mx.float32), mx.array(exact)).item()


@pytest.mark.parametrize(("mode", "bits", "group"), MICRO)
@pytest.mark.parametrize("scale", [1e-40, 1e-30, 0.0, 1.0, 1e5, 1e30])
def test_microscaled_numbers_of_any_size_stay_finite(mode, bits, group, scale):
    parts = mx.quantize(mx.ones((2, 64)) * scale, mode=mode)
    values = np.array(mx.dequantize(*parts, mode=mode, dtype=mx.float32))
    assert np.isfinite(values).all()
    if mode != "nvfp4" and scale >= 1e-30:
        np.testing.assert_allclose(values, scale, rtol=0.26)


def test_fp8_codes_are_those_of_ml_dtypes():
    sizes = 10.0 ** np.random.default_rng(0).uniform(-4, 3, 2000)
    values = np.concatenate([numbers(2000) * sizes, [np.nan, np.inf, -np.inf, 0, -0.0, 464, 465, 2**-10]])
    values = values.astype(np.float32)
    wanted = np.clip(values, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    np.testing.assert_array_equal(np.array(mx.to_fp8(mx.array(values))), wanted)
    every = np.arange(256, dtype=np.uint8)
    decoded = every.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.testing.assert_array_equal(np.array(mx.from_fp8(mx.array(every), mx.float32)), decoded)
    assert mx.from_fp8(mx.array(every)).dtype == mx.bfloat16


# 24 formats x 12 geometries with partial tiles in M, N and K
GEOMETRIES = [
    (transpose, m, n, k)
    for transpose, (m, n, k) in itertools.product(
        (True, False), [(1, 1, 128), (2, 31, 384), (7, 33, 256), (16, 65, 640), (33, 8, 128), (65, 40, 256)]
    )
]


def float64_product(x: mx.array, parts: tuple, mode: str, bits: int, group: int, transpose: bool) -> tuple:
    """(exact product of the values, the sum of the terms' magnitudes)."""
    values = np.array(mx.dequantize(*parts, group_size=group, bits=bits, mode=mode, dtype=mx.float32))
    wide = values.astype(np.float64)
    wide = wide.swapaxes(-1, -2) if transpose else wide
    host = np.array(x.astype(mx.float32)).astype(np.float64)
    return host @ wide, np.abs(host) @ np.abs(wide)


@pytest.mark.parametrize(("mode", "bits", "group"), AFFINE + MICRO)
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_products_of_every_format_and_geometry(mode, bits, group, geometry):
    transpose, m, n, k = geometry
    shape = (n, k) if transpose else (max(k // 4, 3), 128 * (1 + n // 40))
    inner = k if transpose else shape[0]
    for kind in (mx.float32, mx.bfloat16):
        w = mx.array(numbers(*shape).astype(np.float32)).astype(kind)
        parts = mx.quantize(w, group, bits, mode)
        rows = numbers(m + 2, inner, seed=1).astype(np.float32)
        rows[0], rows[-1] = np.nan, np.nan
        x = mx.array(rows).astype(kind)[1:-1]
        biases = parts[2] if mode == "affine" else None
        found = mx.quantized_matmul(x, parts[0], parts[1], biases, transpose, group, bits, mode)
        exact, magnitude = float64_product(x, parts, mode, bits, group, transpose)
        bound = inner * 2.0**-24 * magnitude + (
            np.abs(exact) * 2.0**-7 if kind is mx.bfloat16 else 2.0**-22 * magnitude
        )
        error = np.abs(np.array(found.astype(mx.float32)) - exact)
        assert (error <= bound).all(), f"largest error {np.nanmax(error / bound):.3g} of what is allowed"


@pytest.mark.parametrize(("mode", "bits", "group"), [("affine", 4, 64), ("affine", 8, 32), *MICRO])
def test_a_row_with_nan_leaves_the_other_rows_alone(mode, bits, group):
    parts = mx.quantize(mx.array(numbers(40, 128).astype(np.float32)), group, bits, mode)
    biases = parts[2] if mode == "affine" else None
    rows = numbers(37, 128).astype(np.float32)
    clean = np.array(mx.quantized_matmul(mx.array(rows), parts[0], parts[1], biases, True, group, bits, mode))
    rows[5] = np.nan
    dirty = np.array(mx.quantized_matmul(mx.array(rows), parts[0], parts[1], biases, True, group, bits, mode))
    assert np.isnan(dirty[5]).all()
    np.testing.assert_array_equal(np.delete(dirty, 5, 0), np.delete(clean, 5, 0))


def test_weights_in_stacks_broadcast_against_x():
    w = mx.array(numbers(2, 5, 64).astype(np.float32))
    parts = mx.quantize(w, 32, 8)
    for shape in ((3, 64), (64,), (2, 3, 64), (4, 1, 3, 64), (4, 2, 3, 64)):
        x = mx.array(numbers(*shape).astype(np.float32))
        found = mx.quantized_matmul(x, *parts, group_size=32, bits=8)
        dense = mx.dequantize(*parts, group_size=32, bits=8)
        np.testing.assert_allclose(np.array(found), np.array(x @ dense.swapaxes(-1, -2)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("mode", "bits", "group"), [("affine", 4, 64), ("affine", 8, 32), *MICRO])
@pytest.mark.parametrize("transpose", [True, False])
def test_gathered_products_equal_products_one_by_one(mode, bits, group, transpose):
    parts = mx.quantize(mx.array(numbers(5, 128, 128).astype(np.float32)), group, bits, mode)
    biases = parts[2] if mode == "affine" else None
    x = mx.array(numbers(3, 2, 128).astype(np.float32))
    left, right = np.array([[0], [2], [1]]), np.array([[4, 0, 4]])
    found = mx.gather_qmm(x, parts[0], parts[1], biases, mx.array(left), mx.array(right), transpose, group, bits, mode)
    assert found.shape == (3, 3, 2, 128)
    for i, j in np.ndindex(3, 3):
        chosen = [a[int(right[0, j])] for a in parts]
        bias = chosen[2] if mode == "affine" else None
        one = mx.quantized_matmul(x[int(left[i, 0])], chosen[0], chosen[1], bias, transpose, group, bits, mode)
        np.testing.assert_allclose(np.array(found[i, j]), np.array(one), rtol=1e-5, atol=1e-4)


def test_promised_order_of_experts_never_changes_the_result():
    parts = mx.quantize(mx.array(numbers(4, 64, 96).astype(np.float32)), 32)
    x = mx.array(numbers(20, 1, 96).astype(np.float32))
    for places in (np.sort(numbers(20).argsort() % 4), numbers(20).argsort() % 4):
        chosen = mx.array(places.astype(np.uint32))
        plain = mx.gather_qmm(x, *parts, rhs_indices=chosen, group_size=32)
        promised = mx.gather_qmm(x, *parts, rhs_indices=chosen, group_size=32, sorted_indices=True)
        assert mx.array_equal(plain, promised).item()


def test_an_expert_out_of_range_is_an_error_of_the_result():
    parts = mx.quantize(mx.zeros((4, 64, 64)))
    bad = mx.gather_qmm(mx.zeros((2, 1, 64)), *parts, rhs_indices=mx.array([0, 4]))
    with pytest.raises(ExecutionError, match=r"\[gather_qmm\].*4 matrices"):
        bad.tolist()


@pytest.mark.parametrize(("mode", "bits", "group"), MICRO)
def test_qqmm_multiplies_the_quantized_values_of_both(mode, bits, group):
    x, w = [mx.array(numbers(*s).astype(np.float32)) for s in ((3, 64), (5, 64))]
    seen = [mx.dequantize(*mx.quantize(a, mode=mode), mode=mode, dtype=mx.float32) for a in (x, w)]
    wanted = np.array(seen[0], np.float64) @ np.array(seen[1], np.float64).T
    for found in (mx.qqmm(x, w, mode=mode), mx.qqmm(x, *mx.quantize(w, mode=mode), mode=mode)):
        np.testing.assert_allclose(np.array(found), wanted, rtol=1e-5, atol=1e-5)
    places = mx.array([1, 0, 1])
    stacks = [mx.stack([a, a * 2]) for a in (x, w)]
    found = mx.gather_qqmm(*stacks, lhs_indices=mx.array([0, 0, 0]), rhs_indices=places, mode=mode)
    scaled = mx.dequantize(*mx.quantize(stacks[1][1], mode=mode), mode=mode, dtype=mx.float32)
    np.testing.assert_allclose(np.array(found[0]), np.array(seen[0] @ scaled.T), rtol=1e-5, atol=1e-5)


ERRORS = [
    (lambda w: mx.quantize(w[:, :48]), "does not divide into groups of 64"),
    (lambda w: mx.quantize(w[0]), "at least 2 dimensions"),
    (lambda w: mx.quantize(w, group_size=16), "groups of 32, 64 or 128; got 16"),
    (lambda w: mx.quantize(w, bits=7), "1, 2, 3, 4, 5, 6 or 8 bits; got 7"),
    (lambda w: mx.quantize(w, mode="x"), "Unknown mode 'x'"),
    (lambda w: mx.quantize(w, mode="mxfp4", group_size=16), "groups of 32; got 16"),
    (lambda w: mx.quantize(w.astype(mx.int32)), "real floating-point array; got int32"),
    (lambda w: mx.quantize(w, mode="mxfp4", global_scale=mx.array(2.0)), "no global scale"),
    (lambda w: mx.dequantize(*mx.quantize(w)[:2]), "needs biases"),
    (lambda w: mx.dequantize(*mx.quantize(w), group_size=32), "Scales of shape .* do not fit words"),
    (lambda w: mx.dequantize(*mx.quantize(w), bits=8), "do not fit words"),
    (
        lambda w: mx.quantized_matmul(w[:, :32], *mx.quantize(w)),
        r"\[quantized_matmul\] The last axis of x \(4, 32\) must be 64",
    ),
    (lambda w: mx.quantized_matmul(w, *mx.quantize(w), mode="mxfp4"), "has no biases"),
    (lambda w: mx.quantized_matmul(w, w, w, w), "uint32 words; got float32"),
    (lambda w: mx.gather_qmm(w[0], *mx.quantize(w)), "at least 2 dimensions"),
    (lambda w: mx.qqmm(w, w, mode="affine"), "'affine' does not serve"),
    (lambda w: mx.to_fp8(mx.array([1, 2])), "real floating-point array; got int32"),
    (lambda w: mx.from_fp8(mx.array([1, 2])), "Codes are uint8; got int32"),
]


@pytest.mark.parametrize(("use", "text"), ERRORS)
def test_bad_input_is_refused_at_once_in_one_sentence(use, text):
    with pytest.raises(ValueError, match=text):
        use(mx.zeros((4, 64)))


def test_empty_batches_have_empty_products():
    parts = mx.quantize(mx.ones((4, 64)))
    assert mx.quantized_matmul(mx.zeros((0, 64)), *parts).shape == (0, 4)
    assert mx.quantized_matmul(mx.zeros((2, 0, 64)), *parts).shape == (2, 0, 4)
    assert mx.dequantize(*mx.quantize(mx.zeros((0, 64)))).shape == (0, 64)


Q8 = mx.quantize(mx.array(numbers(4, 64).astype(np.float32)), 32, 8)
E8 = mx.quantize(mx.array(numbers(5, 4, 64).astype(np.float32)), 32, 8)
RULES = {
    "transposed": (lambda x: mx.quantized_matmul(x, *Q8, group_size=32, bits=8), (2, 3, 64)),
    "straight": (lambda x: mx.quantized_matmul(x, *Q8, group_size=32, bits=8, transpose=False), (2, 3, 4)),
    "gathered": (
        lambda x: mx.gather_qmm(x, *E8, None, mx.array([[0, 3], [4, 0]]), group_size=32, bits=8),
        (2, 1, 64),
    ),
    "scales and biases": (lambda s, b: mx.dequantize(Q8[0], s, b, group_size=32, bits=8), (4, 2), (4, 2)),
    "scales and biases of a product": (
        lambda x, s, b: mx.quantized_matmul(x, Q8[0], s, b, group_size=32, bits=8),
        (3, 64),
        (4, 2),
        (4, 2),
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_derivatives_equal_differences(name):
    function, *sizes = RULES[name]
    inputs = [numbers(*s, seed=3 + i) for i, s in enumerate(sizes)]
    if name.startswith("scales"):
        check_cotangents(function, inputs)
    else:
        check_derivatives(function, *inputs)


def check_cotangents(function, inputs) -> None:
    """What has no forward derivative: cotangents against differences, in float32 of exact numbers."""
    hosts = [np.round(x * 8) / 8 for x in inputs]
    primals = [mx.array(x.astype(np.float32)) for x in hosts]
    out = function(*primals)
    cotangent = np.round(numbers(*out.shape, seed=5) * 4) / 4
    found = mx.vjp(function, primals, [mx.array(cotangent.astype(np.float32))])[1]
    for i, x in enumerate(hosts):
        direction = np.round(numbers(*x.shape, seed=6 + i) * 4) / 4
        moved = [[y + s * direction if j == i else y for j, y in enumerate(hosts)] for s in (1, -1)]
        up, down = [np.array(function(*[mx.array(y.astype(np.float32)) for y in row])) for row in moved]
        wanted = (cotangent * (up.astype(np.float64) - down) / 2).sum()
        np.testing.assert_allclose((np.array(found[i]) * direction).sum(), wanted, rtol=1e-4, atol=1e-2)


def test_batches_equal_a_loop():
    x = numbers(3, 2, 64).astype(np.float32)
    for axes in ([0], [1]):
        check_batching(lambda a: mx.quantized_matmul(a, *Q8, group_size=32, bits=8), x, axes=axes)
    parts = [np.array(a) for a in E8]
    check_batching(
        lambda a, *w: mx.quantized_matmul(a, *w, group_size=32, bits=8),
        numbers(5, 2, 64).astype(np.float32),
        *parts,
        axes=[0] * 4,
    )
    check_batching(lambda *w: mx.dequantize(*w, group_size=32, bits=8), *parts, axes=[0] * 3)
    check_batching(lambda w: mx.quantize(w, 32)[1], x, axes=[0])
