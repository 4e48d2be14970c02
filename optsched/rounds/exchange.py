"""The rows of a round as one set, where jobs share GPUs: which sets are worth most.

A job that shares has several rows (alone, beside one, beside another), and each is in the way of rows of other jobs.
Taken one by one, in the order in which they are due, such rows waste GPUs: some are owed more from round to round,
though the allocation could be realised. Taken as a set they are not. After a round in which the rows s run, row r is
owed d_r + x_r - s_r rounds, and job j the sum over its rows, D_j + X_j - sum s_r. The sum of the squares of both is
least for the set that is worth most,

    maximise  sum_r w_r s_r     over the sets of rows that can run side by side,

    w_r = (d_r + h_r + x_r - 1/2) + sum over the one or two jobs j of r of (D_j + h_r + X_j - 1/2),

where a row that runs now counts, with its jobs, as if it were owed h_r rounds more (`optsched.rounds.selection`).

With h = 0 the first term is x_r (1 - due_r): what is due in this round is worth something. An allocation that rounds
can realise is a mean of such sets, so that a best one is worth no less than the allocation: what is owed, times what it
grows by, is at most 0. Then it stays **bounded**, for ever (the perceptron cycling theorem: Block and Levin, "On the
boundedness of an iterative procedure for solving a system of linear inequalities", 1970; as a rule for choosing
vertices of any polytope: Adler et al., "Convex dynamics and applications", 2005). For that a set need not be the best:
it suffices that it is worth what the allocation is. Sets are therefore improved by chains of exchanges
(`optsched.rounds.chains`), within a bounded number of steps.

A row that is so far ahead that what it ran would not be counted (`optsched.rounds.ledger`) is worth nothing, whatever
its jobs are owed: time on GPUs would be lost to all others.

What is owed beyond `MUCH` rounds counts 1 / x-fold, for jobs 1 / X-fold: it only comes to that where the allocation
cannot be realised, and makes all fall short in proportion to what they claim.
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.candidates import JobRows
from optsched.placement.instant import Instant
from optsched.placement.priority import first_fit
from optsched.rounds.chains import Packing

MUCH = 4.0
"""Rounds that are owed, beyond which it counts how many rounds a row needs to be owed as much."""
SMALL = 0.01
"""Fractions below this count as this: what is left of larger ones that were owed much does not outweigh all."""
ROUNDING = 1e-9
"""Rounds."""


def worth_of(rows: JobRows, deficit: FloatArray, ahead: FloatArray, lead: FloatArray) -> FloatArray:
    """w of each row, in rounds; negative for rows that have no claim, or could not be credited with a round.

    Parameters
    ----------
    rows : JobRows, A rows
    deficit : FloatArray, shape (A,)
        Rounds that each row is owed.
    ahead : FloatArray, shape (A,)
        h_r.
    lead : FloatArray, shape (A,)
        Rounds that each row may be ahead of what it is owed.
    """
    claims, shared = rows.fraction > 0, rows.partner >= 0
    x, owed = rows.fraction, np.where(claims, deficit + rows.fraction, 0.0)
    ends = np.concatenate([rows.job, rows.partner[shared]])
    jobs = int(ends.max(initial=-1)) + 1
    job_x, job_owed = np.zeros(jobs), np.zeros(jobs)
    np.add.at(job_x, ends, np.concatenate([x, x[shared]]))
    np.add.at(job_owed, ends, np.concatenate([owed, owed[shared]]))
    worth = (
        _weight(owed + ahead, x) - 0.5 + _weight(job_owed[rows.job] + ahead, job_x[rows.job]) - 0.5
    )
    pairs, other = np.flatnonzero(shared), rows.partner[shared]
    worth[pairs] += _weight(job_owed[other] + ahead[pairs], job_x[other]) - 0.5
    counts = deficit + x - 1.0 >= -lead - ROUNDING
    return np.where(claims & counts, worth, -1.0)


def _weight(owed: FloatArray, x: FloatArray) -> FloatArray:
    return np.minimum(owed, MUCH) + np.maximum(owed - MUCH, 0.0) / np.clip(x, SMALL, 1.0)


def exchanged(
    instant: Instant, worth: FloatArray, order: IntArray, free: FloatArray, busy: BoolArray
) -> IntArray:
    """Rows that run side by side, and are worth no less than when each is taken in order if it fits.

    Parameters
    ----------
    instant : Instant
        A rows of R resources.
    worth : FloatArray, shape (A,)
    order : IntArray
        Rows of positive worth, the first first.
    free : FloatArray, shape (R,)
        What is free of each resource, as a share of its capacity.
    busy : BoolArray, shape (jobs,)
        Jobs that run already.

    Returns
    -------
    IntArray
        Rows, ascending.
    """
    blocked = np.append(busy, False)
    rows = order[~(blocked[instant.job[order]] | blocked[instant.partner[order]])]
    rows = rows[np.argsort(worth[rows], kind="stable")]
    packing = Packing(
        instant.job[rows], instant.partner[rows], instant.uses.take(rows), worth[rows], free
    )
    place = np.full(len(instant), -1, np.int64)
    place[rows] = np.arange(len(rows))
    for row in place[first_fit(instant, order, free, busy)].tolist():
        packing.put(row)
    packing.improve()
    return np.sort(rows[np.array(packing.inside, bool)])
