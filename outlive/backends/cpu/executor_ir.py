"""LLVM IR of the loop that runs a word list, and of the worker that shares its parallel records.

A parallel record is published as a ticket, one 64-bit word `generation << 32 | parts << 16 | next`: taking a part
is one atomic increment, and the part's number, the count of parts and the record they belong to cannot disagree.
The record's own fields are read only by a holder of a valid part; the caller publishes nothing new until every
part is done. So a worker that slept through a record finds an exhausted ticket, or a part of a newer record, and
both are right.

Going to sleep: the worker announces itself in `sleepers`, then looks at the ticket once more; the caller stores
the ticket, then looks at `sleepers`. Both orders are sequentially consistent, so one of the two sees the other.

A worker that the operating system took off its core in the middle of a part holds up the whole record, for
milliseconds on a machine with more busy threads than cores. So a caller that waited several times longer than it
worked runs its next records alone, twice as many after each such wait; parts never change results.
"""

from __future__ import annotations

import re

POOL_WORDS = 64
# Offsets in 64-bit words; what different threads write lies on cache lines of its own.
OFFSETS = {
    "BUSY": 0, "TICKET": 8, "DONE": 16, "KERNEL": 24, "ARGS": 25, "ERROR": 26, "SLEEPERS": 32, "EPOCH": 40, "STOP": 48,
    "PARTS_MAX": 49, "SPINS": 50, "THREADS": 51, "ALONE": 56, "BACKOFF": 57,
}  # fmt: skip
"""ALONE: records that the owner will still run without the workers. BACKOFF: how many it was last time."""

SYMBOLS = ("outlive_executor_run", "outlive_executor_work", "outlive_executor_stop")

_FUTEX_NUMBER = {"x86_64": 202, "aarch64": 98}
_PAUSE = {"x86_64": "call void @llvm.x86.sse2.pause()", "aarch64": "call void @llvm.aarch64.hint(i32 1)"}
_PAUSE_DECLARATION = {
    "x86_64": "declare void @llvm.x86.sse2.pause()",
    "aarch64": "declare void @llvm.aarch64.hint(i32)",
}

_CLOCK = {"x86_64": "@llvm.readcyclecounter()", "aarch64": "@llvm.readsteadycounter()"}
_PATIENCE = {"x86_64": 150_000, "aarch64": 5_000}  # ticks of that clock, some tens of microseconds
BACKOFF_MIN, BACKOFF_MAX = 32, 4096

_DECLARATIONS = """
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
"""

_WAKE = """
define internal void @wake(ptr %pool) noinline {
  %epoch = getelementptr i64, ptr %pool, i64 EPOCH
  %old = atomicrmw add ptr %epoch, i32 1 seq_cst
  %rc = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %epoch, i64 129, i64 2147483647, ptr null, ptr null, i64 0)
  ret void
}

define void @outlive_executor_stop(ptr %pool) {
  %stop = getelementptr i64, ptr %pool, i64 STOP
  store atomic i64 1, ptr %stop seq_cst, align 8
  call void @wake(ptr %pool)
  ret void
}
"""

_TAKE = """
; Takes parts of the published record until none is left. Returns how many it did.
define internal i64 @take(ptr %pool) {
entry:
  %ticket = getelementptr i64, ptr %pool, i64 TICKET
  %done = getelementptr i64, ptr %pool, i64 DONE
  %kernel.p = getelementptr i64, ptr %pool, i64 KERNEL
  %args.p = getelementptr i64, ptr %pool, i64 ARGS
  %error.p = getelementptr i64, ptr %pool, i64 ERROR
  br label %look
look:
  %taken = phi i64 [0, %entry], [%taken.next, %finished]
  %seen = load atomic i64, ptr %ticket acquire, align 8
  %seen.next = and i64 %seen, 65535
  %seen.high = lshr i64 %seen, 16
  %seen.parts = and i64 %seen.high, 65535
  %maybe = icmp ult i64 %seen.next, %seen.parts
  br i1 %maybe, label %grab, label %out
grab:
  %mine = atomicrmw add ptr %ticket, i64 1 acq_rel
  %part = and i64 %mine, 65535
  %mine.high = lshr i64 %mine, 16
  %parts = and i64 %mine.high, 65535
  %valid = icmp ult i64 %part, %parts
  br i1 %valid, label %work, label %out
work:
  %kernel = load ptr, ptr %kernel.p, align 8
  %args = load ptr, ptr %args.p, align 8
  %rc = call i64 %kernel(ptr %args, i64 %part, i64 %parts)
  %failed = icmp ne i64 %rc, 0
  br i1 %failed, label %note, label %finished
note:
  store atomic i64 %rc, ptr %error.p monotonic, align 8
  br label %finished
finished:
  %old = atomicrmw add ptr %done, i64 1 release
  %taken.next = add i64 %taken, 1
  br label %look
out:
  ret i64 %taken
}
"""

_WORK = """
define void @outlive_executor_work(ptr %pool) {
entry:
  %ticket = getelementptr i64, ptr %pool, i64 TICKET
  %sleepers = getelementptr i64, ptr %pool, i64 SLEEPERS
  %epoch = getelementptr i64, ptr %pool, i64 EPOCH
  %stop.p = getelementptr i64, ptr %pool, i64 STOP
  %spins.p = getelementptr i64, ptr %pool, i64 SPINS
  %spins = load i64, ptr %spins.p, align 8
  br label %try
try:
  %taken = call i64 @take(ptr %pool)
  br label %spin
spin:
  %i = phi i64 [0, %try], [%i.next, %idle]
  %now = load atomic i64, ptr %ticket acquire, align 8
  %next = and i64 %now, 65535
  %high = lshr i64 %now, 16
  %parts = and i64 %high, 65535
  %some = icmp ult i64 %next, %parts
  br i1 %some, label %try, label %check
check:
  %stop = load atomic i64, ptr %stop.p acquire, align 8
  %stopped = icmp ne i64 %stop, 0
  br i1 %stopped, label %quit, label %count
count:
  %i.next = add i64 %i, 1
  %tired = icmp uge i64 %i.next, %spins
  br i1 %tired, label %announce, label %idle
idle:
  PAUSE
  br label %spin
announce:
  %s0 = atomicrmw add ptr %sleepers, i64 1 seq_cst
  %e = load atomic i32, ptr %epoch seq_cst, align 4
  %again = load atomic i64, ptr %ticket seq_cst, align 8
  %again.next = and i64 %again, 65535
  %again.high = lshr i64 %again, 16
  %again.parts = and i64 %again.high, 65535
  %again.some = icmp ult i64 %again.next, %again.parts
  %stop2 = load atomic i64, ptr %stop.p seq_cst, align 8
  %stopped2 = icmp ne i64 %stop2, 0
  %leave = or i1 %again.some, %stopped2
  br i1 %leave, label %wakeup, label %sleep
sleep:
  %e64 = zext i32 %e to i64
  %rc = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %epoch, i64 128, i64 %e64, ptr null, ptr null, i64 0)
  br label %wakeup
wakeup:
  %s1 = atomicrmw sub ptr %sleepers, i64 1 seq_cst
  br label %try
quit:
  ret void
}
"""

_SHARE = """
; Runs one record together with the workers; the caller owns the pool. Returns the record's code.
define internal i64 @share(ptr %pool, i64 %kernel, ptr %args, i64 %parts) {
entry:
  %ticket = getelementptr i64, ptr %pool, i64 TICKET
  %done = getelementptr i64, ptr %pool, i64 DONE
  %kernel.p = getelementptr i64, ptr %pool, i64 KERNEL
  %args.p = getelementptr i64, ptr %pool, i64 ARGS
  %error.p = getelementptr i64, ptr %pool, i64 ERROR
  %sleepers.p = getelementptr i64, ptr %pool, i64 SLEEPERS
  store i64 %kernel, ptr %kernel.p, align 8
  store ptr %args, ptr %args.p, align 8
  store atomic i64 0, ptr %done monotonic, align 8
  store atomic i64 0, ptr %error.p monotonic, align 8
  %old = load atomic i64, ptr %ticket monotonic, align 8
  %old.generation = lshr i64 %old, 32
  %generation = add i64 %old.generation, 1
  %shifted = shl i64 %generation, 32
  %parts.shifted = shl i64 %parts, 16
  %fresh = or i64 %shifted, %parts.shifted
  store atomic i64 %fresh, ptr %ticket seq_cst, align 8
  %sleepers = load atomic i64, ptr %sleepers.p seq_cst, align 8
  %asleep = icmp ne i64 %sleepers, 0
  br i1 %asleep, label %rouse, label %help
rouse:
  call void @wake(ptr %pool)
  br label %help
help:
  %begun = call i64 CLOCK
  %taken = call i64 @take(ptr %pool)
  %ended = call i64 CLOCK
  br label %join
join:
  %i = phi i64 [0, %help], [%i.next, %pause], [0, %yield]
  %count = load atomic i64, ptr %done acquire, align 8
  %complete = icmp eq i64 %count, %parts
  br i1 %complete, label %out, label %wait
wait:
  %i.next = add i64 %i, 1
  %long = icmp ugt i64 %i.next, 2000
  br i1 %long, label %yield, label %pause
pause:
  PAUSE
  br label %join
yield:
  %y = call i32 @sched_yield()
  br label %join
out:
  %joined = call i64 CLOCK
  %worked = sub i64 %ended, %begun
  %waited = sub i64 %joined, %ended
  %fourfold = shl i64 %worked, 2
  %limit = add i64 %fourfold, PATIENCE
  %held.up = icmp ugt i64 %waited, %limit
  %backoff.p = getelementptr i64, ptr %pool, i64 BACKOFF
  %alone.p = getelementptr i64, ptr %pool, i64 ALONE
  %backoff = load i64, ptr %backoff.p, align 8
  br i1 %held.up, label %punish, label %forgive
punish:
  %twice = shl i64 %backoff, 1
  %longer = call i64 @llvm.umax.i64(i64 %twice, i64 BACKOFF_MIN)
  %bounded = call i64 @llvm.umin.i64(i64 %longer, i64 BACKOFF_MAX)
  store i64 %bounded, ptr %backoff.p, align 8
  store i64 %bounded, ptr %alone.p, align 8
  br label %return
forgive:
  %half = lshr i64 %backoff, 1
  store i64 %half, ptr %backoff.p, align 8
  br label %return
return:
  %rc = load atomic i64, ptr %error.p monotonic, align 8
  ret i64 %rc
}
"""

_RUN = """
define i64 @outlive_executor_run(ptr %words, i64 %count, ptr %pool) {
entry:
  %busy = getelementptr i64, ptr %pool, i64 BUSY
  %parts.max.p = getelementptr i64, ptr %pool, i64 PARTS_MAX
  %threads.p = getelementptr i64, ptr %pool, i64 THREADS
  %alone = icmp eq ptr %pool, null
  br label %loop
loop:
  %offset = phi i64 [0, %entry], [%offset.next, %advance]
  %owner = phi i1 [false, %entry], [%owner.next, %advance]
  %more = icmp ult i64 %offset, %count
  br i1 %more, label %read, label %finish
read:
  %record = getelementptr i64, ptr %words, i64 %offset
  %nargs.p = getelementptr i64, ptr %record, i64 1
  %wanted.p = getelementptr i64, ptr %record, i64 2
  %args = getelementptr i64, ptr %record, i64 3
  %kernel = load i64, ptr %record, align 8
  %nargs = load i64, ptr %nargs.p, align 8
  %wanted = load i64, ptr %wanted.p, align 8
  %most = and i64 %wanted, 4294967295
  %unshared = icmp ult i64 %most, 2
  %serial.0 = or i1 %unshared, %alone
  br i1 %serial.0, label %serial, label %limit
limit:
  %parts.many = load i64, ptr %parts.max.p, align 8
  %threads = load i64, ptr %threads.p, align 8
  %flag = lshr i64 %wanted, 32
  %single = icmp ne i64 %flag, 0
  %parts.max = select i1 %single, i64 %threads, i64 %parts.many
  %over = icmp ugt i64 %most, %parts.max
  %parts = select i1 %over, i64 %parts.max, i64 %most
  %one = icmp ult i64 %parts, 2
  br i1 %one, label %serial, label %acquire
acquire:
  br i1 %owner, label %together, label %attempt
attempt:
  %exchange = cmpxchg ptr %busy, i64 0, i64 1 acquire monotonic
  %got = extractvalue {i64, i1} %exchange, 1
  br i1 %got, label %together, label %serial
together:
  %alone.p = getelementptr i64, ptr %pool, i64 ALONE
  %alone.left = load i64, ptr %alone.p, align 8
  %patient = icmp eq i64 %alone.left, 0
  br i1 %patient, label %shared, label %shunned
shunned:
  %alone.less = sub i64 %alone.left, 1
  store i64 %alone.less, ptr %alone.p, align 8
  %shunned.callee = inttoptr i64 %kernel to ptr
  %rc.shunned = call i64 %shunned.callee(ptr %args, i64 0, i64 1)
  br label %checked
shared:
  %rc.shared = call i64 @share(ptr %pool, i64 %kernel, ptr %args, i64 %parts)
  br label %checked
serial:
  %callee = inttoptr i64 %kernel to ptr
  %rc.serial = call i64 %callee(ptr %args, i64 0, i64 1)
  br label %checked
checked:
  %owner.next = phi i1 [true, %shared], [true, %shunned], [%owner, %serial]
  %rc = phi i64 [%rc.shared, %shared], [%rc.shunned, %shunned], [%rc.serial, %serial]
  %ok = icmp eq i64 %rc, 0
  br i1 %ok, label %advance, label %finish
advance:
  %past = add i64 %offset, 3
  %offset.next = add i64 %past, %nargs
  br label %loop
finish:
  %result = phi i64 [-1, %loop], [%offset, %checked]
  %held = phi i1 [%owner, %loop], [%owner.next, %checked]
  br i1 %held, label %release, label %out
release:
  store atomic i64 0, ptr %busy release, align 8
  br label %out
out:
  ret i64 %result
}
"""


def executor_ir(machine: str) -> str:
    """The module's text for a machine as `platform.machine()` names it (x86_64 or aarch64).

    Raises ValueError for another machine.
    """
    if machine not in _PAUSE:
        raise ValueError(f"[executor] there is no executor for {machine!r}: only for x86_64 and aarch64")
    text = _DECLARATIONS + _PAUSE_DECLARATION[machine] + _WAKE + _TAKE + _WORK + _SHARE + _RUN
    names = {
        "PAUSE": _PAUSE[machine], "CLOCK": _CLOCK[machine], "PATIENCE": _PATIENCE[machine],
        "FUTEX": _FUTEX_NUMBER[machine],
        "BACKOFF_MIN": BACKOFF_MIN, "BACKOFF_MAX": BACKOFF_MAX, **OFFSETS,
    }  # fmt: skip
    return re.sub(
        r"(?<= )(" + "|".join(sorted(names, key=len, reverse=True)) + r")\b", lambda m: str(names[m[0]]), text
    )
