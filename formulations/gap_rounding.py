"""Rounding of the generalised assignment problem (Shmoys and Tardos): cheap, and nearly within
capacity."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from formulations.all_assigned import FITS
from formulations.generalised_assignment import GeneralisedAssignment
from formulations.rule import Deciding, Rule
from optsched.arrays import FloatArray, IntArray, owners
from optsched.candidates import Candidates, Classes, Drop
from optsched.display import amount, count
from optsched.errors import UsageError
from optsched.formulation import FormulationOptions
from optsched.formulation.procedure import Auxiliary
from optsched.program import AllocationProgram
from optsched.program.assignment import Assignment
from optsched.program.slot_rounding import whole_jobs

NOTHING = 1e-9
"""A share of a job that counts as none."""
SAME = 1e-9
"""Relative difference of two costs that is rounding."""
MOST_NAMED = 5
"""Agents that a note names."""
AT_MOST_SPLIT = "the cost is at most that of jobs that may be split"


class GapRounding(Rule):
    """Give every job exactly one of its options, at no more than the cost of jobs that may be
    split; agents may exceed their capacity by one job.

    Symbols as in ``gap``; every option uses one resource, its agent.
    Rule
        1. LP: the relaxation of ``gap``, 0 <= x_ij <= 1, costs LP. No assignment within the
           capacities costs less.
        2. Agent i has ceil(sum_j x_ij) slots, filled with its jobs by decreasing a_ij; a slot holds
           1, and a job may be in two slots.
        3. Jobs and slots are matched at the least total cost.
    Guarantee
        sum_ij c_ij x_ij  <=  LP                                    it is the bound of the solution
        sum_j a_ij x_ij   <=  b_i + max_j a_ij                      every agent

    The certificate checks both, and a note names the agents that exceed their capacity. An
    objective below the bound is no error: it comes from these agents. To stay within the
    capacities, take ``gap``.

    References
        D. B. Shmoys, E. Tardos, "An approximation algorithm for the generalized assignment
        problem", Mathematical Programming 62 (1993).
    """

    name = "gap-rounding"
    also_reads = frozenset({"cost"})
    reads_pairs = False
    leaves_idle = True
    objective_words = "total cost"

    class Options(FormulationOptions):
        """None: the relaxation is a step of the rule, and so is its bound."""

    @property
    def wants_bound(self) -> bool:
        """Always: the guarantee is about it."""
        return True

    @property
    def integral(self) -> bool:
        """A job has a whole option."""
        return True

    def classes(self, candidates: Candidates) -> Classes:
        """Those of ``gap``, without options that need more than there is: half of one would fit."""
        use = candidates.usage.tocoo()
        over = use.data > candidates.resources.capacity[use.row] * FITS
        drop = np.full(len(candidates.columns), Drop.KEPT, np.uint8)
        drop[use.col[over]] = Drop.OVER_CAPACITY
        return GeneralisedAssignment().classes(candidates.without(drop))

    def build(self, C: Classes) -> AllocationProgram:
        """``gap`` with as much more capacity as the rounding may need."""
        use, largest = C.usage.tocoo(), np.zeros(len(C.capacity))
        np.maximum.at(largest, use.row, use.data)
        return GeneralisedAssignment().build(C.with_capacity(C.capacity + largest))

    def value(self, C: Classes, x: FloatArray) -> float:
        """The cost of an allocation."""
        return self.build(C).objective(x)

    def decide(self, C: Classes, seed: int) -> Deciding:
        """Solve the relaxation and round it."""
        gap = GeneralisedAssignment().build(C)
        of = gap.assignment
        if of is None:
            raise UsageError("gap-rounding: every option must use one resource, its agent; use gap")
        relaxed = yield Auxiliary(replace(gap, integral=False), required=True)
        assert relaxed.x is not None and relaxed.value is not None
        x = of.point(rounded(of, relaxed.x, C), C.columns)
        decision, least = self.decision(C, x), gap.units.objective(relaxed.value)
        # A relaxation in whole numbers costs what its rounding costs. Its sum has another order,
        # and a difference of the last digits would leave a gap that is none.
        rounding = SAME * max(1.0, abs(least))
        bound = decision.value if 0.0 < decision.value - least <= rounding else least
        return decision._replace(bound=(bound, "relaxation"), notes=guarantee(C, x))


def guarantee(C: Classes, x: FloatArray) -> tuple[str, ...]:
    """A note of the guarantee, and of the agents whose capacity an assignment exceeds."""
    excess = C.usage @ x - C.capacity
    beyond = np.flatnonzero(excess > SAME * np.maximum(C.capacity, 1.0))
    if len(beyond) == 0:
        return (f"{AT_MOST_SPLIT}; every agent keeps its capacity, so no assignment costs less",)
    most = beyond[np.argsort(-excess[beyond], kind="stable")][:MOST_NAMED]
    named = [f"{C.resources.names[row]} by {amount(float(excess[row]))}" for row in most.tolist()]
    if len(beyond) > len(most):
        named.append(f"{count(len(beyond) - len(most), 'more agent')}")
    return (f"{AT_MOST_SPLIT}; beyond their capacity: {', '.join(named)}",)


def rounded(of: Assignment, x: FloatArray, C: Classes) -> IntArray:
    """The agent of each job, by the slots; equal jobs share the options of their class equally.

    Parameters
    ----------
    of : Assignment
    x : FloatArray, shape (N,)
        Jobs in each column, which may be split.
    C : Classes
    """
    of_class = owners(C.count.astype(np.int64))
    share = np.where(of.column >= 0, x[of.column], 0.0) / C.count[of_class]
    agent, job = (each.astype(np.int64) for each in np.nonzero(share > NOTHING))
    part = (share / share.sum(axis=0))[agent, job]
    chosen = whole_jobs(part, job, agent, of.use[agent, job], of.cost[agent, job])
    return agent[chosen]
