"""Whether every job can have some time at all,
for objectives that are infinite as soon as one has none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray
from optsched.arrays.matrices import scaled_rows
from optsched.arrays.values import cached_property
from optsched.program.allocation import AllocationProgram
from optsched.program.arrays import LinearArrays
from optsched.program.linear import LinearProgram

SOME_TIME = "some time"
"""Block of the rows that ask for some time of every job."""
NO_SHARE = 1e-10
"""Largest share that is none: an allocation is written down without fractions below it."""
SCARCE = 1e-6
"""Smallest share of a job from which there is certainly time for every job."""


@dataclass(frozen=True)
class SomeTime:
    """The largest share of what it could have alone that all jobs can have at once.

        maximise  t   s.t.  level_k(x) >= h_k t  for every class k (some time),  0 <= t <= 1,
                            time, capacity, side rows, extra rows

    h_k is the level of a job of class k that has the cluster to itself, in the columns that no row
    bars (if there are any). Without whole jobs, which could only make t smaller. If duals prove
    t = 0, every allocation leaves a job without any time: no makespan is finite, and no sum of
    logarithms.

    Attributes
    ----------
    program : AllocationProgram
        With requirements that gave way already lowered.
    """

    program: AllocationProgram

    def to_linear(self) -> LinearProgram:
        program = self.program
        lp, variables = program.bare()
        share = lp.variables(1, name="share", upper=1.0)
        count = sp.csr_matrix(program.classes.count[:, np.newaxis])
        levels = scaled_rows(program.levels, 1.0 / _level_alone(program))
        lp.constrain(levels @ variables["x"] - count @ share >= 0.0, name=SOME_TIME)
        lp.maximise(share)
        return program.with_own_rows(lp, variables)

    @cached_property
    def arrays(self) -> LinearArrays:
        return self.to_linear().arrays.relaxed()

    @cached_property
    def slack(self) -> FloatArray:
        """By how much each row was loosened for the tolerance of a solver, shape (rows,).

        Loosened rows can leave every job a tiny share where the exact rows leave some job none.
        """
        slack = np.zeros(self.arrays.shape[0])
        meant = {rows.name: rows.slack for rows in self.program.side if rows.slack is not None}
        for block in self.arrays.rows:
            if block.name in meant:
                slack[block.slice] = meant[block.name]
        return slack

    def none_left(self, bound: float | None, slack_worth: float) -> bool:
        """Whether a bound on t, and what slack is worth at its duals,
        show that some job has nothing.

        The bound less that worth is one of the program without slack. As t is concave in the slack,
        a true share would be seen beside what the slack alone makes.
        """
        return bound is not None and bound - slack_worth <= max(NO_SHARE, slack_worth)


@dataclass(frozen=True)
class SharesOfSome:
    """The largest shares of what they could have alone that some classes can have together.

        maximise  sum_{k in some} t_k   s.t.  level_k(x) >= h_k count_k t_k,  0 <= t_k <= 1,
                                        time, capacity, side rows, extra rows

    h_k as in `SomeTime`. If the optimum is 0, every allocation leaves each of these classes without
    any time.

    Attributes
    ----------
    program : AllocationProgram
    some : BoolArray, shape (K,)
    """

    program: AllocationProgram
    some: BoolArray

    @cached_property
    def arrays(self) -> LinearArrays:
        program = self.program
        lp, variables = program.bare()
        k = np.flatnonzero(self.some)
        share = lp.variables(len(k), name="share", upper=1.0)
        count = sp.diags_array(program.classes.count[k].astype(np.float64))
        levels = scaled_rows(program.levels, 1.0 / _level_alone(program))[k]
        lp.constrain(levels @ variables["x"] - sp.csr_matrix(count) @ share >= 0.0, name=SOME_TIME)
        lp.maximise(share.sum())
        return program.with_own_rows(lp, variables).arrays.relaxed()

    def shares(self, x: FloatArray) -> FloatArray:
        """t of a point of `arrays`, shape (K,); 0 of all other classes."""
        share = np.zeros(len(self.some))
        block = next(block for block in self.arrays.columns if block.name == "share")
        share[self.some] = x[block.slice]
        return share


def time_is_scarce(program: AllocationProgram, x: FloatArray | None) -> bool:
    """Whether some job may have to go without any time, though the objective is infinite then.

    Without side rows an even split gives time to every job that can run without a resource of
    which there is none. Where side rows only limit sums, every job that has a column left can have
    a little, however little that is.
    """
    if not program.all_must_run:
        return False
    if _nothing_to_run_on(program):
        return True
    if not (program.side or program.extend):
        return False
    if program.extend is None and all(rows.only_limit for rows in program.side):
        is_open = np.ones(program.classes.columns, bool)
        is_open[program.limit_rows.closed_columns] = False
        return not bool((program.highest_among(is_open) > 0).all())
    if x is None:
        return True
    return bool((program.level(x) < SCARCE * _level_alone(program)).any())


def _nothing_to_run_on(program: AllocationProgram) -> bool:
    """Whether every column of some job needs a resource of which there is none."""
    C = program.classes
    none_there = C.capacity <= 0
    if not none_there.any():
        return False
    needs_it = (C.usage.T @ none_there.astype(np.float64)) > 0
    return not bool((program.highest_among(~needs_it) > 0).all())


def _level_alone(program: AllocationProgram) -> FloatArray:
    """h of `SomeTime`, shape (K,)."""
    allowed = program.highest_among(~program.barred)
    return np.where(allowed > 0, allowed, program.highest_level)
