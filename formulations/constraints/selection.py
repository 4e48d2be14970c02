"""Jobs that a side constraint speaks of: named by id, by tenant, by workload, or all."""

from __future__ import annotations

import numpy as np

from formulations.constraints.names import Names, job_rows, of_tenant, workload_row
from optsched.arrays import BoolArray, IntArray
from optsched.formulation import ConstraintOptions, SideConstraint
from optsched.instance import Instance


class JobSelection(ConstraintOptions):
    """Options that select jobs:
    those that agree with all that is given, every job where nothing is.
    """

    jobs: Names | None = None
    tenant: str | None = None
    workload: str | None = None


class OfJobs(SideConstraint):
    """A constraint on selected jobs."""

    also_reads = frozenset({"tenant"})
    options: JobSelection

    def check(self, instance: Instance) -> None:
        """The jobs must exist."""
        self.selected(instance)

    def labels(self, instance: Instance) -> IntArray:
        """Whether a job is selected."""
        return self.selected(instance).astype(np.int64)

    def selected(self, instance: Instance) -> BoolArray:
        """Mask of the jobs, shape (jobs,);
        raises `UsageError` for a name that the instance does not have.
        """
        table, options = instance.jobs_table, self.options
        mask = np.ones(len(table), bool)
        if options.jobs is not None:
            mask[:] = False
            mask[job_rows(self.kind, options.jobs, instance)] = True
        if options.tenant is not None:
            mask &= of_tenant(self.kind, options.tenant, instance)
        if options.workload is not None:
            mask &= table.workload == workload_row(self.kind, options.workload, instance)
        return mask
