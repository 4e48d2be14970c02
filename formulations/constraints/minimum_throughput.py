"""Minimum throughput: some jobs together make at least so many steps per second."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from formulations.constraints.holdings import sum_row
from formulations.constraints.selection import JobSelection, OfJobs
from optsched.candidates import Classes
from optsched.formulation import Infeasible
from optsched.program import SideRows
from optsched.solution import Conflict


class MinimumThroughput(OfJobs):
    """Some jobs together make at least so many steps per second: the demand of a service.

    The jobs are replicas of the service, of which as many run as are needed. With K the classes of
    these jobs and d the rate:

        sum_{k in K} sum_c T_kc x_c  >=  d                                    (minimum-throughput)

    With whole jobs (``integral``, `mig-pack`) this is a covering row with integer counts: the
    fewest or cheapest replicas that carry the demand.

    Options
        rate       d, steps/s (of a service requests/s, if a step is a request).
        jobs       ids of the jobs.
        tenant     their tenant; without jobs, tenant and workload: all jobs.
        workload   their workload.

    References
        The covering rows of C. Tan et al., "Serving DNN Models with Multi-Instance GPUs: A Case of
        the Reconfigurable Machine Scheduling Problem", arXiv:2109.11067.
    """

    kind = "minimum-throughput"
    of_sums = True

    class Options(JobSelection):
        """Options of the minimum throughput."""

        rate: Annotated[float, Field(gt=0.0, le=1e100, allow_inf_nan=False)]

    options: Options

    def rows(self, C: Classes) -> SideRows:
        selected = C.common(self.selected(C.instance))
        words = (
            f"{self._who()} must make {self.options.rate:g} steps/s together (minimum-throughput)"
        )
        row = sum_row(self.kind, C.throughput.T @ (selected * 1.0), words, least=self.options.rate)
        if row is None:
            raise Infeasible([Conflict(self.kind, 0, f"{words}, but none of them can run")])
        return row

    def _who(self) -> str:
        chosen = self.options
        if chosen.jobs is not None:
            named = ", ".join(chosen.jobs[:3]) + (", ..." if len(chosen.jobs) > 3 else "")
            return f"the jobs {named}"
        parts = [f"of workload {chosen.workload}"] if chosen.workload is not None else []
        parts += [f"of tenant {chosen.tenant}"] if chosen.tenant is not None else []
        return " ".join(["the jobs", *parts]) if parts else "all jobs"
