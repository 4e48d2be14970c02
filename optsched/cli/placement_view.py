"""The placement as people read it: how good it is, GPUs by job, and who found no place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from optsched.cli.tables import bullets, count, facts, heading, name, number, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from optsched.solution import Solution

SHOWN = 20
"""Rows in the table, at most."""
REFUSED = 10


def placement_view(solution: Solution) -> Iterator[RenderableType]:
    """What runs first, on its GPUs; nothing where no placement was asked for."""
    placement = solution.placement
    if placement is None:
        return
    yield ""
    yield heading("Placement of what runs first")
    yield facts(_facts(placement.figures))
    names = solution.instance.jobs_table.names
    rows = []
    for row, gpus in zip(placement.row[:SHOWN].tolist(), placement.gpus[:SHOWN], strict=True):
        job, partner = int(placement.rows.job[row]), int(placement.rows.partner[row])
        told = name(names[job]) if partner < 0 else f"{name(names[job])} + {name(names[partner])}"
        rows.append([told, gpus_words(gpus), f"{len(gpus):,}"])
    if rows:
        yield table("job", "GPUs", "count", rows=rows, left=2)
    if len(placement) > SHOWN:
        yield f"... and {count(len(placement) - SHOWN, 'more row')} (use -o or --json)"
    if placement.contradicted:
        yield ""
        jobs = count(len(placement.contradicted), "job")
        yield heading(f"Not preemptible, but stopped or moved by the allocation: {jobs}")
        yield bullets(reason for _, reason in placement.contradicted[:REFUSED])
        if len(placement.contradicted) > REFUSED:
            yield f"... and {len(placement.contradicted) - REFUSED:,} more (use -o or --json)"
        yield "These jobs keep their GPUs. Solve with -C uninterrupted for an allocation in which they continue."
    if placement.refused:
        yield ""
        yield heading(f"No place: {count(len(placement.refused), 'row')}")
        yield bullets(reason for _, reason in placement.refused[:REFUSED])
        if len(placement.refused) > REFUSED:
            yield f"... and {len(placement.refused) - REFUSED:,} more (use -o or --json)"


def _facts(figures: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    wanted, placed, most = (
        int(figures[key]) for key in ("rows_wanted", "rows_placed", "rows_bound")
    )
    bound = "" if placed == wanted else f"; no placement has more than {most:,}"
    yield "placed", f"{placed:,} of {count(wanted, 'row')}{bound}"
    spanned, least = int(figures["nodes_spanned"]), int(figures["nodes_bound"])
    tight = "the fewest" if spanned == least else f"at least {least:,}"
    yield "nodes spanned", f"{spanned:,} in all ({tight} for so many rows)"
    if figures["bandwidth"]:
        yield "bandwidth", f"{number(figures['bandwidth'])} GB/s: bottlenecks of the gangs added up"
    yield "moved", count(int(figures["gpus_moved"]), "GPU")
    yield (
        "proof",
        "no placement is better"
        if figures["exact"]
        else "best fit: a better placement is not excluded",
    )


def gpus_words(gpus: Sequence[str]) -> str:
    """``v100-0/0-3, v100-1/0 2``: indices by node, consecutive ones together."""
    by_node: dict[str, list[int]] = {}
    for gpu in gpus:
        node, _, index = gpu.rpartition("/")
        by_node.setdefault(node, []).append(int(index))
    return ", ".join(f"{name(node)}/{_runs(sorted(indices))}" for node, indices in by_node.items())


def _runs(indices: list[int]) -> str:
    runs: list[list[int]] = []
    for index in indices:
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return " ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
