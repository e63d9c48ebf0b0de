"""The report as one self-contained HTML page, and the trace in Perfetto's format."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from typing import Any

from outlive.check.explore import Exploration, Finding
from outlive.check.report import coverage_text, life_lines, marked
from outlive.check.trace import Span, Trace

WIDTH = 1100
LANE = 26
LABEL = 130
SPANS_SHOWN = 60

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 1180px; color: #1c2530; background: #fff; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
pre { background: #f4f6f8; padding: .8rem 1rem; overflow-x: auto; }
.violation { border-left: 5px solid #c62828; padding: .4rem 1rem; background: #fdf1f0; }
svg text { font: 11px system-ui, sans-serif; fill: #1c2530; }
.bar { fill: #90b4e0; } .run { fill: #1f5fa8; } .span { fill: #b9d8b0; } .marked { fill: #e57373; } .use { stroke: #1c2530; }
.dropped { stroke: #c62828; stroke-width: 2; } .grid { stroke: #dde3e9; }
"""


class _Picture:
    """Lanes over a common axis of steps."""

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.scale = (WIDTH - LABEL - 10) / max(1, last - first)
        self.parts: list[str] = []
        self.y = 6

    def x(self, step: int) -> float:
        return LABEL + (step - self.first) * self.scale

    def lane(self, label: str) -> None:
        self.parts.append(f'<text x="2" y="{self.y + 15}">{html.escape(label)}</text>')
        self.parts.append(
            f'<line class="grid" x1="{LABEL}" x2="{WIDTH}" y1="{self.y + LANE - 3}" y2="{self.y + LANE - 3}"/>'
        )

    def bar(self, start: int, end: int, kind: str, title: str, height: int = 18) -> None:
        width = max(2.0, self.x(end) - self.x(start))
        self.parts.append(
            f'<rect class="{kind}" x="{self.x(start):.1f}" y="{self.y}" width="{width:.1f}" height="{height}" rx="2">'
            f"<title>{html.escape(title)}</title></rect>"
        )

    def mark(self, step: int, kind: str, title: str) -> None:
        x = f"{self.x(step):.1f}"
        self.parts.append(
            f'<line class="{kind}" x1="{x}" x2="{x}" y1="{self.y}" y2="{self.y + 18}"><title>{html.escape(title)}</title></line>'
        )

    def down(self) -> None:
        self.y += LANE

    def svg(self) -> str:
        return f'<svg width="{WIDTH}" height="{self.y + 8}" role="img">{"".join(self.parts)}</svg>'


def _ends(trace: Trace) -> tuple[int, int]:
    steps = (
        [b.committed for b in trace.bars.values()]
        + [r.step for r in trace.runs]
        + [s.issued for s in trace.spans.values()]
    )
    return min(steps, default=0), max([*steps, trace.step], default=1)


def streams_picture(trace: Trace) -> str:
    """A lane for each stream: command buffers as bars, launches as marks in them."""
    first, last = _ends(trace)
    picture = _Picture(first, last)
    for stream in sorted({b.stream for b in trace.bars.values()}):
        picture.lane(f"stream {stream}")
        for bar in trace.bars.values():
            if bar.stream == stream:
                title = f"command buffer {bar.tick}: {', '.join(bar.kernels)}; committed at {bar.committed}"
                picture.bar(bar.committed, bar.completed or last, "bar", title)
        for run in trace.runs:
            if run.stream == stream:
                picture.bar(run.step, run.step + 1, "run", f"{run.kernel}, made at {run.made_at} (step {run.step})", 12)
        picture.down()
    return picture.svg()


def buffers_picture(trace: Trace, of_interest: Sequence[Span]) -> str:
    """A lane for each buffer, the marked ones first: from allocation to release, with its uses."""
    first, last = _ends(trace)
    picture = _Picture(first, last)
    others = [s for s in trace.spans.values() if s not in of_interest][-SPANS_SHOWN:]
    for span in [*of_interest, *others]:
        picture.lane(f"buffer {span.serial} ({span.size:,} B)")
        picture.bar(
            span.issued, span.released or last, "marked" if span in of_interest else "span", "\n".join(life_lines(span))
        )
        for step, stream, kernel, at in span.uses:
            picture.mark(step, "use", f"used by {kernel} on stream {stream}, made at {at}")
        if span.dropped is not None:
            picture.mark(span.dropped, "dropped", f"last reference dropped at {span.dropped_at}")
        picture.down()
    return picture.svg()


def page(title: str, done: Exploration, findings: Sequence[tuple[Finding, Trace | None, str]]) -> str:
    """The whole page: what was explored, and each finding with its pictures and the command that shows it again."""
    body = [f"<h1>{html.escape(title)}</h1>", f"<pre>{html.escape(coverage_text(done))}</pre>"]
    if not findings:
        body.append("<p>Nothing was found in these schedules. Other schedules were not tried.</p>")
    for finding, trace, replay in findings:
        body.append(
            f'<h2>{html.escape(finding.violation.oracle)}</h2><p class="violation">{html.escape(finding.violation.message)}</p>'
        )
        if finding.violation.cause:
            body.append(f"<p>Likely cause: {html.escape(finding.violation.cause)}.</p>")
        spans = marked(finding, trace)
        if spans:
            body.append(f"<pre>{html.escape(chr(10).join(line for span in spans for line in life_lines(span)))}</pre>")
        if trace is not None:
            body += ["<h2>Streams</h2>", streams_picture(trace), "<h2>Buffers</h2>", buffers_picture(trace, spans)]
        body.append(f"<p>Again:</p><pre>{html.escape(replay)}</pre>")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title><style>{STYLE}</style></head>'
        f"<body>{''.join(body)}</body></html>"
    )


def perfetto(trace: Trace) -> str:
    """The trace as JSON that Perfetto (and chrome://tracing) opens; a step is shown as a microsecond."""
    last = _ends(trace)[1]
    events: list[dict[str, Any]] = []
    events += [
        {
            "name": f"command buffer {bar.tick}", "ph": "X", "ts": bar.committed, "dur": max(1, (bar.completed or last) - bar.committed),
            "pid": 1, "tid": bar.stream, "args": {"kernels": list(bar.kernels)},
        }
        for bar in trace.bars.values()
    ]  # fmt: skip
    events += [
        {
            "name": run.kernel,
            "ph": "X",
            "ts": run.step,
            "dur": 1,
            "pid": 1,
            "tid": run.stream,
            "args": {"made at": run.made_at},
        }
        for run in trace.runs
    ]
    for span in trace.spans.values():
        common = {"cat": "buffer", "name": f"buffer {span.serial}", "id": span.serial, "pid": 2, "tid": 0}
        events.append(
            {**common, "ph": "b", "ts": span.issued, "args": {"bytes": span.size, "allocated at": span.allocated_at}}
        )
        events.append({**common, "ph": "e", "ts": span.released or last})
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})
