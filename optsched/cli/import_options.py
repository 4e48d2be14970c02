"""Options that the commands below ``optsched import`` share."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from optsched.cli.import_csv import pool_size
from optsched.cli.options import OUTPUT
from optsched.errors import InvalidArgument, UsageError

SELECTION = "What is taken"

Output = Annotated[
    str,
    typer.Option(
        "--output", "-o", metavar="FILE", rich_help_panel=OUTPUT,
        help="FILE.json, .yaml or .npz; - for JSON on standard output.",
    ),
]  # fmt: skip
Name = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Of the instance.", rich_help_panel=OUTPUT, show_default=True
    ),
]
At = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        rich_help_panel=SELECTION,
        help="The jobs that have arrived by then, on the trace's clock.",
    ),
]
Pools = Annotated[
    list[str],
    typer.Option(
        "--pool", metavar="POOL=NODES[xGPUS]", rich_help_panel=SELECTION,
        help="Nodes of a pool, with so many GPUs each (1). Can be repeated.",
    ),
]  # fmt: skip
GpusOfPools = Annotated[
    str,
    typer.Option(
        "--pools", metavar="POOL:GPUS,...", rich_help_panel=SELECTION,
        help="Worker types and their GPUs, such as v100:8,p100:16.",
    ),
]  # fmt: skip
Active = Annotated[
    str | None,
    typer.Option(metavar="N", help="The first N jobs, all present.", rich_help_panel=SELECTION),
]
NodeSize = Annotated[
    str,
    typer.Option(
        "--gpus-per-node",
        metavar="N",
        help="Size of a node.",
        rich_help_panel=SELECTION,
        show_default=True,
    ),
]
Pairs = Annotated[
    bool,
    typer.Option(
        "--pairs", help="Also the rates of two jobs that share GPUs.", rich_help_panel=SELECTION
    ),
]
Speeds = Annotated[
    list[str] | None,
    typer.Option(
        "--speed", metavar="POOL=FACTOR", rich_help_panel=SELECTION,
        help="How much faster than recorded jobs run in a pool (1). Can be repeated.",
    ),
]  # fmt: skip


def nodes_of_pools(texts: list[str]) -> dict[str, tuple[int, int]]:
    """Nodes, and GPUs of a node, of each pool of ``--pool``."""
    sizes: list[dict[str, Any]] = [pool_size(text) for text in texts]
    pools = {str(size["name"]): (int(size["nodes"]), int(size["gpus_per_node"])) for size in sizes}
    if len(pools) < len(sizes):
        raise UsageError("--pool: a pool is given twice")
    return pools


def speeds_of_pools(texts: list[str] | None) -> dict[str, float]:
    """Factors by pool of ``--speed``."""
    speeds: dict[str, float] = {}
    for text in texts or ():
        pool, equals, factor = text.rpartition("=")
        pool = pool.strip()
        try:
            speed = float(factor) if equals and pool else 0.0
        except ValueError:
            speed = 0.0
        if not 0 < speed < float("inf"):
            raise InvalidArgument(
                "--speed", repr(text), "POOL=FACTOR with a factor above 0, such as v100=1.5"
            )
        if pool in speeds:
            raise UsageError(f"--speed: {pool} is given twice")
        speeds[pool] = speed
    return speeds
