"""``optsched import shockwave``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from optsched.cli import values
from optsched.cli.export import write_trace
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
    optsched import shockwave --throughputs tacc_throughputs.json --trace 120.trace --pools v100:32 -o trace.json
    optsched import shockwave --throughputs t.json --trace 900.trace --pools v100:256 --gpus-per-node 4 \\
        --planned -o trace.yaml
"""

FILES = "Shockwave's files"


def shockwave(
    shell: Shell,
    throughputs: Annotated[
        str, typer.Option(metavar="FILE", help="Throughput table (JSON), as Gavel's.", rich_help_panel=FILES)
    ],
    trace: Annotated[str, typer.Option(metavar="FILE", help="Trace of 12 columns.", rich_help_panel=FILES)],
    pools: GpusOfPools,
    output: Output,
    active: Active = None,
    at: At = None,
    gpus_per_node: NodeSize = "1",
    pairs: Pairs = False,
    planned: Annotated[
        bool,
        typer.Option(
            "--planned", rich_help_panel=SELECTION,
            help="Batches change as Shockwave's planner expects it, and not as its simulated jobs do it.",
        ),
    ] = False,
    name: Name = "shockwave",
) -> int:  # fmt: skip
    """Make a trace of a throughput table and a trace of Shockwave (Zheng et al., NSDI 2023).

    Jobs in mode accordion or gns change their batch as they progress: these are the regimes of the trace.
    """
    check_target(output)
    sizes, now = values.pool_sizes(pools), values.duration(at, "--at")
    first, node_size = (
        values.whole(active, "--active"),
        values.whole(gpus_per_node, "--gpus-per-node"),
    )
    from optsched.formats.gavel import read_throughputs
    from optsched.formats.shockwave import read_shockwave_trace, shockwave_document
    from optsched.instance.files import kind_of
    from optsched.instance.reading import named, named_by_path, read_bytes
    from optsched.traces import Trace

    kind = "json" if output == "-" else kind_of(Path(output))
    with progress(shell, "importing"):
        with named(throughputs):
            table = read_throughputs(read_bytes(Path(throughputs)))
        with named(trace):
            jobs = read_shockwave_trace(read_bytes(Path(trace)))
        with named_by_path({"trace": trace, "throughputs": throughputs}):
            document = shockwave_document(
                table,
                jobs,
                sizes,
                active=first,
                at=now,
                gpus_per_node=1 if node_size is None else node_size,
                pairs=pairs,
                planned=planned,
                name=name,
            )
        made = Trace.from_document(document)
    write_trace(shell, made, output, kind)
    return 0
