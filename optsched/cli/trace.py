"""The commands below ``optsched trace``: jobs over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from optsched.cli.command import Argument, Group
from optsched.cli.options import Json, output_option
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, written_to
from optsched.cli.tables import facts, heading, name, percent, rounded, seconds, section, table
from optsched.cli.values import Picture
from optsched.display import count

if TYPE_CHECKING:
    from rich.console import RenderableType

    from optsched.traces.summary import Part, TraceSummary


def trace_describe(
    shell: Shell,
    trace: Annotated[
        str, Argument("TRACE", "Trace or instance (.json, .yaml, .npz), @NAME, or - for stdin.")
    ],
    output: Annotated[
        Picture | None, output_option("Draw a page to FILE.png, .svg or .pdf.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Summarise a trace: its jobs, arrivals and durations, and the offered load.

    The demand of a job is its GPU-hours in the configuration that needs fewest; a second figure is
    the mean over the pools in which it can run, weighted by their GPUs. The load is the demand over
    the GPU-hours of the cluster between the first arrival and the last.

    Examples:
        optsched trace describe @quickstart
        optsched generate trace --jobs 2000 --load 0.8 -o trace.json
        optsched trace describe trace.json -o trace.png
        optsched trace describe trace.json --json
    """
    from optsched.traces import describe, load_trace

    with progress(shell, "reading"):
        summary = describe(load_trace(trace))
    if output is not None:
        from optsched.report import save_picture, trace_page

        save_picture(trace_page(summary), output)
    shell.answer(as_json, summary.document, trace_view(summary), written=written_to(picture=output))
    return 0


# --- the summary as a view ------------------------------------------------------------------------

# Rows of a table; further ones are added up.
ROWS = 12


def trace_view(summary: TraceSummary) -> Iterator[RenderableType]:
    """Facts, then tables of pools, gangs, workloads, tenants and of what can run nowhere."""
    yield heading(
        f"{name(summary.name)}: {count(summary.jobs, 'job')} on {count(summary.gpus, 'GPU')}"
    )
    yield ""
    yield facts(_facts(summary))
    if not summary.jobs:
        return
    yield table(
        "pool",
        "GPUs",
        "jobs that can run",
        "only here",
        "GPU-hours wanted",
        "load",
        title="Pools",
        rows=[
            [
                name(pool.name),
                f"{pool.gpus:,}",
                f"{pool.runnable:,}",
                f"{pool.only:,}",
                rounded(pool.gpu_hours),
                _load(pool.load),
            ]
            for pool in summary.pools
        ],
    )
    yield _parts("GPUs", "Gangs", summary.gangs, summary)
    for title, parts in (("Workloads", summary.workloads), ("Tenants", summary.tenants)):
        if parts:
            yield _parts(title.lower().removesuffix("s"), title, parts, summary)
    nowhere = [
        f"{count(item.jobs, 'job')} ({'' if item.jobs == 1 else 'first '}{name(item.first)}): "
        f"{item.reason}"
        for item in summary.nowhere[:ROWS]
    ]
    yield from section("Jobs that can run nowhere", nowhere, ROWS)


def _facts(summary: TraceSummary) -> Iterator[tuple[str, str]]:
    if summary.first is not None and summary.last is not None:
        rate = (
            "all at once" if summary.per_hour is None else f"{rounded(summary.per_hour)} per hour"
        )
        yield "arrivals", f"{rate}, from {_clock(summary.first)} to {_clock(summary.last)}"
        yield "span", _clock(summary.span)
    found = [
        f"{key} {seconds(value)}" for key, value in summary.durations.items() if value is not None
    ]
    if found:
        yield "durations", f"{', '.join(found)}, in the fastest configuration"
    yield (
        "demand",
        f"{rounded(summary.gpu_hours)} GPU-hours; {rounded(summary.gpu_hours_mean)} where "
        "pools take turns",
    )
    if summary.load is not None and summary.load_mean is not None:
        yield (
            "offered load",
            f"{_load(summary.load)}; {_load(summary.load_mean)} where pools take turns",
        )
    due = summary.deadlines
    if due.jobs:
        jobs = (
            f"{count(due.jobs, 'job')} ({percent(due.jobs / summary.jobs)}), "
            f"{due.soft:,} of them soft"
        )
        yield "deadlines", jobs
        tight = [
            f"{key} {rounded(value)}" for key, value in due.tightness.items() if value is not None
        ]
        if tight:
            yield "", f"{', '.join(tight)} durations after the arrival"
        if due.hopeless:
            yield "", f"{count(due.hopeless, 'job')} cannot end in time, even alone"
    if summary.regime_changes:
        changes = count(summary.regime_changes, "change")
        yield "regimes", f"{count(summary.regime_jobs, 'job')} with {changes} of rates on the way"
    events = summary.node_events
    if events["nodes"]:
        changes = ", ".join(f"{events[state]:,} {state}" for state in ("down", "drain", "up"))
        yield "node events", f"{changes}, on {count(events['nodes'], 'node')}"


def _clock(time: float) -> str:
    return seconds(time) if time > 0 else f"{time:,.6g} s"


def _load(load: float | None) -> str:
    return "-" if load is None else f"{load:,.3g}"


def _parts(column: str, title: str, parts: Sequence[Part], summary: TraceSummary) -> RenderableType:
    from optsched.traces.summary import largest_parts

    shown = largest_parts(parts, ROWS, f"{len(parts) - ROWS + 1:,} more")
    total = max(summary.gpu_hours, 1e-300)
    rows = [
        [
            name(part.name),
            f"{part.jobs:,}",
            percent(part.jobs / summary.jobs),
            rounded(part.gpu_hours),
            percent(part.gpu_hours / total),
        ]
        for part in shown
    ]
    return table(column, "jobs", "", "GPU-hours", "", rows=rows, title=title)


TRACES = Group(
    "Describe traces: jobs that arrive over time, and events.", lambda: {"describe": trace_describe}
)
