"""The child process of `check.kernel`: runs one kernel once, on guarded memory.

Started as `python -m outlive.check.kernel_child JOB REPLY`; TRITON_INTERPRET is set before Triton is imported.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import inspect
import mmap
import pickle
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

from outlive.check.kernel import Job, Out

PAGE = mmap.PAGESIZE
PROT_NONE = 0
ROOMY = 1 << 16
"""Readable bytes on each side of an operand that is not the one to be guarded."""


class Finding(Exception):
    """Something wrong that a kernel did."""


def protect(address: int, nbytes: int) -> None:
    """Make pages inaccessible; raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(nbytes), PROT_NONE):
        raise OSError(ctypes.get_errno(), "mprotect failed")


class Guarded:
    """An array in memory of its own. `guard`: its end (or beginning) is flush against an inaccessible page.

    What else is readable around it holds the poison, and must still do so afterwards.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, poison: int, placement: str, guard: bool) -> None:
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        room = -(-max(nbytes, 1) // PAGE) * PAGE
        margin = PAGE if guard else ROOMY
        self._map = mmap.mmap(-1, room + 2 * margin)
        whole = np.frombuffer(self._map, np.uint8)
        whole[:] = poison
        address = whole.ctypes.data
        start = margin + (room - nbytes if placement == "end" else 0)
        self.view: np.ndarray = np.ndarray(shape, dtype, whole.data, start)
        self.pointer = address + start
        self.nbytes = nbytes
        self._poison = poison
        self._around = (whole[margin:start], whole[start + nbytes : margin + room])
        if guard:
            protect(address, margin)
            protect(address + margin + room, margin)
        else:
            self._around = (whole[:start], whole[start + nbytes :])

    def check(self, index: int) -> None:
        """Raise Finding where something beside the operand was written."""
        for part, where in zip(self._around, ("before its beginning", "beyond its end"), strict=True):
            if (part != self._poison).any():
                raise Finding(f"Operand {index} was written {where}")


def place(job: Job) -> list[Any]:
    """The operands in guarded memory; numbers as they are."""
    placed: list[Any] = []
    for index, operand in enumerate(job.operands):
        if not isinstance(operand, (np.ndarray, Out)):
            placed.append(operand)
            continue
        guard = not job.triton and job.guarded in (-1, index)
        memory = Guarded(tuple(operand.shape), np.dtype(operand.dtype), job.poison, job.placement, guard)
        if isinstance(operand, np.ndarray):
            memory.view[...] = operand
        placed.append(memory)
    return placed


def load(job: Job) -> Any:
    """The kernel, imported from where it was defined."""
    sys.path[:0] = [p for p in job.path if p not in sys.path]
    if job.module:
        return getattr(importlib.import_module(job.module), job.name)
    spec = importlib.util.spec_from_file_location("outlive_checked_kernel", job.file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return getattr(module, job.name)


class CheckedInterpreter:
    """Triton's memory accesses, each looked at first: the lanes that the mask lets through must lie within one operand."""

    def __init__(self, own: Any, operands: list[Any]) -> None:
        self._own = own
        self._names = {i: m for i, m in enumerate(operands) if isinstance(m, Guarded)}
        self._low = np.array([m.pointer for m in self._names.values()], np.uint64)
        self._high = np.array([m.pointer + m.nbytes for m in self._names.values()], np.uint64)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def _check(self, what: str, pointers: np.ndarray, mask: np.ndarray, itemsize: int) -> None:
        wanted = np.broadcast_to(pointers, mask.shape)[mask].ravel() if mask.ndim else pointers.ravel()[: int(mask)]
        if not wanted.size:
            return
        inside = (wanted[:, None] >= self._low) & (wanted[:, None] + np.uint64(itemsize) <= self._high)
        outside = ~inside.any(axis=1)
        if outside.any():
            raise Finding(f"The kernel {what} {self._nearest(int(wanted[outside][0]))}")

    def _nearest(self, address: int) -> str:
        """Where an address lies, relative to the operand that it is nearest to."""
        index, memory = min(
            self._names.items(),
            key=lambda item: min(abs(address - item[1].pointer), abs(address - item[1].pointer - item[1].nbytes)),
        )
        past = address - memory.pointer - memory.nbytes
        itemsize = memory.view.itemsize
        if past >= 0:
            return f"{past // itemsize + 1} elements beyond the end of operand {index} (shape {memory.view.shape})"
        return f"{(memory.pointer - address) // itemsize} elements before the beginning of operand {index} (shape {memory.view.shape})"

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        self._check("loads", pointers, np.asarray(mask, bool), np.dtype(dtype).itemsize)
        return self._own.load(pointers, mask, other, dtype)

    def store(self, pointers: Any, value: Any, mask: Any) -> Any:
        self._check("stores", pointers, np.asarray(mask, bool), value.dtype.itemsize)
        return self._own.store(pointers, value, mask)

    def atomic_rmw(self, op: Any, pointers: Any, value: Any, mask: Any, sem: Any) -> Any:
        self._check("updates", pointers, np.asarray(mask, bool), value.dtype.itemsize)
        return self._own.atomic_rmw(op, pointers, value, mask, sem)

    def atomic_cas(self, pointers: Any, compare: Any, value: Any, sem: Any) -> Any:
        self._check("updates", pointers, np.ones(np.shape(pointers), bool), value.dtype.itemsize)
        return self._own.atomic_cas(pointers, compare, value, sem)


def _program_order(job: Job) -> dict[tuple[int, ...], tuple[int, ...]]:
    """Which program runs in place of which."""
    grid = (*job.grid, 1, 1)[:3]
    programs = [(x, y, z) for x in range(grid[0]) for y in range(grid[1]) for z in range(grid[2])]
    order = list(programs)
    if job.order == "backwards":
        order.reverse()
    elif job.order == "shuffled":
        random.Random(len(order)).shuffle(order)
    return dict(zip(programs, order, strict=True))


def run_triton(job: Job, placed: list[Any]) -> None:
    """Interpret a Triton kernel with checked accesses."""
    import triton.language as tl
    from triton.runtime import interpreter

    interpreter._interpreter = CheckedInterpreter(interpreter._interpreter, placed)
    builder = interpreter.interpreter_builder
    set_index, order = builder.set_grid_idx, _program_order(job)
    builder.set_grid_idx = lambda *index: set_index(*order[index])
    patch_tensor = interpreter._patch_lang_tensor

    def patch_with_index(tensor: Any, scope: Any) -> None:
        # bounds of loops are vectors of one element in the interpreter, which NumPy no longer takes for numbers
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_with_index

    def argument(memory: Any) -> Any:
        if not isinstance(memory, Guarded):
            return memory
        kind = tl.pointer_type(tl.str_to_ty(_triton_name(memory.view.dtype), None))
        return tl.tensor(interpreter.TensorHandle(np.array([memory.pointer], np.uint64), kind), kind)

    function = load(job)
    names = [n for n in inspect.signature(function.fn).parameters if n not in job.constants]
    arguments = dict(zip(names, map(argument, placed), strict=True))
    try:
        function[job.grid](**arguments, **job.constants)
    except Exception as error:
        found = error
        while found is not None:
            if isinstance(found, Finding):
                raise found from None
            found = found.__cause__ or found.__context__  # type: ignore[assignment]
        raise


def _triton_name(dtype: np.dtype) -> str:
    names = {"float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16", "bool": "i1"}
    if dtype.name in names:
        return names[dtype.name]
    return f"{'u' if dtype.kind == 'u' else 'i'}{8 * dtype.itemsize}"


def run(job: Job) -> tuple[str, Any]:
    """Run the kernel: ("results", outputs) or ("finding", sentence)."""
    placed = place(job)
    try:
        if job.triton:
            run_triton(job, placed)
        else:
            load(job)(*[m.view if isinstance(m, Guarded) else m for m in placed])
        for index, memory in enumerate(placed):
            if isinstance(memory, Guarded):
                memory.check(index)
    except Finding as finding:
        return "finding", str(finding)
    outputs = [i for i, o in enumerate(job.operands) if isinstance(o, (np.ndarray, Out))]
    made = [i for i in outputs if isinstance(job.operands[i], Out)] or outputs
    return "results", [placed[i].view.copy() for i in made]


def main(question: str, answer: str) -> None:
    job = pickle.loads(Path(question).read_bytes())
    reply = run(job)
    Path(answer).write_bytes(pickle.dumps(reply))


if __name__ == "__main__":
    main(*sys.argv[1:])
