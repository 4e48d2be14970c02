"""The throughput that a round reaches, and a bound on what any round could."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from optsched.arrays import FloatArray, quotient
from optsched.assembly import make_formulation
from optsched.candidates import Candidates, Classes
from optsched.display import number
from optsched.errors import OptschedError
from optsched.registry import load_solver
from optsched.solvers import Limits
from optsched.solving.engine import Engine

RELAXATION = "max-throughput"
"""The formulation whose certified bound is that of the relaxation."""


class Throughput(NamedTuple):
    """Sum over jobs of their rates, each relative to the best rate of the job alone.

    Attributes
    ----------
    reached : float
        The sum over the jobs that run in the round.
    bound : float, optional
        Upper bound on this sum for any choice of jobs and GPUs: the optimum with fractions of jobs,
        and without nodes. None if this relaxation has no certified bound.
    """

    reached: float
    bound: float | None

    def __str__(self) -> str:
        most = "" if self.bound is None else f" of at most {number(self.bound)}"
        return f"{number(self.reached)}{most}, in jobs at their best rates"


def throughput_of(classes: Classes, speed: FloatArray) -> Throughput:
    """The throughput of a round, and the bound of its relaxation.

        maximise  sum_k sum_c (T_kc / max_c T_kc) x_c    s.t.  time, capacity

    Side constraints, and jobs that cannot be preempted, only lower the maximum, so they can be left
    out.

    Parameters
    ----------
    classes : Classes
        The classes of the round's jobs.
    speed : FloatArray, shape (jobs,)
        steps/s of each job; 0 for those that wait.
    """
    best = np.zeros(len(classes) + 1)  # the last entry is for jobs in no class
    alone = classes.alone.nonzero()[0]
    np.maximum.at(best, classes.class_a[alone], classes.rate_a[alone])
    of_job = best[classes.of_job]
    part = quotient(speed, of_job)
    return Throughput(float(part.sum()), _bound(classes.candidates))


def _bound(candidates: Candidates) -> float | None:
    formulation = make_formulation(RELAXATION, {"normalise": "best"})
    try:
        solution = formulation.solve(candidates, Engine(load_solver, "auto", Limits()))
    except OptschedError:  # for example, a job has no rate on any pool: the plan has no bound then
        return None
    return solution.bound if solution.certificate.ok else None
