"""Jobs that a side constraint speaks of: named by id, by tenant, by workload, or all."""

from __future__ import annotations

import numpy as np

from formulations.constraints.names import Names, job_rows, tenant_row, workload_row
from optsched.arrays import BoolArray
from optsched.formulation import ConstraintOptions
from optsched.instance import Instance


class JobSelection(ConstraintOptions):
    """Options that select jobs:
    those that agree with all that is given, every job where nothing is.
    """

    jobs: Names | None = None
    tenant: str | None = None
    workload: str | None = None

    @property
    def everybody(self) -> bool:
        """Whether no job is left out."""
        return self.jobs is None and self.tenant is None and self.workload is None


def selected(kind: str, chosen: JobSelection, instance: Instance) -> BoolArray:
    """Mask of the jobs, shape (jobs,);
    raises `UsageError` for a name that the instance does not have.
    """
    table = instance.jobs_table
    mask = np.ones(len(table), bool)
    if chosen.jobs is not None:
        mask[:] = False
        mask[job_rows(kind, chosen.jobs, instance)] = True
    if chosen.tenant is not None:
        mask &= table.tenant == tenant_row(kind, chosen.tenant, instance)
    if chosen.workload is not None:
        mask &= table.workload == workload_row(kind, chosen.workload, instance)
    return mask
