"""No process goes unmeasured: each one under coverage marks its start, and each mark must have its data file.

``mark`` runs at the start of every Python process of the test environment (a .pth file calls it) and after each fork.
Run as a script, ``coverage_census.py MARKS DATA`` compares the marks with coverage's data files and names every process
that left none. A child that a test kills on purpose carries in ``OUTLIVE_DOOMED`` a name from the table in
``tests/doomed.py``.
"""

import json
import os
import re
import sys
from collections import Counter
from pathlib import Path


def mark():
    """Write a mark for this process, if coverage measures it and a census is being taken."""
    folder = os.environ.get("OUTLIVE_COVERAGE_CENSUS")
    if not folder or "coverage" not in sys.modules:
        return
    os.register_at_fork(after_in_child=lambda: _write(folder, "a fork of "))
    _write(folder, "")


def _write(folder, kind):
    entry = {
        "pid": os.getpid(),
        "command": kind + " ".join(sys.orig_argv)[:300],
        "doomed": os.environ.get("OUTLIVE_DOOMED", ""),
    }
    # Named by pid and start time: a .pth file may run twice in one process, a pid may come back in a long run.
    started = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    Path(folder, f"{os.getpid()}-{started}.json").write_text(json.dumps(entry), encoding="utf-8")


def unmeasured(marks, data, doomed):
    """One sentence for each process whose data are missing and not excused by the names in ``doomed``."""
    left = Counter(int(found[1]) for file in Path(data).iterdir() if (found := re.search(r"\.pid(\d+)\.", file.name)))
    complaints = []
    for file in sorted(Path(marks).glob("*.json")):
        entry = json.loads(file.read_text(encoding="utf-8"))
        if left[entry["pid"]]:
            left[entry["pid"]] -= 1
        elif entry["doomed"] not in doomed:
            named = f", doomed as {entry['doomed']!r}, which tests/doomed.py does not list" if entry["doomed"] else ""
            complaints.append(f"no coverage data of process {entry['pid']}{named}: {entry['command']}")
    return complaints


def main():
    marks, data = sys.argv[1:]
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.doomed import DOOMED

    total = len(list(Path(marks).glob("*.json")))
    complaints = unmeasured(marks, data, DOOMED)
    print(f"{total} processes were measured, {len(complaints)} of them left no data", *complaints, sep="\n")
    return 1 if complaints or not total else 0


if __name__ == "__main__":
    sys.exit(main())
