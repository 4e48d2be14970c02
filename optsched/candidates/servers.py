"""Columns of jobs with workers and parameter servers:
one per pair (w, p) that fits, and what each holds.
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import EMPTY, IntArray, constant, ranges
from optsched.arrays.values import replace
from optsched.candidates.columns import Drop, KindColumns
from optsched.candidates.generate import drop_unfit
from optsched.candidates.kinds import Kinds
from optsched.candidates.task import CompileTask
from optsched.errors import InvalidInput
from optsched.performance import Source

MOST_COLUMNS = 5_000_000
"""Most pairs of all kinds together; each takes about 250 bytes."""
MORE_THAN_THERE_ARE = 2.0**31
"""GPU counts are capped at this number, so that integers do not overflow. No cluster has as many,
so the result is the same.
"""


def server_columns(task: CompileTask) -> KindColumns:
    """One column per kind with a law and pair (w, p) within its limit:
    tau = K t(w, p), rate K / tau, value mu(tau).

    The pairs of a law are computed once for all kinds that use it. If not even one worker and one
    server fit, the kind has this pair as a dropped column.

    Raises
    ------
    InvalidInput
        If all kinds together have more pairs than memory holds.
    """
    kinds, laws = task.kinds, task.kinds.laws
    if not len(laws):
        return KindColumns.none()
    rows = np.flatnonzero(kinds.law >= 0)
    counts = laws.count_pairs()
    length = counts[kinds.law[rows]] if len(rows) else EMPTY
    if length.sum() > MOST_COLUMNS:
        found = (
            f"room for {length.sum():,} pairs of workers and servers in {len(rows):,} kinds of jobs"
        )
        raise InvalidInput("workloads", found, f"limits with at most {MOST_COLUMNS:,} pairs in all")
    _, all_w, all_p = laws.pairs()
    start = counts.cumsum() - counts
    pair = ranges(start[kinds.law[rows]], length)
    # A kind without a pair that fits gets the pair (1, 1), which is dropped with its reason.
    none = rows[length == 0]
    kind = np.concatenate([rows.repeat(length), none])
    ones = np.ones(len(none), np.int64)
    w, p = np.concatenate([all_w[pair], ones]), np.concatenate([all_p[pair], ones])

    law = kinds.law[kind]
    t = laws.step_seconds(law, w, p)
    tau = task.instance.jobs_table.steps[kinds.first[kind]] * t
    pool, gpus = _gpus(kinds, law, w, p)
    columns = KindColumns.make(
        kind,
        pool,
        gpus,
        task.sizes.fewest_nodes(pool, gpus),
        workers=w,
        servers=p,
        rate=1.0 / t,
        duration=tau,
        value=laws.utility(law, tau),
        source=constant(Source.PARAMETRIC, len(kind), np.uint8),
    )
    drop = drop_unfit(task, columns)
    drop[len(pair) :] = Drop.OVER_LIMIT
    return replace(columns, drop=drop)


def _gpus(kinds: Kinds, law: IntArray, w: IntArray, p: IntArray) -> tuple[IntArray, IntArray]:
    """The pool whose GPUs workers or servers hold (-1: none) and how many they hold together."""
    laws = kinds.laws
    of_pool = laws.pool_of >= 0
    # A law uses GPUs of at most one pool.
    each = np.stack([laws.worker, laws.server])[:, :, of_pool]
    pool = np.full(len(laws), -1, np.int64)
    held_by, column = np.nonzero(each.any(axis=0))
    pool[held_by] = laws.pool_of[of_pool][column]
    of_worker, of_server = np.minimum(each.sum(axis=2), MORE_THAN_THERE_ARE).astype(np.int64)
    return pool[law], of_worker[law] * w + of_server[law] * p
