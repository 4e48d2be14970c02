"""``optsched import csv``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from optsched.cli import values
from optsched.cli.export import write_instance
from optsched.cli.options import OUTPUT
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, check_target
from optsched.errors import InvalidArgument, UsageError

EXAMPLES = """
    optsched import csv jobs.csv rates.csv --pool v100=2x4 --pool k80=8 -o instance.json
    optsched import csv jobs.csv rates.csv --pools pools.csv -o - | optsched solve -
"""

POOL = re.compile(r"\s*([^=]+?)\s*=\s*(\d{1,9})\s*(?:x\s*(\d{1,9})\s*)?", re.ASCII)
CLUSTER = "Cluster"


def import_csv(
    shell: Shell,
    jobs: Annotated[
        str,
        typer.Argument(
            metavar="JOBS",
            help="Table of jobs: workload; id, gpus (or gpus_min, gpus_max), steps, weight, arrival, deadline, tenant.",
        ),
    ],
    rates: Annotated[
        str, typer.Argument(metavar="RATES", help="Table of rates: workload, pool (or gpu), throughput; gpus.")
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FILE", rich_help_panel=OUTPUT,
            help="FILE.json, .yaml or .npz; - for JSON on standard output.",
        ),
    ],
    pool: Annotated[
        list[str] | None,
        typer.Option(
            "--pool", metavar="NAME=NODES[xGPUS]", rich_help_panel=CLUSTER,
            help="A pool of so many nodes with so many GPUs each (1). Can be repeated.",
        ),
    ] = None,
    pools: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", rich_help_panel=CLUSTER,
            help="Table of pools instead: name, nodes; gpu, gpus_per_node, gpu_memory, cost_per_gpu_hour ...",
        ),
    ] = None,
    now: Annotated[
        str, typer.Option(metavar="TIME", rich_help_panel=CLUSTER, help="The clock, s.", show_default=True)
    ] = "0",
    round: Annotated[
        str, typer.Option(metavar="TIME", rich_help_panel=CLUSTER, help="Length of a round, s.", show_default=True)
    ] = "360",
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Of the instance.", rich_help_panel=OUTPUT, show_default=True)
    ] = "csv",
) -> int:  # fmt: skip
    """Make an instance of tables in CSV: jobs and rates, and pools.

    The first line of a table names its columns; commas, semicolons or tabs stand between cells. Times are in seconds,
    rates in steps/s of the whole job.
    """
    check_target(output)
    if (pool is None) == (pools is None):
        raise UsageError("the cluster is told by --pool NAME=NODES[xGPUS] or by --pools FILE")
    given = [pool_size(text) for text in pool or ()]
    names = [document["name"] for document in given]
    for again in (name for row, name in enumerate(names) if name in names[:row]):
        raise UsageError(f"--pool: {again} is given twice")
    clock, length = values.duration(now, "--now") or 0.0, values.duration(round, "--round") or 0.0
    if length == 0:
        raise InvalidArgument("--round", repr(round), "a duration above 0")
    if not name:
        raise InvalidArgument("--name", "''", "a name")
    from optsched.formats import csv_tables
    from optsched.instance.files import kind_of
    from optsched.instance.reading import read_bytes

    kind = "json" if output == "-" else kind_of(Path(output))
    with progress(shell, "importing"):
        job_table = csv_tables.read_jobs(read_bytes(Path(jobs)), Path(jobs).name)
        rate_table = csv_tables.read_rates(read_bytes(Path(rates)), Path(rates).name)
        cluster: Any = given
        if pools is not None:
            cluster = csv_tables.read_pools(read_bytes(Path(pools)), Path(pools).name)
        instance = csv_tables.import_csv(
            job_table, rate_table, cluster, name=name, now=clock, round=length
        )
    write_instance(shell, instance, output, kind)
    return 0


def pool_size(text: str) -> dict[str, Any]:
    """``v100=2x4`` as a pool of a document."""
    match = POOL.fullmatch(text)
    if match is None:
        raise InvalidArgument(
            "--pool", repr(text), "NAME=NODES or NAME=NODESxGPUS, such as v100=2x4"
        )
    return {"name": match[1], "nodes": int(match[2]), "gpus_per_node": int(match[3] or 1)}
