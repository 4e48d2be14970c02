"""``optsched import philly``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from optsched.cli.export import write_instance
from optsched.cli.options import OUTPUT
from optsched.cli.progress import progress
from optsched.cli.recorded_options import (
    CLUSTER,
    SELECTION,
    Output,
    Pool,
    Speed,
    pool_documents,
    speeds,
    tell_left_out,
)
from optsched.cli.shell import Shell, check_target
from optsched.errors import UsageError

EXAMPLES = """
    optsched import philly cluster_job_log --machines cluster_machine_list -o philly.npz
    optsched import philly philly_jobs.csv --cluster 6214e9 --pool p100=40x8 -o philly.json
    optsched import philly cluster_job_log --cluster ee9e8c --pool v100=8x8 --pool k80=8x4 --speed k80=0.3 -o ee.json
"""


def philly(
    shell: Shell,
    jobs: Annotated[str, typer.Argument(metavar="JOBS", help="Job log (JSON), or a table of jobs (CSV).")],
    output: Output,
    machines: Annotated[
        str | None,
        typer.Option(metavar="FILE", rich_help_panel=CLUSTER, help="Machine list (CSV): the cluster as it was."),
    ] = None,
    pool: Pool = None,
    speed: Speed = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option(
            "--cluster", metavar="VC", rich_help_panel=SELECTION,
            help="Jobs of this virtual cluster alone. Can be repeated.",
        ),
    ] = None,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Of the instance.", rich_help_panel=OUTPUT, show_default=True)
    ] = "philly",
) -> int:  # fmt: skip
    """Make a trace of logs of the Philly cluster (Jeon et al., USENIX ATC 2019).

    A step is a second of the recorded run. Jobs that did not run, or of which times are missing, are left out.
    """
    check_target(output)
    if (machines is None) == (pool is None):
        raise UsageError("the cluster is told by --machines FILE or by --pool NAME=NODES[xGPUS]")
    factors, pools = speeds(speed), pool_documents(pool)
    from optsched.formats.philly import import_philly, read_machines
    from optsched.instance.files import kind_of
    from optsched.instance.reading import read_bytes

    kind = "json" if output == "-" else kind_of(Path(output))
    with progress(shell, "importing"):
        if machines is not None:
            pools = read_machines(read_bytes(Path(machines)), machines)
        made = import_philly(read_bytes(Path(jobs)), pools, clusters=cluster or (), speed=factors, name=name, file=jobs)
    write_instance(shell, made.instance, output, kind)
    tell_left_out(shell, made)
    return 0
