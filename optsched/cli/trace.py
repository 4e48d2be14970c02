"""The commands below ``optsched trace``: jobs over time."""

from __future__ import annotations

from typing import Annotated

import typer

from optsched.cli import values
from optsched.cli.command import Argument, Option, build_group
from optsched.cli.options import OUTPUT, Json
from optsched.cli.progress import progress
from optsched.cli.shell import Shell

EXAMPLES = """
    optsched trace describe @quickstart
    optsched generate trace --jobs 2000 --load 0.8 -o trace.json
    optsched trace describe trace.json -o trace.png
    optsched trace describe trace.json --json
"""


def build_traces() -> typer.Typer:
    return build_group(
        "Look at traces: jobs that arrive over time, and what happens to them.",
        {"describe": (trace_describe, EXAMPLES)},
    )


def trace_describe(
    shell: Shell,
    trace: Annotated[
        str, Argument("TRACE", "Trace or instance (.json, .yaml, .npz), @NAME, or - for stdin.")
    ],
    output: Annotated[
        str | None,
        Option(
            "Draw a page to FILE.png, .svg or .pdf.",
            "FILE",
            short="-o",
            section=OUTPUT,
            read=values.picture,
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Tell what is in a trace: its jobs, arrivals and durations, and the load that they are for the cluster.

    Demand is counted where a job needs fewest GPU-hours, and for comparison with every pool where it can run
    as likely as it has GPUs.
    The load is that demand over the GPU-hours of the cluster from the first arrival to the last.
    """
    from optsched.cli.trace_view import trace_view
    from optsched.traces import describe, load_trace

    with progress(shell, "reading"):
        summary = describe(load_trace(trace))
    if output is not None:
        from optsched.report import save_picture, trace_page

        save_picture(trace_page(summary), output)
    written = [f"picture written to {output}"] if output is not None else []
    shell.answer(as_json, summary.document, trace_view(summary), written=written)
    return 0
