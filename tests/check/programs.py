"""Program files for the tests of `outlive check`, as texts."""

from __future__ import annotations

GOOD = """
import outlive.core as mx
x = mx.arange(4)
y = mx.add(x, 1)
mx.async_eval(y)
print(y.tolist())
"""

RAISES = """
import outlive.core as mx
mx.eval(mx.arange(4) + 1)
raise LookupError("this program always fails")
"""

CLOCK = """
import time
import outlive.core as mx
x = mx.array(float(time.perf_counter_ns() % 1000003))
"""

THREADS = """
import threading
import outlive.core as mx
results = []
def work(i):
    results.append((mx.arange(3) * i).tolist())
threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
for t in threads: t.start()
for t in threads: t.join()
print(sorted(results))
"""

RACE = """
import threading
import outlive.core as mx
state = {"x": 0}
def work():
    old = state["x"]
    mx.eval(mx.arange(3) + old)
    state["x"] = old + 1
threads = [threading.Thread(target=work) for i in range(2)]
for t in threads: t.start()
for t in threads: t.join()
print(state["x"])
"""

EXITS = """
import sys
import outlive.core as mx
mx.eval(mx.arange(4) + 1)
sys.exit(3)
"""

WRITES = """
import sys
import outlive.core as mx
with open(sys.argv[1], "w") as file:
    file.write(str((mx.arange(4) + 1).tolist()))
"""

NEVER_ENDS = """
import outlive.core as mx
mx.eval(mx.arange(4) + 1)
while True:
    pass
"""
