"""Solve a formulation for jobs of a trace without a scheduler (modes ``fluid`` and ``gavel``)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optsched.arrays import EMPTY, FloatArray, IntArray
from optsched.arrays.columns import Columns
from optsched.arrays.values import replace
from optsched.assembly import compile_for, formulation_for, model_of
from optsched.candidates import Classes, JobRows
from optsched.errors import NoAllocation, UsageError
from optsched.instance import Instance, with_jobs
from optsched.registry import load_solver
from optsched.rounds.policy import RoundPolicy
from optsched.simulation.world import World
from optsched.solvers import Limits
from optsched.solving.engine import Engine


@dataclass(frozen=True)
class TimeShares(Columns):
    """An allocation in job rows of the trace: fractions of time on pools; arrays of length A.

    Attributes
    ----------
    job, partner : IntArray
        The partner shares the GPUs, -1 for none.
    pool, gpus, nodes : IntArray
    share : FloatArray
        Part of each GPU.
    fraction : FloatArray
    rate, partner_rate : FloatArray
        steps/s.
    """

    job: IntArray
    partner: IntArray
    pool: IntArray
    gpus: IntArray
    nodes: IntArray
    share: FloatArray
    fraction: FloatArray
    rate: FloatArray
    partner_rate: FloatArray

    @classmethod
    def none(cls) -> TimeShares:
        zero = np.zeros(0)
        return cls(EMPTY, EMPTY, EMPTY, EMPTY, EMPTY, zero, zero, zero, zero)


class Allocator:
    """Solves the formulation of a policy for some jobs of a trace, at one moment.

    Parameters
    ----------
    instance : Instance
        Of the trace.
    policy : RoundPolicy
    why : str
        The mode of the simulation, for messages.
    classes : bool
        Whether identical jobs are merged into classes.
    """

    def __init__(
        self, instance: Instance, policy: RoundPolicy, why: str, *, classes: bool = True
    ) -> None:
        if policy.ranking is not None:
            raise UsageError(
                f"{why} takes a formulation; {policy.ranking} is a ranking: use mode rounds"
            )
        self.instance = instance
        self.policy = policy
        self.classes = classes
        self._load = load_solver

    def shares(
        self, jobs: IntArray, world: World, isolated_time: FloatArray, now: float
    ) -> TimeShares:
        """The allocation of the jobs at these rows.

        Parameters
        ----------
        jobs : IntArray
            Rows of the trace.
        world : World
            What they have done.
        isolated_time : FloatArray, shape (jobs of the trace,)
            Seconds, as in ``history.isolated_time``.
        now : float
            Seconds.

        Raises
        ------
        NoAllocation
            There is none: the program is infeasible, a limit was hit, or its certificate does not
            hold.
        """
        part = self._part(jobs, world, isolated_time, now)
        policy = self.policy
        formulation = formulation_for(part, policy.formulation, policy.options, policy.constraints)
        candidates = compile_for(formulation, part, model_of(part))
        # Without merged classes the program has other variables, so the solver may return another
        # of several optima.
        candidates = candidates if self.classes else candidates.per_job()
        limits = Limits(
            policy.time_limit,
            policy.work_limit,
            policy.gap,
            threads=policy.threads,
            seed=policy.seed,
        )
        solution = formulation.solve(candidates, Engine(self._load, policy.solver, limits))
        if solution.allocation is None or not solution.certificate.ok:
            why = "; ".join(
                [
                    *(conflict.words for conflict in solution.conflicts),
                    *solution.certificate.problems,
                ]
            )
            raise NoAllocation(
                f"{policy.formulation} at {now:g} s is {solution.status}"
                + (f": {why}" if why else "")
            )
        C = solution.allocation.classes
        rows = solution.allocation.rows
        return _by_trace(rows, jobs, C)

    def _part(
        self, jobs: IntArray, world: World, isolated_time: FloatArray, now: float
    ) -> Instance:
        part = with_jobs(self.instance, jobs)
        table = world.truth.regimes.in_stage(part.jobs_table, jobs, world.stage[jobs])
        table = replace(
            table, steps_done=world.done[jobs], isolated_time=isolated_time[jobs], running={}
        )
        return replace(part, jobs_table=table, now=now)


def _by_trace(rows: JobRows, jobs: IntArray, C: Classes) -> TimeShares:
    nodes, share = (getattr(C.configurations, name)[C.configuration] for name in ("nodes", "share"))
    return TimeShares(
        jobs[rows.job],
        np.where(rows.partner >= 0, jobs[rows.partner], -1),
        C.pool[rows.column],
        C.gpus[rows.column],
        nodes[rows.column],
        share[rows.column],
        rows.fraction,
        rows.rate,
        rows.partner_rate,
    )
