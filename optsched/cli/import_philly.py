"""``optsched import philly``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from optsched.errors import UsageError

if TYPE_CHECKING:
    from optsched.formats.job_logs import ImportedLog

EXAMPLES = """
    optsched import philly log.json --machines machines.csv -o philly.npz
    optsched import philly philly_jobs.csv --cluster 6214e9 --pool p100=40x8 -o philly.json
    optsched import philly philly_jobs.csv --pool p100=300x8 --at 30d -o - | optsched solve -
    optsched import philly log.json --cluster ee9e8c --pool v100=8x8 --pool k80=8x4 --speed k80=0.3 -o ee.json
"""


def philly(
    shell: Shell,
    jobs: Annotated[str, typer.Argument(metavar="JOBS", help="Job log (JSON), or a table of jobs (CSV).")],
    output: Output,
    machines: Annotated[
        str | None,
        typer.Option(metavar="FILE", rich_help_panel=SELECTION, help="Machine list (CSV): the cluster as it was."),
    ] = None,
    pool: Annotated[
        list[str] | None,
        typer.Option(
            "--pool", metavar="POOL=NODES[xGPUS]", rich_help_panel=SELECTION,
            help="Nodes of a pool instead, with so many GPUs each (1). Can be repeated.",
        ),
    ] = None,
    speed: Speeds = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option(
            "--cluster", metavar="VC", rich_help_panel=SELECTION,
            help="Jobs of this virtual cluster alone. Can be repeated.",
        ),
    ] = None,
    at: At = None,
    name: Name = "philly",
) -> int:  # fmt: skip
    """Make a trace of logs of the Philly cluster (Jeon et al., USENIX ATC 2019).

    A step is a second of the recorded run. Jobs that did not run, or of which times are missing, are left out.
    """
    check_target(output)
    if (machines is None) == (pool is None):
        raise UsageError("the cluster is told by --machines FILE or by --pool POOL=NODES[xGPUS]")
    factors, now = speeds_of_pools(speed), values.duration(at, "--at")
    pools: list[dict[str, Any]] = [
        {"name": name, "nodes": nodes, "gpus_per_node": gpus}
        for name, (nodes, gpus) in nodes_of_pools(pool or []).items()
    ]
    from optsched.formats.philly import import_philly, read_machines
    from optsched.instance.files import kind_of
    from optsched.instance.reading import read_bytes

    kind = "json" if output == "-" else kind_of(Path(output))
    with progress(shell, "importing"):
        if machines is not None:
            pools = read_machines(read_bytes(Path(machines)), machines)
        made = import_philly(
            read_bytes(Path(jobs)),
            pools,
            clusters=cluster or (),
            speed=factors,
            at=now,
            name=name,
            file=jobs,
        )
    write_instance(shell, made.instance, output, kind)
    _tell_left_out(shell, made)
    return 0


def _tell_left_out(shell: Shell, made: ImportedLog) -> None:
    """Say on standard error what of the log is not in the trace, unless quiet."""
    if made.left_out and not shell.quiet:
        order = sorted(made.left_out.items(), key=lambda item: -item[1])
        shell.complain(f"left out: {', '.join(f'{count:,} {why}' for why, count in order)}")
