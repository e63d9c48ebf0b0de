"""The report of an exploration as text: what was found, where the memory came from and went, and how to see it again."""

from __future__ import annotations

from collections.abc import Iterable

from outlive.backends.sim.choices import Deviation
from outlive.backends.sim.witness import Life
from outlive.check.explore import Exploration, Finding
from outlive.check.trace import Span, Trace
from outlive.runtime.origin import place

EVENTS_SHOWN = 30


def encode_schedule(deviations: Iterable[Deviation]) -> str:
    """A schedule as one word for the command line."""
    return ",".join(f"{d.step}:{d.kind.replace(' ', '-')}:{d.subject}" for d in deviations)


def decode_schedule(text: str) -> list[Deviation]:
    """The schedule that `encode_schedule` wrote. Raises ValueError for other text."""
    found = []
    for part in filter(None, text.split(",")):
        try:
            step, kind, subject = part.split(":")
            found.append(Deviation(int(step), kind.replace("-", " "), int(subject)))
        except ValueError:
            raise ValueError(f"[check] A schedule is a list of step:kind:subject; {part!r} is not one.") from None
    return found


def marked(finding: Finding, trace: Trace | None) -> list[Span]:
    """The lives of the buffers that a finding is about."""
    if trace is None:
        return []
    serials = [s.serial for s in finding.violation.subjects if isinstance(s, Life)]
    return [trace.spans[serial] for serial in serials if serial in trace.spans]


def life_lines(span: Span) -> list[str]:
    """A buffer's life in words."""
    lines = [
        f"  buffer {span.serial}, {span.size:,} bytes",
        f"    allocated at {span.allocated_at} (step {span.issued})",
    ]
    if span.dropped is not None:
        lines.append(f"    last reference dropped at {span.dropped_at} (step {span.dropped})")
    if span.released is not None:
        lines.append(f"    released by the runtime (step {span.released})")
    lines += [
        f"    used by {kernel} on stream {stream}, op made at {at} (step {step})"
        for step, stream, kernel, at in span.uses
    ]
    lines += [
        f"    still to be used by {launch!r}, op made at {place(launch.origin)} (committed at step {step})"
        for launch, step in span.awaited
    ]
    return lines


def timeline_lines(trace: Trace) -> list[str]:
    """The last events of a trace, in order."""
    events = [
        (bar.committed, f"stream {bar.stream}: commit {bar.tick} ({', '.join(bar.kernels)})")
        for bar in trace.bars.values()
    ]
    events += [
        (bar.completed, f"stream {bar.stream}: {bar.tick} known to be complete")
        for bar in trace.bars.values()
        if bar.completed
    ]
    events += [(run.step, f"stream {run.stream}: {run.kernel} ran") for run in trace.runs]
    for span in trace.spans.values():
        events.append((span.issued, f"buffer {span.serial} allocated"))
        if span.released is not None:
            events.append((span.released, f"buffer {span.serial} released"))
    events += [(step, f"{thread}: {what}") for step, thread, what in trace.switches]
    events.sort(key=lambda e: e[0])
    return [f"  {step:6d}  {text}" for step, text in events[-EVENTS_SHOWN:]]


def finding_text(finding: Finding, trace: Trace | None, replay: str) -> str:
    """One finding with its buffers, the end of its schedule, and the command that shows it again."""
    lines = [str(finding)]
    for span in marked(finding, trace):
        lines += life_lines(span)
    if trace is not None:
        lines += ["The end of the schedule:", *timeline_lines(trace)]
    faults = [d for d in finding.deviations if d.kind.startswith("fail")]
    if faults:
        lines.append(f"The schedule lets {len(faults)} calls fail.")
    lines.append(
        f"Seen in schedule {finding.index} of seed {finding.seed}; {len(finding.deviations)} decisions are left of it."
    )
    lines.append(f"Again: {replay}")
    return "\n".join(lines)


def coverage_text(done: Exploration) -> str:
    """What was explored, and no more than that."""
    hazards = ", ".join(f"{n:,} {name}" for name, n in sorted(done.hazards.items())) or "none"
    lines = [
        f"{done.schedules:,} schedules ({len(done.orders):,} different) of profile {done.profile}, seed {done.seed}: "
        f"{done.launches:,} launches, {done.steps:,} points.",
        f"Pairs of dependent ops: {len(done.pairs):,}. Hazards looked at: {hazards}.",
    ]
    if done.injected:
        lines.append(
            f"{done.injected:,} calls were made to fail; {done.ended_by_fault:,} schedules ended with the error that this should give."
        )
    if done.expected is None:
        lines.append(f"Bits were not compared, because the program raises by itself: {done.raises}")
    elif not done.repeatable:
        lines.append(
            "The program gives another result each time (a clock, or randomness of its own): bits were not compared."
        )
    return "\n".join(lines)
