"""Kernels without a GPU: Triton's in its interpreter, compilation to machine code for every family of chips, the cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from outlive.backends.cuda.cublas import OP_N, Shape
from outlive.backends.cuda.driver import DeviceFacts
from outlive.backends.cuda.kernels import Library, build
from outlive.backends.cuda.kernels.build import Binary, CompileError, CudaC
from outlive.backends.cuda.kernels.dense import product_shape
from outlive.backends.cuda.kernels.elementwise import BINARY, UNARY
from outlive.graph import dtypes
from outlive.runtime.layout import layout, strided_layout

ROOT = Path(__file__).parents[2]
ARCHITECTURES = ((8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))


@pytest.mark.parametrize("part", ["softmaxes", "norms", "reductions", "ropes", "scans", "attentions", "products"])
def test_triton_kernels_in_the_interpreter(part: str) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.cuda.interpret_rows", part],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


class CompilingLibrary(Library):
    """Compiles what a route asks for, and loads nothing."""

    def __init__(self, capability: tuple[int, int]) -> None:
        facts = DeviceFacts("none", capability, 1 << 30, 8, 99 << 10, 1 << 20, "0.0")
        super().__init__(SimpleNamespace(facts=facts))  # type: ignore[arg-type]
        self.made: list[Binary] = []

    def load(self, source: object) -> tuple[int, Binary]:
        made = build.binary(source, self.facts.architecture)  # type: ignore[arg-type]
        self.made.append(made)
        return len(self.made), made


def operand(shape: tuple[int, ...], dtype: object, strides: tuple[int, ...] | None = None) -> SimpleNamespace:
    return SimpleNamespace(
        layout=layout(shape, dtype) if strides is None else strided_layout(shape, strides, dtype), offset=0
    )


def op(name: str, **attributes: object) -> SimpleNamespace:
    return SimpleNamespace(name=name, parameters=tuple, **attributes)


bf16, f32, u32 = dtypes.bfloat16, dtypes.float32, dtypes.uint32
X = operand((7, 320), bf16)
SAMPLE = {
    "add": (op("add"), [X, X], X),
    "add a row": (op("add"), [X, operand((7, 320), bf16, (0, 1))], X),
    "tanh": (op("tanh"), [operand((500,), f32)], operand((500,), f32)),
    "cast": (op("astype"), [operand((63,), f32)], operand((63,), dtypes.uint8)),
    "copy of a transpose": (op("copy"), [operand((64, 320), bf16, (1, 64))], operand((64, 320), bf16)),
    "copy of strides": (op("copy"), [operand((7, 320), bf16, (641, 2))], X),
    "fill": (op("fill", value=3), [], X),
    "a block in": (op("dynamic_slice_update", axes=(1,)), [operand((7, 3), bf16), operand((1,), dtypes.int32)], X),
    "a block out": (
        op("dynamic_slice", axes=(0, 1), size=(2, 3)),
        [X, operand((2,), dtypes.int64)],
        operand((2, 3), bf16),
    ),
    "softmax": (op("softmax", axes=(1,)), [X], X),
    "rms_norm": (op("rms_norm", eps=1e-5), [X, operand((320,), f32)], X),
    "sum": (op("sum", axes=(0,)), [X], operand((320,), bf16)),
    "long sum": (op("sum", axes=(0,)), [operand((1 << 20,), bf16)], operand((), bf16)),
    "rope": (
        op("rope", dims=64, traditional=False, base=1e4, scale=1.0),
        [operand((1, 5, 7, 64), bf16), operand((), dtypes.int32)],
        operand((1, 5, 7, 64), bf16),
    ),
    **{
        f"attention of {width}": (
            op("scaled_dot_product_attention", scale=0.1, causal=True, has_mask=False, has_sinks=False),
            [operand((1, heads, 65, width), kind) for heads in (4, 2, 2)],
            operand((1, 4, 65, width), kind),
        )
        for width, kind in ((64, bf16), (128, f32), (256, bf16), (256, f32))
    },
    **{
        f"product of {rows} rows": (
            op("quantized_matmul", mode="affine", bits=4, group_size=64, transpose=True),
            [operand((rows, 320), bf16), operand((65, 40), u32), operand((65, 5), bf16), operand((65, 5), bf16)],
            operand((rows, 65), bf16),
        )
        for rows in (1, 33)
    },
}


@pytest.mark.parametrize("capability", ARCHITECTURES, ids=lambda c: f"sm_{c[0]}{c[1]}")
def test_routes_compile_for_every_family_of_chips(
    capability: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library = CompilingLibrary(capability)
    chosen = SAMPLE if capability in ((8, 0), (12, 0)) else {n: SAMPLE[n] for n in ("tanh", "product of 33 rows")}
    for name, (kernel, reads, out) in chosen.items():
        assert library.find(kernel, tuple(reads), (out,)) is not None, name
    assert all(made.cubin[:4] == b"\x7fELF" for made in library.made)
    assert all(made.shared <= 99 << 10 for made in library.made), "consumer cards have 99 KB of shared memory a block"


@pytest.mark.nightly
def test_every_elementwise_expression_compiles() -> None:
    library = CompilingLibrary((8, 0))
    found = 0
    for name, function in {**UNARY, **BINARY}.items():
        for dtype in dtypes.ALL:
            read = operand((65,), dtype)
            out = operand((65,), dtypes.bool_ if function.compares else dtype)
            reads = [read] * (1 if name in UNARY else 2)
            found += library.find(op(name), tuple(reads), (out,)) is not None
    assert found > 300


def test_a_damaged_cache_entry_is_compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = CudaC("probe", 'extern "C" __global__ void probe(int* x) { *x = 1; }')
    made = build.binary(source, "sm_80")
    (entry,) = tmp_path.rglob("*.cubin")
    whole = entry.read_bytes()
    for damaged in (b"", whole[:40], whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        entry.write_bytes(damaged)
        assert build.binary(source, "sm_80") == made
        assert entry.read_bytes() == whole


def test_a_cached_kernel_needs_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = CudaC("probe", 'extern "C" __global__ void probe(int* x) { *x = 2; }')
    made = build.binary(source, "sm_80")
    monkeypatch.setattr(CudaC, "compile", lambda *_: pytest.fail("compiled again"))
    assert build.binary(source, "sm_80") == made


def test_a_refused_kernel_is_named_with_the_compilers_words() -> None:
    source = CudaC("broken", 'extern "C" __global__ void broken(int* x) { *x = nothing; }')
    with pytest.raises(CompileError, match=r'\[broken\].*sm_80(.|\n)*identifier "nothing" is undefined'):
        source.compile("sm_80")


def emulated(shape: Shape, left: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
    """What cuBLAS does with a product's words, over flat arrays."""
    for x, y, z in shape.loops:
        size = out.itemsize
        for i in range(shape.batch):
            at = [x // size + i * shape.step_left, y // size + i * shape.step_right, z // size + i * shape.step_out]
            for row in range(shape.n):
                for column in range(shape.m):
                    terms = 0.0
                    for k in range(shape.k):
                        u = column + k * shape.ld_left if shape.op_left == OP_N else k + column * shape.ld_left
                        v = k + row * shape.ld_right if shape.op_right == OP_N else row + k * shape.ld_right
                        terms += left[at[0] + u] * right[at[1] + v]
                    out[at[2] + column + row * shape.ld_out] = terms


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (1, 5, 3), (4, 1, 3), (4, 5, 1), (2, 3, 4)])
def test_products_in_the_librarys_words_are_the_products(
    transpose_a: bool, transpose_b: bool, batch: tuple[int, ...], m: int, k: int, n: int
) -> None:
    random = np.random.default_rng(m + 10 * k + 100 * n)
    a = random.normal(size=(*batch, k, m)).swapaxes(-1, -2) if transpose_a else random.normal(size=(*batch, m, k))
    b = random.normal(size=(k, n)) if not transpose_b else random.normal(size=(n, k)).T
    b = np.broadcast_to(b, (*batch, k, n))
    out = np.full((*batch, m, n), np.nan)
    layouts = [strided_layout(x.shape, tuple(s // 8 for s in x.strides), dtypes.float64) for x in (a, b, out)]
    shape = product_shape(*layouts)
    assert shape is not None
    flat = [x if x.base is None else x.base for x in (a, b)]
    flat = [x if x.base is None else x.base for x in flat]
    emulated(shape, flat[1].ravel(order="K"), flat[0].ravel(order="K"), out.reshape(-1))
    np.testing.assert_allclose(out, a @ b, rtol=1e-12)
