"""Columns of jobs that state one rate per pool (a matrix of jobs and pools): the usual case.

The result is that of `optsched.candidates.generate.rated_columns` and `gathered`, but computed
directly: a kind runs on its gang, on the fewest nodes, in every pool for which it has a rate.
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import BLOCK, constant, without_repeats
from optsched.candidates.columns import Drop, KindColumns, is_kept
from optsched.candidates.generate import unfit, ways_on_fewest_nodes
from optsched.candidates.task import CompileTask


def plain_columns(task: CompileTask) -> tuple[KindColumns, KindColumns] | None:
    """The kept and the dropped columns; None if the kinds or their needs are not that simple. All
    rates must come from the table.
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
    # Memory is allocated once, for all cells; kept columns are written to its front.
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
        # A cell is a kind and a pool. NaN means no rate; the comparison is false for it.
        cells = np.flatnonzero(runs)
        filled = slice(count, count + len(cells))
        np.floor_divide(cells, len(pools), out=kind[filled])
        kind[filled] += start
        np.take(ways_here, cells, out=way[filled], mode="clip")
        np.take(rates, cells, out=rate[filled], mode="clip")
        count = filled.stop
        if len(cells) < runs.size:
            cells = np.flatnonzero(~runs)
            missing = np.where(np.isnan(rates.ravel()[cells]), Drop.NO_RATE, Drop.ZERO_RATE)
            way_there = ways_here.ravel()[cells]
            # As in `rated`, a way that does not fit the nodes is the first reason.
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
