"""Select the rows of a round as one set, if jobs have several rows: the set with the greatest
worth.

A job that shares GPUs has several rows (alone, or with one of several partners), and so has a job
whose time is split over pools. Only one of its rows runs in a round, and each conflicts with rows
of other jobs. If such rows are selected one by one in the order of their due times, GPUs are wasted
and some deficits grow from round to round, although the allocation could be realised. Selected as a
set they do not. After a round in which the rows s run, row r is owed d_r + x_r - s_r rounds, and
job j the sum over its rows, D_j + X_j - sum s_r. The sum of the squares of both is least for the
set with the greatest worth,

    maximise  sum_r w_r s_r     over the sets of rows that can run side by side,

    w_r = (d_r + h_r + x_r - 1/2) + sum over the one or two jobs j of r of (D_j + h_r + X_j - 1/2),

where a running row counts, with its jobs, as if it were owed h_r rounds more
(`optsched.rounds.selection`).

With h = 0 the first term is x_r (1 - due_r), so rows that are due in this round have positive
worth. An allocation that rounds can realise is a mean of such sets, so the best set is worth at
least as much as the allocation, and the inner product of the deficits and their change is at most
0. Then the deficits stay **bounded** forever (the perceptron cycling theorem: Block and Levin, "On
the boundedness of an iterative procedure for solving a system of linear inequalities", 1970; as a
rule for choosing vertices of any polytope: Adler et al., "Convex dynamics and applications", 2005).
The set need not be optimal for this: it is enough that it is worth as much as the allocation.
Therefore sets are improved by a bounded number of chains of exchanges (`RowPacking`).

A row that is so far ahead that its time would not be counted (`optsched.rounds.ledger`) has no
worth, whatever its jobs are owed: other rows could use the GPUs.

Deficits beyond `MUCH` rounds are divided by x (for jobs by X). They arise only if the allocation
cannot be realised; then all rows fall short in proportion to their claims.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, mask_of
from optsched.candidates import JobRows, RowUses
from optsched.placement.instant import Instant, first_fit

MUCH = 4.0
"""Rounds; deficits beyond this are divided by the fraction of the row."""
SMALL = 0.01
"""Smaller fractions count as this. Otherwise a deficit from a time of larger fractions would
outweigh all others.
"""
ROUNDING = 1e-9
"""Rounds."""


def worth_of(
    rows: JobRows, deficit: FloatArray, head_start: FloatArray, most_ahead: FloatArray
) -> FloatArray:
    """Worth w of each row, in rounds; negative for rows without a claim, and for rows so far ahead
    that a round would not be counted for them.

    Parameters
    ----------
    rows : JobRows, A rows
    deficit : FloatArray, shape (A,)
        Rounds that each row is owed.
    head_start : FloatArray, shape (A,)
        h_r.
    most_ahead : FloatArray, shape (A,)
        Rounds that each row may be ahead of what it is owed.
    """
    claims = rows.fraction > 0
    shared = rows.partner >= 0
    x = rows.fraction
    owed = np.where(claims, deficit + rows.fraction, 0.0)
    # A row of a pair counts for both jobs.
    ends = np.concatenate([rows.job, rows.partner[shared]])
    jobs = int(ends.max(initial=-1)) + 1
    job_x = np.zeros(jobs)
    job_owed = np.zeros(jobs)
    np.add.at(job_x, ends, np.concatenate([x, x[shared]]))
    np.add.at(job_owed, ends, np.concatenate([owed, owed[shared]]))
    worth = (
        _weight(owed + head_start, x)
        - 0.5
        + _weight(job_owed[rows.job] + head_start, job_x[rows.job])
        - 0.5
    )
    pairs = shared.nonzero()[0]
    other = rows.partner[shared]
    worth[pairs] += _weight(job_owed[other] + head_start[pairs], job_x[other]) - 0.5
    # The ledger does not count time beyond `most_ahead`.
    counts = deficit + x - 1.0 >= -most_ahead - ROUNDING
    return np.where(claims & counts, worth, -1.0)


def _weight(owed: FloatArray, x: FloatArray) -> FloatArray:
    return np.minimum(owed, MUCH) + np.maximum(owed - MUCH, 0.0) / np.clip(x, SMALL, 1.0)


def exchanged(
    instant: Instant,
    worth: FloatArray,
    order: IntArray,
    free: FloatArray,
    busy: BoolArray,
) -> IntArray:
    """Rows that run side by side, worth at least as much as the rows that `first_fit` selects.

    Parameters
    ----------
    instant : Instant
        A rows of R resources.
    worth : FloatArray, shape (A,)
    order : IntArray
        Rows of positive worth, in the order in which they are tried.
    free : FloatArray, shape (R,)
        Free share of each resource.
    busy : BoolArray, shape (jobs,)
        Jobs that already run.

    Returns
    -------
    IntArray
        Rows, ascending.
    """
    blocked = np.append(busy, False)
    rows = order[~(blocked[instant.job[order]] | blocked[instant.partner[order]])]
    # `RowPacking` numbers rows by worth, ascending, so that comparing numbers compares worth.
    rows = rows[worth[rows].argsort(kind="stable")]
    taken = mask_of(first_fit(instant, order, free, busy), len(instant))
    near = _near_the_edge(instant, rows, taken)
    stays = rows[taken[rows] & ~near]
    rows = rows[near]
    packing = RowPacking(
        instant.job[rows],
        instant.partner[rows],
        instant.uses.take(rows),
        worth[rows],
        free - instant.uses.total(stays),
    )
    for row in taken[rows].nonzero()[0].tolist():
        packing.put(row)
    packing.improve()
    return np.sort(np.concatenate([stays, rows[np.array(packing.inside, bool)]]))


def _near_the_edge(instant: Instant, rows: IntArray, taken: BoolArray) -> BoolArray:
    """Mask of the rows that chains may exchange: those of jobs with several rows, and few others.

    The others are, for each resource, the selected rows of least worth and the unselected rows of
    greatest worth.

    Parameters
    ----------
    instant : Instant
        A rows.
    rows : IntArray
        By worth, ascending.
    taken : BoolArray, shape (A,)
    """
    ends = np.concatenate([instant.job[rows], instant.partner[rows]])
    several = np.append(np.bincount(ends[ends >= 0], minlength=instant.jobs) > 1, False)
    near: BoolArray = several[instant.job[rows]] | several[instant.partner[rows]]
    uses = instant.uses.take(rows)
    inside = taken[rows][uses.row]
    from_edge = np.where(inside, uses.row, -uses.row)
    order = np.lexsort((from_edge, inside, uses.resource))
    group = 2 * uses.resource[order] + inside[order]
    place = np.arange(len(order)) - group.searchsorted(group)
    near[uses.row[order[place < CHAINS]]] = True
    return near


# --- chains of exchanges ----------------------------------------------------------------------

CHAINS = 100
"""Chains that are tried, at most."""
LONGEST = 8
"""Rows that a chain puts in by removing others, at most."""
TRIED = 64
"""Rows that are tried on the free part of a resource after a removal, at most."""
LEAST = 1e-9
"""Gains below this are rounding."""


class ChainStep(NamedTuple):
    """A row that a chain put in or removed."""

    row: int
    entered: bool


class RowPacking:
    """A set of rows (those inside) in which no job is twice and no resource is exceeded.

    A chain puts a row in, removes the rows that conflict with it, fills the resources that become
    free, and puts a job that lost its row back in another row, which may remove further rows. The
    part of the chain with the greatest gain is kept (ejection chains: Glover, "Ejection chains,
    reference structures and alternating path methods for traveling salesman problems", 1996). Where
    every row is two jobs on one GPU, a chain is an alternating path of a matching.

    Plain lists: chains are short, and touch few rows.

    Parameters
    ----------
    job, partner : IntArray, shape (A,)
        Jobs of each row; partner -1 for a job alone.
    uses : RowUses, A rows of R resources
    worth : FloatArray, shape (A,)
        Positive and ascending.
    free : FloatArray, shape (R,)
        Free share of each resource before any row is inside.

    Attributes
    ----------
    inside : list of bool, length A
        None at first.
    """

    def __init__(
        self,
        job: IntArray,
        partner: IntArray,
        uses: RowUses,
        worth: FloatArray,
        free: FloatArray,
    ) -> None:
        resource = uses.resource.tolist()
        share = uses.share.tolist()
        start = uses.start.tolist()
        self._worth: list[float] = worth.tolist()
        self._jobs = [
            (one,) if other < 0 else (one, other)
            for one, other in zip(job.tolist(), partner.tolist(), strict=True)
        ]
        self._uses = [
            tuple(zip(resource[a:b], share[a:b], strict=True)) for a, b in pairwise(start)
        ]
        self._free: list[float] = free.tolist()
        self.inside = [False] * len(self._jobs)
        self._row_of: dict[int, int] = {}  # the row inside that has a job
        self._holders: list[list[int]] = [
            [] for _ in self._free
        ]  # rows inside that hold some of a resource, ascending
        self._of_job: dict[int, list[int]] = {}  # all rows of a job, those worth most first
        self._of_resource: list[list[int]] = [[] for _ in self._free]
        # Descending, so that the lists of jobs and resources begin with the rows worth most.
        for row in range(len(self._jobs) - 1, -1, -1):
            for member in self._jobs[row]:
                self._of_job.setdefault(member, []).append(row)
            for number, _ in self._uses[row]:
                self._of_resource[number].append(row)

    def put(self, row: int) -> None:
        """Put in a row that fits."""
        self.inside[row] = True
        for job in self._jobs[row]:
            self._row_of[job] = row
        for number, share in self._uses[row]:
            self._free[number] -= share
            insort(self._holders[number], row)

    def improve(self) -> None:
        """Try chains from the rows that are outside, those of greatest worth first, until none
        gains.
        """
        left = CHAINS
        gains = True
        while gains:
            gains = False
            for row in range(len(self.inside) - 1, -1, -1):
                if not self.inside[row] and left:
                    left -= 1
                    gains |= self._chain(row)

    def _take(self, row: int) -> None:
        self.inside[row] = False
        for job in self._jobs[row]:
            del self._row_of[job]
        for number, share in self._uses[row]:
            self._free[number] += share
            del self._holders[number][bisect_left(self._holders[number], row)]

    def _chain(self, first: int) -> bool:
        """Apply the best chain that is found from a row; return whether it gains."""
        steps = []
        kept: set[int] = set()  # rows that the chain put in are not removed
        gone = set()  # rows that it removed are not put back by removing others
        gain = 0.0
        best = LEAST
        length = 0
        row: int | None = first
        for _ in range(LONGEST):
            going = None if row is None else self._in_the_way(row, kept)
            if row is None or going is None:
                break
            for other in going:
                self._take(other)
                gain -= self._worth[other]
            steps += [ChainStep(other, False) for other in going]
            gone.update(going)
            lost = [job for other in going for job in self._jobs[other]]
            for entering in (row, *self._refilling(row, going, lost)):
                gain += self._worth[entering]
                steps.append(ChainStep(entering, True))
                kept.add(entering)
            if gain > best:
                best = gain
                length = len(steps)
            row = self._coming_back(lost, kept, gone)
        # Undo the steps after the best part of the chain.
        for step in reversed(steps[length:]):
            if step.entered:
                self._take(step.row)
            else:
                self.put(step.row)
        return length > 0

    def _in_the_way(self, row: int, kept: set[int]) -> list[int] | None:
        """Rows that must be removed for a row: the rows of its jobs, and rows of least worth that
        use its resources. None if that is impossible.
        """
        going = list(
            dict.fromkeys(self._row_of[job] for job in self._jobs[row] if job in self._row_of)
        )
        if not kept.isdisjoint(going):
            return None
        for number, share in self._uses[row]:
            room = self._free[number] + sum(self._share(other, number) for other in going)
            for other in self._holders[number]:
                if share <= room:
                    break
                if other not in kept and other not in going:
                    going.append(other)
                    room += self._share(other, number)
            if share > room:
                return None
        return going

    def _share(self, row: int, resource: int) -> float:
        return next(
            (share for number, share in self._uses[row] if number == resource),
            0.0,
        )

    def _refilling(self, row: int, going: list[int], lost: list[int]) -> list[int]:
        """Put a row in, and rows that fit beside it after the removals; return the latter."""
        self.put(row)
        entered = []
        freed = dict.fromkeys(number for other in going for number, _ in self._uses[other])
        near = [self._of_job[job] for job in lost] + [self._of_resource[number] for number in freed]
        for rows in near:
            for other in islice(rows, TRIED):
                if not self.inside[other] and self._fits(other):
                    self.put(other)
                    entered.append(other)
        return entered

    def _fits(self, row: int) -> bool:
        return all(share <= self._free[number] for number, share in self._uses[row]) and not any(
            job in self._row_of for job in self._jobs[row]
        )

    def _coming_back(self, lost: list[int], kept: set[int], gone: set[int]) -> int | None:
        """The row with the least cost that puts back a job which lost its row; None if there is
        none.
        """
        least = float("inf")
        found = None
        for job in lost:
            for row in () if job in self._row_of else self._of_job[job]:
                going = None if row in gone else self._in_the_way(row, kept)
                if going is not None:
                    cost = sum(self._worth[other] for other in going) - self._worth[row]
                    if cost < least:
                        least = cost
                        found = row
        return found
