"""``optsched import gavel``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from optsched.cli import values
from optsched.cli.export import write_instance
from optsched.cli.import_options import (
    SELECTION,
    Active,
    At,
    GpusOfPools,
    Name,
    NodeSize,
    Output,
    Pairs,
)
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, check_target

EXAMPLES = """
    optsched import gavel --throughputs simulation_throughputs.json --trace small.trace \\
        --pools v100:8,p100:16,k80:24 --active 40 -o gavel.json
    optsched import gavel --throughputs t.json --trace t.trace --pools v100:4,k80:4 \\
        --at 2h --pairs -o - | optsched solve -
"""

FILES = "Gavel's files"


def gavel(
    shell: Shell,
    throughputs: Annotated[
        str, typer.Option(metavar="FILE", help="Throughput table (JSON).", rich_help_panel=FILES)
    ],
    trace: Annotated[str, typer.Option(metavar="FILE", help="Trace, 10 or 7 columns.", rich_help_panel=FILES)],
    pools: GpusOfPools,
    output: Output,
    active: Active = None,
    at: At = None,
    gpus_per_node: NodeSize = "1",
    pairs: Pairs = False,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="POOL", rich_help_panel=SELECTION, show_default=False,
            help="Worker type that fixes durations, and so deadlines. Default: v100, else the fastest.",
        ),
    ] = None,
    name: Name = "gavel",
) -> int:  # fmt: skip
    """Make an instance of a throughput table and a trace of Gavel (Narayanan et al., OSDI 2020)."""
    check_target(output)
    sizes, now = values.pool_sizes(pools), values.duration(at, "--at")
    first, node_size = (
        values.whole(active, "--active"),
        values.whole(gpus_per_node, "--gpus-per-node"),
    )
    from optsched.formats.gavel import gavel_document, read_throughputs, read_trace
    from optsched.instance import Instance
    from optsched.instance.files import kind_of
    from optsched.instance.reading import named, named_by_path, read_bytes

    kind = "json" if output == "-" else kind_of(Path(output))
    with progress(shell, "importing"):
        with named(throughputs):
            table = read_throughputs(read_bytes(Path(throughputs)))
        with named(trace):
            jobs = read_trace(read_bytes(Path(trace)))
        with named_by_path({"trace": trace, "throughputs": throughputs}):
            document = gavel_document(
                table,
                jobs,
                sizes,
                active=first,
                at=now,
                gpus_per_node=1 if node_size is None else node_size,
                pairs=pairs,
                reference=reference,
                name=name,
            )
        instance = Instance.from_document(document)
    write_instance(shell, instance, output, kind)
    return 0
