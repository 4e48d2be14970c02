"""Columns of co-located pairs whose slow-down a performance model predicts."""

from __future__ import annotations

import numpy as np

from optsched.arrays import IntArray, group_rows, mask_of, ranges
from optsched.arrays.values import replace
from optsched.candidates.columns import KindColumns, is_kept
from optsched.candidates.generate import MOST_KIND_PAIRS, drop_unfit
from optsched.candidates.kinds import Kinds
from optsched.candidates.room import drop_roomless
from optsched.candidates.task import CompileTask
from optsched.errors import InvalidInput
from optsched.performance import Configurations, Feasibility
from optsched.performance.composed import colocating

GAIN = 1e-9
"""A pair is a column only if its two jobs together run faster than in turns by more than this."""


def modelled_pairs(task: CompileTask, alone: KindColumns, stated: KindColumns) -> KindColumns:
    """Columns of all pairs of kinds that run alone in the same configuration,
    with rates from the model.

    The rate of each job is its rate alone times the fraction that the model predicts. Pairs of
    kinds that the instance states (`stated`) are skipped. Pairs whose fractions add up to 1 or less
    are skipped too: if the jobs take turns, each alone for its fraction of the time, they do the
    same work in no more GPU time. (Such a pair could only help a requirement on time itself, such
    as ``minimum-service``; the instance can state it.)

    Raises
    ------
    InvalidInput
        If there are more than `MOST_KIND_PAIRS` pairs to examine.
    """
    pairs = colocating(task.model)
    if pairs is None:
        return KindColumns.none()
    first, second = _pairs(task.kinds, alone)
    configuration = group_rows((alone.pool, alone.gpus, alone.nodes), len(alone))
    way = configuration.first
    table = Configurations(
        alone.pool[way],
        alone.gpus[way],
        alone.nodes[way],
        alone.share[way],
        np.zeros(len(way), np.int64),
    )
    new = ~_stated(alone, first, second, stated)
    first, second = first[new], second[new]
    said = pairs.pair_fractions(
        task.kinds.batch,
        table,
        alone.kind[first],
        alone.kind[second],
        configuration.inverse[first],
    )
    gains = said.first + said.second > 1 + GAIN
    use = np.flatnonzero((said.feasible == Feasibility.OK) & gains)
    a, b = first[use], second[use]
    columns = KindColumns.make(
        alone.kind[a],
        alone.pool[a],
        alone.gpus[a],
        alone.nodes[a],
        partner=alone.kind[b],
        rate=alone.rate[a] * said.first[use],
        partner_rate=alone.rate[b] * said.second[use],
        # Error of the rates alone (the larger of the two) and error of the fraction, combined as
        # independent errors.
        log_sd=np.hypot(np.maximum(alone.log_sd[a], alone.log_sd[b]), said.log_sd[use]),
        source=np.maximum(np.maximum(alone.source[a], alone.source[b]), said.source[use]),
    )
    return replace(columns, drop=drop_roomless(task, columns, drop_unfit(task, columns)))


def pairable(alone: KindColumns) -> IntArray:
    """Rows of columns alone that a model may pair."""
    fits = is_kept(alone.drop) & (alone.option < 0) & (alone.workers == 0) & (alone.gpus > 0)
    # Columns within a group are left out: the rates of a pair hold anywhere in the pool.
    return np.flatnonzero(fits & (alone.share == 1) & (alone.level == 0))


def _pairs(kinds: Kinds, alone: KindColumns) -> tuple[IntArray, IntArray]:
    """Rows of columns alone, two by two,
    that are in the same configuration; the lower kind first.
    """
    rows = pairable(alone)
    # After sorting, columns with the same configuration are adjacent; each is paired with those
    # after it.
    rows = rows[
        np.lexsort((alone.kind[rows], alone.nodes[rows], alone.gpus[rows], alone.pool[rows]))
    ]
    same = group_rows((alone.pool[rows], alone.gpus[rows], alone.nodes[rows]), len(rows))
    start = mask_of(same.first, len(rows))
    begin = np.maximum.accumulate(np.where(start, np.arange(len(rows)), 0))
    end = begin + same.count[same.inverse]
    partners = (end - np.arange(len(rows))).astype(np.int64)  # the column itself and all after it
    if partners.sum() > MOST_KIND_PAIRS:
        raise InvalidInput(
            "performance",
            f"a model that pairs {int(partners.sum()):,} times two kinds of jobs in a "
            "configuration",
            f"at most {MOST_KIND_PAIRS:,}; jobs of fewer workloads, or of fewer GPU counts, "
            "make fewer",
        )
    first = rows.repeat(partners)
    second = rows[ranges(np.arange(len(rows), dtype=np.int64), partners)]
    jobs_of = np.bincount(kinds.of_job[kinds.of_job >= 0], minlength=len(kinds))
    several = (alone.kind[first] != alone.kind[second]) | (jobs_of[alone.kind[first]] > 1)
    return first[several], second[several]


def _stated(
    alone: KindColumns, first: IntArray, second: IntArray, stated: KindColumns
) -> np.ndarray:
    """Whether the instance states a pair."""
    if len(stated) == 0:
        return np.zeros(len(first), bool)
    both = tuple(
        np.concatenate([of_pair, of_alone])
        for of_pair, of_alone in (
            (stated.kind, alone.kind[first]),
            (stated.partner, alone.kind[second]),
            (stated.pool, alone.pool[first]),
            (stated.gpus, alone.gpus[first]),
            (stated.nodes, alone.nodes[first]),
        )
    )
    groups = group_rows(both, len(both[0]))
    is_stated = mask_of(groups.inverse[: len(stated)], len(groups))
    return is_stated[groups.inverse[len(stated) :]]
