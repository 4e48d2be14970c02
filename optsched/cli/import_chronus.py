"""``optsched import chronus``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from optsched.cli import values
from optsched.cli.export import write_instance
from optsched.cli.import_options import (
    SELECTION,
    At,
    Name,
    Output,
    Pools,
    Speeds,
    nodes_of_pools,
    speeds_of_pools,
)
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, check_target

EXAMPLES = """
    optsched import chronus trace_job_Philly_MIX2.csv --pool gpu=120x8 -o chronus.npz
    optsched import chronus trace.csv --pool v100=60x8 --locality model_info.json --at 2d \\
        -o - | optsched solve - -f lease -O admission=true
"""


def chronus(
    shell: Shell,
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="Table of jobs (CSV).")],
    pool: Pools,
    output: Output,
    locality: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", rich_help_panel=SELECTION,
            help="model_info.json: what jobs lose that span several nodes. Default: nothing.",
        ),
    ] = None,
    speed: Speeds = None,
    unit: Annotated[
        str, typer.Option(metavar="TIME", help="A unit of time.", rich_help_panel=SELECTION, show_default=True)
    ] = "1m",
    at: At = None,
    name: Name = "chronus",
) -> int:  # fmt: skip
    """Make an instance of a trace of Chronus (Gao et al., SoCC 2021): strict and soft deadlines, best effort."""
    check_target(output)
    now, seconds = values.duration(at, "--at"), values.duration(unit, "--unit") or 0.0
    pools, speeds = nodes_of_pools(pool), speeds_of_pools(speed)
    from optsched.formats.chronus import import_chronus
    from optsched.instance import Instance
    from optsched.instance.files import kind_of

    kind = "json" if output == "-" else kind_of(Path(output))
    with progress(shell, "importing"):
        document = import_chronus(
            trace, pools, locality=locality, speeds=speeds, unit=seconds, at=now, name=name
        )
        instance = Instance.from_document(document)
    write_instance(shell, instance, output, kind)
    return 0
