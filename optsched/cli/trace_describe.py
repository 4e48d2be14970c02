"""``optsched trace describe``."""

from __future__ import annotations

from typing import Annotated

import typer

from optsched.cli.options import OUTPUT, Json
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, check_target

EXAMPLES = """
    optsched trace describe @quickstart
    optsched generate trace --jobs 2000 --load 0.8 -o trace.json
    optsched trace describe trace.json -o trace.png
    optsched trace describe trace.json --json
"""


def trace_describe(
    shell: Shell,
    trace: Annotated[
        str, typer.Argument(metavar="TRACE", help="Trace or instance (.json, .yaml, .npz), @NAME, or - for stdin.")
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", rich_help_panel=OUTPUT, help="Draw a page to FILE.png, .svg or .pdf."
        ),
    ] = None,
    as_json: Json = False,
) -> int:  # fmt: skip
    """Tell what is in a trace: its jobs, arrivals and durations, and the load that they are for the cluster.

    Demand is counted where a job needs fewest GPU-hours, and for comparison with every pool where it can run
    as likely as it has GPUs.
    The load is that demand over the GPU-hours of the cluster from the first arrival to the last.
    """
    check_target(output)
    if output is not None:
        from optsched.report.pictures import picture_format, require_matplotlib

        picture_format(output)
        require_matplotlib()
    from optsched.traces import describe, load_trace

    with progress(shell, "reading"):
        summary = describe(load_trace(trace))
    if output is not None:
        from optsched.report import save_picture, trace_page

        save_picture(trace_page(summary), output)
    if as_json:
        shell.document(summary.document())
        return 0
    from optsched.cli.trace_view import trace_view

    shell.print(*trace_view(summary))
    if output is not None:
        shell.tell(f"picture written to {output}")
    return 0
