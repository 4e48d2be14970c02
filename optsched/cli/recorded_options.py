"""Options that imports of recorded durations share: pools, and how fast jobs run in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optsched.cli.import_csv import pool_size
from optsched.cli.options import OUTPUT
from optsched.cli.shell import Shell
from optsched.errors import UsageError

if TYPE_CHECKING:
    from optsched.formats.recorded import RecordedTrace

CLUSTER, SELECTION = "Cluster", "What is taken"

Output = Annotated[
    str,
    typer.Option(
        "--output", "-o", metavar="FILE", rich_help_panel=OUTPUT,
        help="FILE.json, .yaml or .npz; - for JSON on standard output.",
    ),
]  # fmt: skip
Pool = Annotated[
    list[str] | None,
    typer.Option(
        "--pool", metavar="NAME=NODES[xGPUS]", rich_help_panel=CLUSTER,
        help="A pool of so many nodes with so many GPUs each (1). Can be repeated.",
    ),
]  # fmt: skip
Speed = Annotated[
    list[str] | None,
    typer.Option(
        "--speed", metavar="POOL=FACTOR", rich_help_panel=CLUSTER,
        help="How many times as fast as recorded jobs run in a pool (1; 0: not at all). Can be repeated.",
    ),
]  # fmt: skip


def pool_documents(texts: Sequence[str] | None) -> list[dict[str, Any]]:
    """Pools of ``--pool``, each once."""
    given = [pool_size(text) for text in texts or ()]
    names = [document["name"] for document in given]
    for again in (name for row, name in enumerate(names) if name in names[:row]):
        raise UsageError(f"--pool: {again} is given twice")
    return given


def speeds(texts: Sequence[str] | None) -> dict[str, float]:
    """Factors of ``--speed`` by pool."""
    found: dict[str, float] = {}
    for text in texts or ():
        pool, equals, factor = text.partition("=")
        try:
            value = float(factor) if equals and pool.strip() else -1.0
        except ValueError:
            value = -1.0
        if not 0 <= value <= 1e9:
            raise UsageError(f"--speed: found {text!r}, expected POOL=FACTOR, such as v100=1.5")
        if pool.strip() in found:
            raise UsageError(f"--speed: {pool.strip()} is given twice")
        found[pool.strip()] = value
    return found


def tell_left_out(shell: Shell, made: RecordedTrace) -> None:
    """Say on standard error what of the log is not in the trace, unless quiet."""
    left: Mapping[str, int] = made.left_out
    if left and not shell.quiet:
        told = ", ".join(f"{count:,} {why}" for why, count in sorted(left.items(), key=lambda item: -item[1]))
        shell.complain(f"left out: {told}")
