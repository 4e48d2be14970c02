"""``optsched import tiresias``."""

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
    Speeds,
    nodes_of_pools,
    speeds_of_pools,
)
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, check_target

EXAMPLES = """
    optsched import tiresias 60_job.csv n32g4.csv -o tiresias.json
    optsched import tiresias 60_job.csv --pool v100=8x4 --pool k80=8x4 --speed k80=0.25 -o tiresias.json
"""


def tiresias(
    shell: Shell,
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="Table of jobs (CSV).")],
    output: Output,
    cluster: Annotated[str | None, typer.Argument(metavar="CLUSTER", help="Cluster file (CSV).")] = None,
    pool: Annotated[
        list[str] | None,
        typer.Option(
            "--pool", metavar="POOL=NODES[xGPUS]", rich_help_panel=SELECTION,
            help="Instead of a cluster file: nodes of a pool, with so many GPUs each (1). Can be repeated.",
        ),
    ] = None,
    speed: Speeds = None,
    at: At = None,
    name: Name = "tiresias",
) -> int:  # fmt: skip
    """Make an instance of a trace and a cluster of Tiresias' simulator (Gu et al., NSDI 2019)."""
    check_target(output)
    now, speeds = values.duration(at, "--at"), speeds_of_pools(speed)
    pools = None if pool is None else nodes_of_pools(pool)
    from optsched.formats.tiresias import import_tiresias
    from optsched.instance import Instance
    from optsched.instance.files import kind_of

    kind = "json" if output == "-" else kind_of(Path(output))
    with progress(shell, "importing"):
        document = import_tiresias(trace, cluster, pools=pools, speeds=speeds, at=now, name=name)
        instance = Instance.from_document(document)
    write_instance(shell, instance, output, kind)
    return 0
