"""The native launch loop: one compiled call launches a whole list of kernels, without the interpreter's lock.

A launch is a record of 64-bit words:
`[function, grid x, grid y, grid z, threads, shared memory bytes, number of arguments, argument 0, ...]`.
A record whose grid x is 0 calls a function of a library instead, with 24 words as arguments:
`[address, 0, 0, 0, 0, 0, 24, argument 0, ...]`.
Each argument is a word whose first bytes are the kernel's parameter: pointers and 64-bit integers fill it, 32-bit ones and
floats lie in its low half. `cuLaunchKernel` copies parameters during the call, so the list may go afterwards.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from outlive.backends.cpu import objects

HEADER_WORDS = 7
LIMIT_ARGUMENTS = 128
SYMBOL = "outlive_cuda_launch_all"

CALL_ARGUMENTS = 24
LIBRARY_FAILED = 0x8000
"""Set in the code of a record whose library function returned a status other than 0."""

_LOOP = """
define i64 @outlive_cuda_launch_all(ptr %words, i64 %count, ptr %stream, ptr %launch) {
entry:
  %parameters = alloca [128 x ptr], align 16
  br label %loop
loop:
  %at = phi i64 [0, %entry], [%next, %launched]
  %more = icmp slt i64 %at, %count
  br i1 %more, label %record, label %done
record:
  %base = getelementptr i64, ptr %words, i64 %at
  %function = load ptr, ptr %base, align 8
  %x.p = getelementptr i64, ptr %base, i64 1
  %x.w = load i64, ptr %x.p, align 8
  %x = trunc i64 %x.w to i32
  %y.p = getelementptr i64, ptr %base, i64 2
  %y.w = load i64, ptr %y.p, align 8
  %y = trunc i64 %y.w to i32
  %z.p = getelementptr i64, ptr %base, i64 3
  %z.w = load i64, ptr %z.p, align 8
  %z = trunc i64 %z.w to i32
  %threads.p = getelementptr i64, ptr %base, i64 4
  %threads.w = load i64, ptr %threads.p, align 8
  %threads = trunc i64 %threads.w to i32
  %shared.p = getelementptr i64, ptr %base, i64 5
  %shared.w = load i64, ptr %shared.p, align 8
  %shared = trunc i64 %shared.w to i32
  %arguments.p = getelementptr i64, ptr %base, i64 6
  %arguments = load i64, ptr %arguments.p, align 8
  %fits = icmp ule i64 %arguments, 128
  br i1 %fits, label %which, label %refuse
which:
  %calls = icmp eq i64 %x.w, 0
  br i1 %calls, label %library, label %bind
library:
LOAD_CALL
  %status = call i32 %function(CALL_ARGUMENTS)
  %library.failed = icmp ne i32 %status, 0
  %marked = or i32 %status, 32768
  br i1 %library.failed, label %report, label %launched
bind:
  %i = phi i64 [0, %which], [%i.next, %bound]
  %bound.all = icmp eq i64 %i, %arguments
  br i1 %bound.all, label %call, label %bound
bound:
  %word = add i64 %i, 7
  %argument = getelementptr i64, ptr %base, i64 %word
  %slot = getelementptr [128 x ptr], ptr %parameters, i64 0, i64 %i
  store ptr %argument, ptr %slot, align 8
  %i.next = add i64 %i, 1
  br label %bind
call:
  %code = call i32 %launch(ptr %function, i32 %x, i32 %y, i32 %z, i32 %threads, i32 1, i32 1, i32 %shared, ptr %stream,
                           ptr %parameters, ptr null)
  %failed = icmp ne i32 %code, 0
  br i1 %failed, label %report, label %launched
launched:
  %length = add i64 %arguments, 7
  %next = add i64 %at, %length
  br label %loop
refuse:
  br label %report
report:
  %code.out = phi i32 [%code, %call], [1, %refuse], [%marked, %library]
  %wide = zext i32 %code.out to i64
  %shifted = shl i64 %at, 16
  %both = or i64 %shifted, %wide
  ret i64 %both
done:
  ret i64 -1
}
"""


def _ir() -> str:
    loads = "\n".join(
        f"  %a{i}.p = getelementptr i64, ptr %base, i64 {HEADER_WORDS + i}\n  %a{i} = load i64, ptr %a{i}.p, align 8"
        for i in range(CALL_ARGUMENTS)
    )
    arguments = ", ".join(f"i64 %a{i}" for i in range(CALL_ARGUMENTS))
    return _LOOP.replace("LOAD_CALL", loads).replace("CALL_ARGUMENTS", arguments)


def library_call(address: int, arguments: list[int]) -> list[int]:
    """The record that calls a library's function. Its arguments are integers and pointers: each fills a word of its own, in registers as on
    the stack, on x86-64 and aarch64.
    """
    return [address, 0, 0, 0, 0, 0, CALL_ARGUMENTS, *arguments, *[0] * (CALL_ARGUMENTS - len(arguments))]


@functools.cache
def _compiled() -> Any:
    (address,) = objects.function_addresses((SYMBOL,), _ir(), _ir)
    pointer = ctypes.c_void_p
    return ctypes.CFUNCTYPE(ctypes.c_int64, pointer, ctypes.c_int64, pointer, pointer)(address)


def prepare() -> None:
    """Compile the loop, or load it from the cache."""
    _compiled()


def launch_all(words: Any, stream: int, entry: int) -> tuple[int, int]:
    """Launch every record of `words` (array of int64) on `stream` through the driver function at address `entry`.

    Returns (-1, 0), or the word offset of the record that failed and the driver's code; the records after it were not launched.
    """
    result = _compiled()(words.buffer_info()[0], len(words), stream, entry)
    return (-1, 0) if result < 0 else (result >> 16, result & 0xFFFF)
