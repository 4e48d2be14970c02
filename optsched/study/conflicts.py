"""Which jobs cannot all meet their deadlines, with none that could be left out.

The linear program of `deadline-fluid` that says by how much jobs fall short at least is loaded
once. A job is left out by its cost, and the solver goes on from its last basis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Self

import numpy as np

from optsched.arrays import BoolArray, IntArray
from optsched.assembly import compile_for, make_formulation
from optsched.instance import Instance
from optsched.instance.durations import Timer
from optsched.program import Block, LinearArrays
from optsched.registry import load_solver
from optsched.solution.plan import LinearPlan
from optsched.solution.values import Termination
from optsched.solvers import Limits

FLUID = "deadline-fluid"
MISSED = 1e-6
"""Part of a job that must be shown to miss its deadline: less is rounding."""
NO_PRICE = 1e-9
"""Duals below this are rounding."""

Proof = Callable[[BoolArray], BoolArray | None]
"""Jobs (a mask) -> those that a proof rests on that not all of them can be in time; None
without."""


class StoppedEarly(Exception):
    """The solver stopped before it had an answer."""


def irreducible(proof: Proof, stays: BoolArray) -> tuple[BoolArray, bool]:
    """Jobs of which none can be left out, but for those that stay, of jobs that cannot all be in
    time.

    A deletion filter (J. W. Chinneck, "Feasibility and Infeasibility in Optimization", 2008): later
    jobs are left out first, and with each all that the new proof does not need.

    Parameters
    ----------
    proof : callable
    stays : BoolArray, shape (jobs,)

    Returns
    -------
    asked : BoolArray
    done : bool
        Whether each was tried; otherwise the time was over.
    """
    asked = np.ones(len(stays), bool)
    try:
        for job in np.flatnonzero(~stays)[::-1].tolist():
            if asked[job]:
                fewer = asked.copy()
                fewer[job] = False
                needed = proof(fewer)
                asked = asked if needed is None else needed | stays
    except StoppedEarly:
        return asked, False
    return asked, True


class Shortfall:
    """By how much jobs fall short of their deadlines at least, together: a `Proof`.

    Parameters
    ----------
    arrays : LinearArrays
        Minimises the number of jobs less the sum of columns in [0, 1], one for each job.
    work : IntArray, shape (jobs,)
        A row of each job, in which it does its work: its dual is 0 where a proof needs no such job.
    solver : str
    limits : Limits
    timer : Timer
        Of all runs together.
    """

    def __init__(
        self, arrays: LinearArrays, work: IntArray, solver: str, limits: Limits, timer: Timer
    ) -> None:
        self.arrays, self.work = arrays, work
        self._how = solver, limits, timer
        self._in_time = np.flatnonzero(arrays.cost)
        self._session = load_solver(solver)().open(arrays)

    @classmethod
    def of(
        cls, instance: Instance, solver: str, limits: Limits, timer: Timer
    ) -> tuple[Self | None, IntArray]:
        """That of an instance, and the rows of its jobs; None where the program has more or
        fewer rows of work than jobs: some job has several deadlines, or no way to run.
        """
        formulation = make_formulation(FLUID, {"schedule": False})
        C = formulation.classes(compile_for(formulation, instance).per_job())
        plan = formulation.build(C)
        assert isinstance(plan, LinearPlan)
        arrays = plan.program.arrays
        work = np.arange(arrays.shape[0])[next(b.slice for b in arrays.rows if b.name == "work")]
        if not len(work) == np.count_nonzero(arrays.cost) == len(C):
            return None, C.first
        return cls(arrays, work, solver, limits, timer), C.first

    def __call__(self, asked: BoolArray) -> BoolArray | None:
        _, limits, timer = self._how
        left = None if timer.seconds is None else timer.left
        if left is not None and left <= 0:
            raise StoppedEarly
        cost = np.zeros(len(self.arrays.cost))
        cost[self._in_time] = -1.0 * asked
        self._session.set_cost(cost)
        values = self._session.run(replace(limits, time=left))
        if values.termination is not Termination.OPTIMAL or values.objective is None:
            raise StoppedEarly
        if values.objective - np.count_nonzero(~asked) <= MISSED or values.y is None:
            return None
        return np.asarray(asked & (np.abs(values.y[self.work]) > NO_PRICE))

    def only(self, some: BoolArray) -> Shortfall:
        """That of some jobs, with their rows and columns alone."""
        arrays, by_rows = self.arrays, self.arrays.by_rows
        of_some = by_rows[self.work[some]].tocsc()
        column = np.flatnonzero(np.diff(of_some.indptr))
        rows = np.flatnonzero(np.diff(by_rows[:, column].indptr))
        smaller = replace(
            arrays,
            A=by_rows[rows][:, column].tocsc(),
            row_lower=arrays.row_lower[rows],
            row_upper=arrays.row_upper[rows],
            lower=arrays.lower[column],
            upper=arrays.upper[column],
            cost=arrays.cost[column],
            integer=arrays.integer[column],
            implied_lower=arrays.implied_lower[column],
            implied_upper=arrays.implied_upper[column],
            offset=float(np.count_nonzero(some)),
            rows=(Block("rows", 0, len(rows)),),
            columns=(Block("columns", 0, len(column)),),
        )
        return Shortfall(smaller, np.searchsorted(rows, self.work[some]), *self._how)
