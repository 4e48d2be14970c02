"""``optsched import elasticflow``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from optsched.cli import values
from optsched.cli.export import write_instance
from optsched.cli.import_csv import pool_size
from optsched.cli.options import OUTPUT
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, check_target
from optsched.errors import InvalidArgument, UsageError

EXAMPLES = """
    optsched import elasticflow trace.csv --table T4=throughputs_T4 --pool T4=16x4 -o elasticflow.json
    optsched import elasticflow trace.csv --table A100=throughputs_A100 --pool A100=16x8 --at 90d \\
        -o - | optsched solve - -f max-throughput
"""
FILES, SELECTION = "ElasticFlow's files", "What is taken"


def elasticflow(
    shell: Shell,
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="Table of jobs (CSV).")],
    table: Annotated[
        list[str],
        typer.Option(
            "--table", metavar="POOL=FOLDER", rich_help_panel=FILES,
            help="Throughputs of the GPUs of a pool: a folder of tables, one for each model. Can be repeated.",
        ),
    ],
    pool: Annotated[
        list[str],
        typer.Option(
            "--pool", metavar="POOL=NODES[xGPUS]", rich_help_panel=FILES,
            help="Nodes of a pool, with so many GPUs each (1). Can be repeated.",
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FILE", rich_help_panel=OUTPUT,
            help="FILE.json, .yaml or .npz; - for JSON on standard output.",
        ),
    ],
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", rich_help_panel=SELECTION, help="The jobs that have arrived by then, on the trace's clock."
        ),
    ] = None,
    rigid: Annotated[
        bool,
        typer.Option("--rigid", help="Jobs run on the GPUs that they ask for alone.", rich_help_panel=SELECTION),
    ] = False,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Of the instance.", rich_help_panel=OUTPUT, show_default=True)
    ] = "elasticflow",
) -> int:  # fmt: skip
    """Make an instance of throughput tables and a trace of ElasticFlow (Gu et al., ASPLOS 2023)."""
    check_target(output)
    now = values.duration(at, "--at")
    tables = _folders(table)
    sizes = [pool_size(text) for text in pool]
    pools = {size["name"]: (size["nodes"], size["gpus_per_node"]) for size in sizes}
    if len(pools) < len(sizes):
        raise UsageError("--pool: a pool is given twice")
    from optsched.formats.elasticflow import import_elasticflow
    from optsched.instance import Instance
    from optsched.instance.files import kind_of

    kind = "json" if output == "-" else kind_of(Path(output))
    with progress(shell, "importing"):
        document = import_elasticflow(tables, trace, pools, at=now, rigid=rigid, name=name)
        instance = Instance.from_document(document)
    write_instance(shell, instance, output, kind)
    return 0


def _folders(texts: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        pool, equals, folder = text.partition("=")
        if not equals or not pool.strip() or not folder.strip():
            raise InvalidArgument("--table", repr(text), "POOL=FOLDER, such as T4=throughputs_T4")
        if pool.strip() in found:
            raise UsageError(f"--table: {pool.strip()} is given twice")
        found[pool.strip()] = folder.strip()
    return found
