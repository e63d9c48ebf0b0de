"""CUDA C for elementwise work: element types, expressions, and the two loops (dense, strided) around them.

Compiled without contraction of multiply and add, with IEEE division and square root, and with the precise functions of CUDA's math library,
so a value depends on nothing but its operands. Halves are raised to float32 and rounded once.
"""

from __future__ import annotations

from typing import NamedTuple

COMPILE_OPTIONS = ("--fmad=false", "--std=c++17", "-default-device")
VECTOR_BYTES = 16

PRELUDE = """
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
struct bf16 { u16 bits; }; struct f16 { u16 bits; }; struct boolean { u8 bits; };
template <class T> __device__ T load(T v) { return v; }
__device__ inline float load(bf16 v) { return __uint_as_float((u32)v.bits << 16); }
__device__ inline float load(f16 v) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v.bits)); return r; }
__device__ inline bool load(boolean v) { return v.bits != 0; }
template <class T, class V> __device__ T store(V v);
template <> __device__ inline bf16 store<bf16, float>(float v) {
  u32 b = __float_as_uint(v);
  if (v != v) return bf16{(u16)(((b >> 16) & 0x8000) | 0x7FC0)};
  return bf16{(u16)((b + 0x7FFF + ((b >> 16) & 1)) >> 16)};
}
template <> __device__ inline f16 store<f16, float>(float v) { u16 r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v)); return f16{r}; }
template <> __device__ inline boolean store<boolean, bool>(bool v) { return boolean{(u8)v}; }
template <> __device__ inline float store<float, float>(float v) { return v; }
template <> __device__ inline double store<double, double>(double v) { return v; }
template <> __device__ inline u8 store<u8, u8>(u8 v) { return v; }
template <> __device__ inline u16 store<u16, u16>(u16 v) { return v; }
template <> __device__ inline u32 store<u32, u32>(u32 v) { return v; }
template <> __device__ inline u64 store<u64, u64>(u64 v) { return v; }
template <> __device__ inline i8 store<i8, i8>(i8 v) { return v; }
template <> __device__ inline i16 store<i16, i16>(i16 v) { return v; }
template <> __device__ inline i32 store<i32, i32>(i32 v) { return v; }
template <> __device__ inline i64 store<i64, i64>(i64 v) { return v; }
template <class I> __device__ I whole(double v) {  // out of the range of 64 bits: the smallest number, as on the host
  i64 w = v >= -9223372036854775808.0 && v < 9223372036854775808.0 ? (i64)v : (i64)0x8000000000000000ULL;
  return (I)w;
}
template <> __device__ inline u64 whole<u64>(double v) {
  return v >= 9223372036854775808.0 && v < 18446744073709551616.0 ? (u64)v : (u64)whole<i64>(v);
}
template <> __device__ inline i32 whole<i32>(double v) {
  return v > -2147483649.0 && v < 2147483648.0 ? (i32)v : (i32)0x80000000u;
}
template <class T> __device__ T larger(T a, T b) { return a != a ? a : b != b ? b : a < b ? b : a; }
template <class T> __device__ T smaller(T a, T b) { return a != a ? a : b != b ? b : b < a ? b : a; }
template <class T> __device__ T sign_of(T a) { return a != a ? a : (T)((a > (T)0) - (a < (T)0)); }
template <class T> __device__ T modulus(T a, T b) {  // the sign of the divisor; zero for a zero divisor
  if (b == 0) return 0;
  T r = (T)-1 < (T)0 && b == (T)-1 ? (T)0 : (T)(a % b);
  return r != 0 && ((r < 0) != (b < 0)) ? (T)(r + b) : r;
}
template <> __device__ inline float modulus<float>(float a, float b) {
  float r = fmodf(a, b);
  return r != 0 ? ((r < 0) != (b < 0) ? r + b : r) : copysignf(0.0f, b);
}
template <> __device__ inline double modulus<double>(double a, double b) {
  double r = fmod(a, b);
  return r != 0 ? ((r < 0) != (b < 0) ? r + b : r) : copysign(0.0, b);
}
"""


class Type(NamedTuple):
    """An element type in CUDA C: `memory` in buffers, `compute` in registers; `kind` is f(loat), i(nteger), u(nsigned) or b(ool)."""

    memory: str
    compute: str
    kind: str
    size: int


TYPES = {
    "bool": Type("boolean", "bool", "b", 1),
    "uint8": Type("u8", "u8", "u", 1),
    "uint16": Type("u16", "u16", "u", 2),
    "uint32": Type("u32", "u32", "u", 4),
    "uint64": Type("u64", "u64", "u", 8),
    "int8": Type("i8", "i8", "i", 1),
    "int16": Type("i16", "i16", "i", 2),
    "int32": Type("i32", "i32", "i", 4),
    "int64": Type("i64", "i64", "i", 8),
    "float16": Type("f16", "float", "f", 2),
    "float32": Type("float", "float", "f", 4),
    "float64": Type("double", "double", "f", 8),
    "bfloat16": Type("bf16", "float", "f", 2),
}


def cast(source: Type, target: Type, value: str) -> str:
    """The expression that converts `value`. Floats outside an integer's range become its smallest value."""
    if target.kind == "b":
        return f"(({value}) != 0)"
    if source.kind == "f" and target.kind != "f":
        return f"whole<{target.compute}>({value})"
    return f"(({target.compute})({value}))"


def rounded(kind: Type, value: str) -> str:
    """The expression of `value` rounded to the type's own precision, in the compute type."""
    return (
        value
        if kind.memory == kind.compute or kind.kind == "b"
        else f"load(store<{kind.memory}, {kind.compute}>({value}))"
    )


def _parameters(reads: list[Type], writes: list[Type]) -> str:
    return ", ".join(
        [
            *[f"const {t.memory}* p{i}" for i, t in enumerate(reads)],
            *[f"{t.memory}* out{i}" for i, t in enumerate(writes)],
        ]
    )


def dense_kernel(symbol: str, reads: list[Type], scalars: list[bool], writes: list[Type], body: str) -> str:
    """A kernel over dense operands. Its words: pointers of reads and writes, then the element count.

    `body`: statements that define r0, r1, ... (the writes' values) from x0, x1, ... `scalars[i]`: read i is one element for all. A thread
    takes the elements of one 16-byte vector of the narrowest operand; unaligned operands and the tail go one by one.
    """
    width = lanes(reads, scalars, writes)
    outs = range(len(writes))
    once = "".join(f"  const {t.compute} s{i} = load(p{i}[0]);\n" for i, t in enumerate(reads) if scalars[i])
    vectors = [i for i in range(len(reads)) if not scalars[i]]
    loads = "".join(
        f"    const vec<{reads[i].memory}> v{i} = *(const vec<{reads[i].memory}>*)(p{i} + i);\n" for i in vectors
    )
    take = "".join(f"      const {reads[i].compute} x{i} = load(v{i}.e[k]);\n" for i in vectors)
    single = "".join(f"    const {reads[i].compute} x{i} = load(p{i}[j]);\n" for i in vectors)
    same = "".join(f"      const {t.compute} x{i} = s{i};\n" for i, t in enumerate(reads) if scalars[i])
    results = "".join(f"    vec<{t.memory}> w{i};\n" for i, t in enumerate(writes))
    keep = "".join(f"      w{i}.e[k] = store<{t.memory}, {t.compute}>(r{i});\n" for i, t in enumerate(writes))
    write_all = "".join(f"    *(vec<{t.memory}>*)(out{i} + i) = w{i};\n" for i, t in enumerate(writes))
    write_one = "".join(f"    out{i}[j] = store<{t.memory}, {t.compute}>(r{i});\n" for i, t in enumerate(writes))
    address = " | ".join([f"(u64)p{i}" for i in vectors] + [f"(u64)out{i}" for i in outs])
    return f"""{PRELUDE}
template <class T> struct __align__(sizeof(T) * {width} < 16 ? sizeof(T) * {width} : 16) vec {{ T e[{width}]; }};
extern "C" __global__ void __launch_bounds__(256) {symbol}({_parameters(reads, writes)}, i64 n) {{
  const i64 i = ((i64)blockIdx.x * 256 + threadIdx.x) * {width};
  if (i >= n) return;
{once}  if (i + {width} <= n && (({address}) & 15) == 0) {{
{loads}{results}    #pragma unroll
    for (int k = 0; k < {width}; ++k) {{
{take}{same}{body}{keep}    }}
{write_all}    return;
  }}
  for (i64 j = i; j < n && j < i + {width}; ++j) {{
{single}{same}{body}{write_one}  }}
}}
"""


def lanes(reads: list[Type], scalars: list[bool], writes: list[Type]) -> int:
    """Elements a thread takes: those of a 16-byte vector of the narrowest operand, at most 8."""
    sizes = [t.size for t, scalar in zip(reads, scalars, strict=True) if not scalar] + [t.size for t in writes]
    return min(8, VECTOR_BYTES // min(sizes))


def strided_kernel(
    symbol: str, reads: list[Type], writes: list[Type], modes: str, ndim: int, wide: bool, width: int, body: str
) -> str:
    """A kernel over operands of any strides. Its words: pointers, count, `ndim` lengths, then `ndim` strides for each operand.

    A thread takes `width` neighbours along the last axis, whose length is a multiple of it: `modes` says for each operand how they lie,
    "c" one after another, "s" one for all, "g" by the stride. `wide`: indices need 64 bits. Strides may be zero or negative.
    """
    index = "u64" if wide else "u32"
    operands = [*reads, *writes]
    lengths = "".join(f", i64 d{a}" for a in range(ndim))
    strides = "".join(f", i64 s{o}_{a}" for o in range(len(operands)) for a in range(ndim))
    walk = ""
    for a in range(ndim - 1, -1, -1):
        if a:
            walk += f"  {{ const {index} q = rest / ({index})d{a}; const i64 c = (i64)(rest - q * ({index})d{a}); rest = q;\n"
        else:
            walk += "  { const i64 c = (i64)rest;\n"
        walk += "    " + " ".join(f"o{o} += c * s{o}_{a};" for o in range(len(operands))) + " }\n"
    offsets = " ".join(f"i64 o{o} = 0;" for o in range(len(operands)))
    fetch, value, store = "", "", ""
    for o, kind in enumerate(reads):
        if modes[o] == "s":
            fetch += f"  const {kind.memory} v{o} = p{o}[o{o}];\n"
            value += f"    const {kind.compute} x{o} = load(v{o});\n"
        elif modes[o] == "c":
            fetch += f"  const vec<{kind.memory}> v{o} = fetch(p{o} + o{o});\n"
            value += f"    const {kind.compute} x{o} = load(v{o}.e[k]);\n"
        else:
            value += f"    const {kind.compute} x{o} = load(p{o}[o{o} + k * s{o}_{ndim - 1}]);\n"
    keep = ""
    for i, kind in enumerate(writes):
        o = len(reads) + i
        stored = f"store<{kind.memory}, {kind.compute}>(r{i})"
        if modes[o] == "c":
            fetch += f"  vec<{kind.memory}> w{i};\n"
            keep += f"    w{i}.e[k] = {stored};\n"
            store += f"  put(out{i} + o{o}, w{i});\n"
        else:
            keep += f"    out{i}[o{o} + k * s{o}_{ndim - 1}] = {stored};\n"
    return f"""{PRELUDE}
template <class T> struct __align__(sizeof(T) * {width} < 16 ? sizeof(T) * {width} : 16) vec {{ T e[{width}]; }};
template <class T> __device__ vec<T> fetch(const T* p) {{
  if (((u64)p & (alignof(vec<T>) - 1)) == 0) return *(const vec<T>*)p;
  vec<T> v;
  #pragma unroll
  for (int k = 0; k < {width}; ++k) v.e[k] = p[k];
  return v;
}}
template <class T> __device__ void put(T* p, const vec<T>& v) {{
  if (((u64)p & (alignof(vec<T>) - 1)) == 0) {{ *(vec<T>*)p = v; return; }}
  #pragma unroll
  for (int k = 0; k < {width}; ++k) p[k] = v.e[k];
}}
extern "C" __global__ void __launch_bounds__(256) {symbol}({_parameters(reads, writes)}, i64 n{lengths}{strides}) {{
  const i64 i = ((i64)blockIdx.x * 256 + threadIdx.x) * {width};
  if (i >= n) return;
  {index} rest = ({index})i;
  {offsets}
{walk}{fetch}  #pragma unroll
  for (int k = 0; k < {width}; ++k) {{
{value}{body}{keep}  }}
{store}}}
"""


TILE = 32
"""Rows and columns of the tile that one block turns through shared memory."""


def transposing_kernel(symbol: str, read: Type, write: Type, body: str) -> str:
    """A kernel of one read whose neighbours lie along the rows, into a dense (batches, rows, columns) write: through tiles
    in shared memory, so that both sides are read and written in runs. Its words: pointers, batches, rows, columns, the
    read's strides over batches and columns.
    """
    return f"""{PRELUDE}
extern "C" __global__ void __launch_bounds__(256) {symbol}(
    {_parameters([read], [write])}, i64 batches, i64 rows, i64 columns, i64 s_batch, i64 s_column) {{
  __shared__ {read.memory} tile[{TILE}][{TILE} + 1];
  const int x = threadIdx.x % {TILE}, y = threadIdx.x / {TILE};
  const i64 row = (i64)blockIdx.y * {TILE}, column = (i64)blockIdx.x * {TILE};
  for (i64 batch = blockIdx.z; batch < batches; batch += gridDim.z) {{
    for (int k = y; k < {TILE}; k += 8)
      if (row + x < rows && column + k < columns) tile[k][x] = p0[batch * s_batch + row + x + (column + k) * s_column];
    __syncthreads();
    for (int k = y; k < {TILE}; k += 8) {{
      if (row + k < rows && column + x < columns) {{
        const {read.compute} x0 = load(tile[x][k]);
{body}        out0[(batch * rows + row + k) * columns + column + x] = store<{write.memory}, {write.compute}>(r0);
      }}
    }}
    __syncthreads();
  }}
}}
"""


def block_kernel(symbol: str, moved: Type, start: Type, ndim: int, axes: tuple[int, ...], update: bool) -> str:
    """A kernel that moves a block between an array of its own and its place in a larger one, which `start` holds on the
    device: one number for each of `axes`, counted from the end if negative, moved so that the block lies inside.

    Its words: pointers (source, start, target), the block's element count, then for each axis the block's length, the
    larger array's length, and the strides of block and larger array. `update`: the larger array is the target.
    """
    numbers = "".join(f", i64 d{a}, i64 f{a}, i64 s{a}, i64 t{a}" for a in range(ndim))
    places = "".join(
        f"  {{ i64 at = (i64)start[{k}]; if (at < 0) at += f{a}; if (at > f{a} - d{a}) at = f{a} - d{a}; if (at < 0) at = 0; "
        f"large += at * t{a}; }}\n"
        for k, a in enumerate(axes)
    )
    walk = "".join(
        f"  {{ const i64 q = rest / d{a}, c = rest - q * d{a}; rest = q; small += c * s{a}; large += c * t{a}; }}\n"
        for a in range(ndim - 1, -1, -1)
    )
    target, source = ("large", "small") if update else ("small", "large")
    return f"""{PRELUDE}
extern "C" __global__ void __launch_bounds__(256) {symbol}(
    const {moved.memory}* p0, const {start.memory}* start, {moved.memory}* out, i64 n{numbers}) {{
  i64 rest = (i64)blockIdx.x * 256 + threadIdx.x, small = 0, large = 0;
  if (rest >= n) return;
{places}{walk}  out[{target}] = p0[{source}];
}}
"""


def fill_kernel(symbol: str, size: int) -> str:
    """A kernel that writes one pattern of `size` bytes to n elements. Its words: pointer, pattern, n."""
    element = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}[size]
    width = VECTOR_BYTES // size
    return f"""{PRELUDE}
struct __align__(16) vec {{ {element} e[{width}]; }};
extern "C" __global__ void __launch_bounds__(256) {symbol}({element}* out, u64 pattern, i64 n) {{
  const i64 i = ((i64)blockIdx.x * 256 + threadIdx.x) * {width};
  const {element} v = ({element})pattern;
  if (i + {width} <= n && ((u64)out & 15) == 0) {{
    vec r;
    #pragma unroll
    for (int k = 0; k < {width}; ++k) r.e[k] = v;
    *(vec*)(out + i) = r;
    return;
  }}
  for (i64 j = i; j < n && j < i + {width}; ++j) out[j] = v;
}}
"""
