"""Columns of jobs whose rates are plain numbers of their own,
as matrices of jobs and pools give them: the usual case.

The same columns as `optsched.candidates.generate.rated_columns` makes and `gathered` collects, without
the detour by way of all of them: a kind runs on its gang, on the fewest nodes, in every pool for
which it has a rate.
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import BLOCK, constant, without_repeats
from optsched.candidates.columns import Drop, KindColumns, is_kept
from optsched.candidates.generate import unfit, ways_on_fewest_nodes
from optsched.candidates.task import CompileTask


def plain_columns(task: CompileTask) -> tuple[KindColumns, KindColumns] | None:
    """The columns that are kept and those that are dropped;
    None where the kinds or what they need are not as simple.

    Rates must come from the table alone.
    """
    kinds, table, workloads = task.kinds, task.table, task.instance.workloads
    if table.plain is None or not len(kinds):
        return None
    others = any(
        (without_repeats(column) >= 0).any() for column in (kinds.levels, kinds.options, kinds.law)
    )
    needs = workloads.gpu_memory.any() or workloads.demand
    if others or needs or not without_repeats(kinds.own).all():
        return None
    pools, ways, place, counts = ways_on_fewest_nodes(kinds.gpus_min, table.sizes)
    wrong, most = unfit(ways, task), len(kinds) * len(pools)
    # Memory is asked for once, for all cells; what stays is written to its front.
    fits = not wrong.any()
    kind, way, rate = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most)
    dropped = []
    count, rows = 0, max(1, BLOCK // len(pools))
    for start in range(0, len(kinds), rows):
        part = slice(start, min(start + rows, len(kinds)))
        rates = table.plain.rows(kinds.profile[part], table.places_of_pools)
        ways_here = np.add.outer(place[part], pools * counts)
        runs = rates > 0
        if not fits:
            runs &= is_kept(wrong[ways_here])
        # A cell is a kind and a pool; a comparison with NaN, which is no rate, is false.
        cells = np.flatnonzero(runs)
        here = slice(count, count + len(cells))
        np.floor_divide(cells, len(pools), out=kind[here])
        kind[here] += start
        np.take(ways_here, cells, out=way[here], mode="clip")
        np.take(rates, cells, out=rate[here], mode="clip")
        count = here.stop
        if len(cells) < runs.size:
            cells = np.flatnonzero(~runs)
            missing = np.where(np.isnan(rates.ravel()[cells]), Drop.NO_RATE, Drop.ZERO_RATE)
            way_there = ways_here.ravel()[cells]
            # A way that no nodes have is the first reason, as in `rated`.
            why = np.where(is_kept(wrong[way_there]), missing, wrong[way_there])
            dropped.append((cells // len(pools) + start, way_there, why))
    kept = KindColumns.of(kind[:count], way[:count], ways, rate=rate[:count])
    if not dropped:
        return kept, KindColumns.none()
    kinds_there, ways_there, whys = (
        np.concatenate(arrays) for arrays in zip(*dropped, strict=True)
    )
    nothing = constant(0.0, len(whys), np.float64)
    return kept, KindColumns.of(
        kinds_there, ways_there, ways, rate=nothing, drop=whys.astype(np.uint8)
    )
