"""``optsched import gavel``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from optsched.cli import (
    import_chronus,
    import_csv,
    import_elasticflow,
    import_openb,
    import_philly,
    import_shockwave,
    import_sia,
    import_tiresias,
    values,
)
from optsched.cli.command import CONTEXT, Commands, Help, add_command
from optsched.cli.export import write_instance
from optsched.cli.options import OUTPUT
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, check_target

EXAMPLES = """
    optsched import gavel --throughputs simulation_throughputs.json --trace small.trace \\
        --pools v100:8,p100:16,k80:24 --active 40 -o gavel.json
    optsched import gavel --throughputs t.json --trace t.trace --pools v100:4,k80:4 \\
        --at 2h --pairs -o - | optsched solve -
"""

FILES, SELECTION = "Gavel's files", "What is taken"


def gavel(
    shell: Shell,
    throughputs: Annotated[
        str, typer.Option(metavar="FILE", help="Throughput table (JSON).", rich_help_panel=FILES)
    ],
    trace: Annotated[str, typer.Option(metavar="FILE", help="Trace, 10 or 7 columns.", rich_help_panel=FILES)],
    pools: Annotated[
        str,
        typer.Option(
            metavar="POOL:GPUS,...", rich_help_panel=SELECTION,
            help="Worker types and their GPUs, such as v100:8,p100:16.",
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FILE", rich_help_panel=OUTPUT,
            help="FILE.json, .yaml or .npz; - for JSON on standard output.",
        ),
    ],
    active: Annotated[
        str | None, typer.Option(metavar="N", help="The first N jobs, all present.", rich_help_panel=SELECTION)
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", rich_help_panel=SELECTION, help="The jobs that have arrived by then (90, 5m, 2h)."
        ),
    ] = None,
    gpus_per_node: Annotated[
        str, typer.Option(metavar="N", help="Size of a node.", rich_help_panel=SELECTION, show_default=True)
    ] = "1",
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Also the rates of two jobs that share GPUs.", rich_help_panel=SELECTION)
    ] = False,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="POOL", rich_help_panel=SELECTION, show_default=False,
            help="Worker type that fixes durations, and so deadlines. Default: v100, else the fastest.",
        ),
    ] = None,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Of the instance.", rich_help_panel=OUTPUT, show_default=True)
    ] = "gavel",
) -> int:  # fmt: skip
    """Make an instance of a throughput table and a trace of Gavel (Narayanan et al., OSDI 2020)."""
    check_target(output)
    sizes, now = values.pool_sizes(pools), values.duration(at, "--at")
    first, node_size = values.whole(active, "--active"), values.whole(gpus_per_node, "--gpus-per-node")
    from optsched.formats.gavel import gavel_document, read_throughputs, read_trace
    from optsched.instance import Instance
    from optsched.instance.files import kind_of
    from optsched.instance.reading import named, read_bytes

    kind = "json" if output == "-" else kind_of(Path(output))
    with progress(shell, "importing"):
        with named(throughputs):
            table = read_throughputs(read_bytes(Path(throughputs)))
        with named(trace):
            jobs = read_trace(read_bytes(Path(trace)))
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


def build_imports() -> typer.Typer:
    """The commands below ``import``."""
    app = typer.Typer(cls=Commands, context_settings=CONTEXT, add_help_option=False, rich_markup_mode=None)
    app.callback()(_imports)
    add_command(app, "gavel", gavel, EXAMPLES)
    add_command(app, "shockwave", import_shockwave.shockwave, import_shockwave.EXAMPLES)
    add_command(app, "csv", import_csv.import_csv, import_csv.EXAMPLES)
    add_command(app, "elasticflow", import_elasticflow.elasticflow, import_elasticflow.EXAMPLES)
    add_command(app, "chronus", import_chronus.chronus, import_chronus.EXAMPLES)
    add_command(app, "tiresias", import_tiresias.tiresias, import_tiresias.EXAMPLES)
    add_command(app, "openb", import_openb.openb, import_openb.EXAMPLES)
    add_command(app, "sia", import_sia.sia, import_sia.EXAMPLES)
    add_command(app, "philly", import_philly.philly, import_philly.EXAMPLES)
    return app


def _imports(help: Help = False) -> None:
    """Make an instance of other projects' files, or of tables."""
