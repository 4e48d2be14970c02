"""What is known of restarts of jobs: who has run before, and who still restores its state."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from optsched.arrays import BoolArray, FloatArray
from optsched.instance import Instance


class Restarts(NamedTuple):
    """What plans of jobs that stop and start again need to know.

    Attributes
    ----------
    ran : BoolArray, shape (jobs,)
        Jobs that have run before: their next start costs a restart.
    restoring : FloatArray, shape (jobs,)
        Seconds until a running job makes progress if it goes on as it runs.
    """

    ran: BoolArray
    restoring: FloatArray

    @classmethod
    def of(cls, instance: Instance) -> Restarts:
        """What an instance says: jobs that run, and those with steps done, have run before."""
        table = instance.jobs_table
        ran = table.steps_done > 0
        ran[table.places.job] = True
        return cls(ran, np.zeros(len(ran)))
