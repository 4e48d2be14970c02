"""What plans of jobs that stop and start again know: restarts, and the plan before."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.instance import Instance
from optsched.instance.staying import Running, held_for


class Stretches(NamedTuple):
    """When jobs were planned to run, in numbers that outlive a compile; arrays of length S.

    Attributes
    ----------
    job : IntArray
        Row of the job table.
    label : IntArray, shape (S, `LABELS`)
        How it runs (`Classes.configuration_labels`).
    start, end : FloatArray
        Absolute seconds.
    """

    job: IntArray
    label: IntArray
    start: FloatArray
    end: FloatArray


class Restarts(NamedTuple):
    """What plans of jobs that stop and start again need to know.

    Attributes
    ----------
    ran : BoolArray, shape (jobs,)
        Jobs that have run before: their next start costs a restart.
    restoring : FloatArray, shape (jobs,)
        Seconds until a running job makes progress if it goes on as it runs; NaN if it cannot, as
        its nodes are down or take no more work.
    held : FloatArray, shape (jobs,)
        Seconds for which a running job keeps its GPUs (`held_for`).
    planned : Stretches, optional
        The plan of the last round.
    in_rounds : bool
        Whether jobs that the plan has no place for may run on GPUs that it leaves idle.
    """

    ran: BoolArray
    restoring: FloatArray
    held: FloatArray
    planned: Stretches | None = None
    in_rounds: bool = False

    @classmethod
    def of(cls, instance: Instance) -> Restarts:
        """What an instance says: jobs that run, and those with steps done, have run before."""
        table = instance.jobs_table
        ran = table.steps_done > 0
        ran[table.places.job] = True
        running = Running.of(instance)
        held = held_for(instance)
        return cls(ran, np.zeros(len(ran)), held).moving(running.barred & np.isfinite(held))

    def moving(self, jobs: BoolArray) -> Restarts:
        """The same where these running jobs cannot go on where they are."""
        return self._replace(restoring=np.where(jobs, np.nan, self.restoring))

    def preemptible(self, instance: Instance) -> BoolArray:
        """Jobs that may be preempted, if only after their exempt time; shape (jobs,)."""
        exempt = (self.held > 0) & np.isfinite(self.held)
        return np.asarray(instance.jobs_table.preemptible | exempt)
