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
    """Sums over jobs of their rates, each as a part of the best rate that the job could have alone.

    Attributes
    ----------
    reached : float
        Of the jobs that run in the round.
    bound : float, optional
        Most that any choice of jobs and GPUs could reach, if jobs ran in fractions and GPUs were
        not on nodes; None where this relaxation has no certified bound.
    """

    reached: float
    bound: float | None

    def __str__(self) -> str:
        most = "" if self.bound is None else f" of at most {number(self.bound)}"
        return f"{number(self.reached)}{most}, in jobs at their best rates"


def throughput_of(classes: Classes, speed: FloatArray) -> Throughput:
    """What a round reaches, and the bound of its relaxation.

        maximise  sum_k sum_c (T_kc / max_c T_kc) x_c    s.t.  time, capacity

    Side constraints, and jobs that cannot be preempted, only lower the maximum: they are left out.

    Parameters
    ----------
    classes : Classes
        Of the jobs that the round was planned for.
    speed : FloatArray, shape (jobs,)
        steps/s of each job; 0 for those that wait.
    """
    best = np.zeros(len(classes) + 1)  # the last entry is for jobs that are in no class
    alone = np.flatnonzero(classes.alone)
    np.maximum.at(best, classes.class_a[alone], classes.rate_a[alone])
    of_job = best[classes.of_job]
    part = quotient(speed, of_job)
    return Throughput(float(part.sum()), _bound(classes.candidates))


def _bound(candidates: Candidates) -> float | None:
    formulation = make_formulation(RELAXATION, {"normalise": "best"})
    try:
        solution = formulation.solve(candidates, Engine(load_solver, "auto", Limits()))
    except OptschedError:  # as where a job has no rate anywhere: a plan is shown all the same
        return None
    return solution.bound if solution.certificate.ok else None
