"""Moves of running jobs to faster GPUs: when one pays, and which of them find idle GPUs in a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.candidates import Classes, JobRows
from optsched.placement.beside import place_beside
from optsched.placement.instant import FULL
from optsched.placement.priority import first_fit
from optsched.rounds.rows import instant_of, uses_of
from optsched.rounds.service import Service
from optsched.rounds.view import View

ROUNDING = 1e-9
"""A move must save more than this part of the time left, so that rates which differ by rounding move nobody."""


def seconds_saved(
    steps_left: FloatArray,
    rate: FloatArray,
    rate_there: FloatArray,
    *,
    restoring: FloatArray | float = 0.0,
    restart_cost: FloatArray | float = 0.0,
) -> FloatArray:
    """Seconds by which running jobs end sooner if they move; at most 0 where moving does not pay.

        (restoring + steps_left / rate)  -  (restart_cost + steps_left / rate_there)

    Parameters
    ----------
    steps_left : FloatArray, shape (n,)
    rate, rate_there : FloatArray, shape (n,)
        steps/s where the jobs run now, and where they could run.
    restoring : FloatArray or float
        Seconds for which they still restore their state where they are now.
    restart_cost : FloatArray or float
        Seconds that a restart takes.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        here = restoring + steps_left / rate
        there = restart_cost + steps_left / rate_there
    # Rates that differ by rounding must move nobody.
    saved = np.where((rate > 0) & (rate_there > rate), here - there, 0.0)
    return np.where(saved > ROUNDING * here, saved, np.minimum(saved, 0.0))


def saved_by_rows(
    view: View, service: Service, classes: Classes, rows: JobRows, continues: BoolArray
) -> FloatArray:
    """Seconds by which the job of each row ends sooner in it than where it runs now.

    0 for rows in which a job goes on as it is, for jobs that do not run or cannot go on, and for
    those that must not be stopped.

    Parameters
    ----------
    view : View
    service : Service
    classes : Classes
    rows : JobRows, A rows
        Of jobs alone.
    continues : BoolArray, shape (A,)
        Rows in which a job goes on as it is.

    Returns
    -------
    FloatArray, shape (A,)
    """
    table = view.instance.jobs_table
    now = view.instance.now
    rate = np.zeros(len(table))
    np.maximum.at(rate, rows.job[continues], rows.rate[continues])
    rate[view.must] = 0.0
    job = rows.job
    saved = seconds_saved(
        table.steps_left[job],
        rate[job],
        rows.rate,
        restoring=np.maximum(service.resumes[job] - now, 0.0),
        restart_cost=table.restart_cost[job],
    )
    return np.where(continues, 0.0, saved)


def idle_shares(view: View, classes: Classes) -> FloatArray:
    """Share of each renewable resource that no running job holds."""
    renewable = classes.resources.renewable
    capacity = classes.capacity
    left = view.left_beside(view.running.runs & ~view.running.lost, classes.resources)
    return np.divide(left * FULL, capacity, out=np.zeros(len(left)), where=capacity > 0)[renewable]


def moves_to_idle(
    view: View,
    classes: Classes,
    rows: JobRows,
    order: IntArray,
    pays: BoolArray,
    constraints: Sequence[Mapping[str, Any]] = (),
) -> tuple[BoolArray, bool]:
    """Rows to which running jobs move. No job is stopped for a move.

    Each job in the order takes its first row that fits on GPUs which no running job holds. A move
    is dropped if the placement then finds no GPUs for it, so that no job gives up its own for GPUs
    that are free but scattered.

    Parameters
    ----------
    view : View
    classes : Classes
    rows : JobRows, A rows
        Of jobs alone.
    order : IntArray
        Rows of jobs that want GPUs, the first first: of those that wait, and of those for which a
        move pays.
    pays : BoolArray, shape (A,)
        Rows of running jobs to which a move pays.
    constraints : sequence of mappings
        Side constraints; those of kind ``anti-affinity`` are read.

    Returns
    -------
    moves : BoolArray, shape (A,)
    at_rest : bool
        Whether no such row fits on what is idle, whatever the order.
    """
    moves = np.zeros(len(rows), bool)
    if not pays.any():
        return moves, True
    free = idle_shares(view, classes)
    instant = instant_of(rows, uses_of(classes))
    fits = np.ones(len(rows), bool)
    fits[instant.uses.row[instant.uses.share > free[instant.uses.resource]]] = False
    if not (pays & fits).any():
        return moves, True
    chosen = first_fit(instant, order, free)
    place = np.empty(len(rows), np.int64)
    place[order] = np.arange(len(order))
    chosen = chosen[np.argsort(place[chosen])]
    chosen = chosen[classes.gpus[rows.column[chosen]] > 0]
    # Without the moves that find no GPUs others may find some: place again until all have some.
    while pays[chosen].any():
        stays = view.running.runs & ~view.running.lost
        stays[rows.job[chosen]] = False
        standing = view.standing(np.flatnonzero(stays))
        found = place_beside(classes, rows, chosen, standing, constraints)
        refused = np.array([item.row for item in found.refused], np.int64)
        if not pays[refused].any():
            break
        chosen = chosen[~(np.isin(chosen, refused) & pays[chosen])]
    moves[chosen[pays[chosen]]] = True
    return moves, False
