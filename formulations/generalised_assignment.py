"""Generalised assignment (GAP): every job in one of its options, at the least total cost."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import scipy.sparse as sp

from formulations.all_assigned import jobs_alone, nowhere, refuse_jobs_nowhere
from optsched.arrays import IntArray, mask_of
from optsched.candidates import Candidates, Classes
from optsched.errors import InvalidInput
from optsched.formulation import Formulation
from optsched.program import AllocationProgram, Multiple, SideRows, Total


class GeneralisedAssignment(Formulation):
    """Give every job exactly one of its options at the least total cost; no agent is overloaded.

    Sets
        jobs j, in classes of n_k equal jobs; options i of each (agents that can do it); resources r
        (agents), and GPUs of pools
    Parameters
        c_ij      cost of option i of job j: ``cost`` of the option
        a_ij[r]   what it uses of r;   b_r capacity
    Variables
        x_ij      1: job j has option i (summed over equal jobs)
    Program
        minimise  sum_ij c_ij x_ij
        s.t.      sum_i x_ij = 1                     for every job        (assignment)
                  sum_ij a_ij[r] x_ij <= b_r         for every resource
                  x binary

        The equality is two rows: (assignment) is its lower side, the time of the job its upper side.

    In the generalised assignment problem of the literature an option uses one resource, its agent.
    Options may use several here (multi-resource GAP). Options need no rate. Jobs without options
    are refused, as they have no costs. A job that no option has room for makes the instance
    infeasible. Left out: jobs that have not arrived or have no step left.

    The literature has both senses: costs of types a to e are minimised; pages of OR-Library state
    maxima of the files gap1 to gap12. To maximise, state ``value`` and take ``multiple-choice``,
    which need not assign all.

    References
        G. T. Ross, R. M. Soland, "A branch and bound algorithm for the generalized assignment
        problem", Mathematical Programming 8 (1975); M. Yagiura, T. Ibaraki, F. Glover, "A path
        relinking approach with ejection chains for the generalized assignment problem", EJOR 169
        (2006).
    """

    name = "gap"
    aliases = ("generalised-assignment",)
    also_reads = frozenset({"cost"})
    reads_pairs = False
    sense = "min"
    leaves_idle = True
    objective_words = "total cost"

    @property
    def integral(self) -> bool:
        """A job has a whole option."""
        return True

    def classes(self, candidates: Candidates) -> Classes:
        """Classes with options of rate 0, without columns of two jobs."""
        return super().classes(jobs_alone(candidates))

    def nowhere(self, candidates: Candidates) -> Mapping[int, str]:
        """Jobs that none of their options has room for."""
        return nowhere(self.classes(candidates))

    def build(self, C: Classes) -> AllocationProgram:
        refuse_jobs_nowhere(C, "assignment")
        columns = C.candidates.columns
        generated = C.class_a[columns.option[C.kind_column] < 0]
        if len(generated):
            raise _without_options(C, generated)
        # The program maximises the cost with its sign changed
        cost = sp.csr_matrix(
            (-columns.cost[C.kind_column], (C.class_a, np.arange(C.columns))),
            shape=(len(C), C.columns),
        )
        assignment = SideRows(
            name="assignment",
            matrix=C.member,
            lower=C.count.astype(np.float64),
            upper=np.full(len(C), np.inf),
            describe=partial(_must_be_assigned, C),
        )
        return AllocationProgram(
            C,
            Total(np.ones(len(C))),
            cost,
            side=(assignment,),
            integral=True,
            units=Multiple(-1.0),
        )


def _must_be_assigned(C: Classes, k: int) -> str:
    return f"{C.job_name(k)} must have one of its options"


def _without_options(C: Classes, k: IntArray) -> InvalidInput:
    """The error of jobs, of the classes ``k``, that state no options."""
    job = int(C.first[k[0]])
    name = C.instance.jobs_table.names[job]
    return InvalidInput(
        f"jobs[{job}].options", f"none (job {name!r})", "options with their costs"
    ).of_jobs(C.jobs_among(mask_of(k, len(C))))
