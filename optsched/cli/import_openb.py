"""``optsched import openb``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from optsched.cli import values
from optsched.cli.export import write_instance
from optsched.cli.options import OUTPUT
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, check_target

EXAMPLES = """
    optsched import openb nodes.csv pods.csv --at 100d -o openb.json
    optsched import openb nodes.csv pods.csv --over-time -o trace.json
    optsched import openb nodes.csv -o cluster.yaml
"""


def openb(
    shell: Shell,
    nodes: Annotated[str, typer.Argument(metavar="NODES", help="Node list (CSV).")],
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FILE", rich_help_panel=OUTPUT,
            help="FILE.json, .yaml or .npz; - for JSON on standard output.",
        ),
    ],
    pods: Annotated[
        str | None, typer.Argument(metavar="PODS", help="Pod list (CSV); without it there are no jobs.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", rich_help_panel="What is taken",
            help="The pods that were there then (90, 5m, 2h, 3d). Without: all, as if they came at once.",
        ),
    ] = None,
    over_time: Annotated[
        bool,
        typer.Option(
            "--over-time", rich_help_panel="What is taken",
            help="Make a trace: pods arrive when they were created; those that never ran are left out.",
        ),
    ] = False,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Of the instance.", rich_help_panel=OUTPUT, show_default=True)
    ] = "openb",
) -> int:  # fmt: skip
    """Make an instance of a node list and a pod list of the openb cluster (Weng et al., USENIX ATC 2023)."""
    check_target(output)
    now = values.duration(at, "--at")
    from optsched.formats.openb import import_openb
    from optsched.instance import Instance
    from optsched.instance.files import kind_of
    from optsched.instance.reading import named_by_path, read_bytes

    kind = "json" if output == "-" else kind_of(Path(output))
    with progress(shell, "importing"):
        listed = None if pods is None else read_bytes(Path(pods))
        with named_by_path({"nodes": nodes, "pods": pods}):
            document = import_openb(
                read_bytes(Path(nodes)), listed, at=now, over_time=over_time, name=name
            )
        instance = Instance.from_document(document)
    write_instance(shell, instance, output, kind)
    return 0
