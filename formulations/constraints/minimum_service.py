"""Minimum service: every job runs at least so much."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import numpy as np
import scipy.sparse as sp
from pydantic import Field, model_validator

from formulations.constraints.selection import JobSelection, OfJobs
from formulations.isolated import Isolated
from optsched.arrays import FloatArray, IntArray
from optsched.candidates import Absence, Classes
from optsched.formulation import Infeasible
from optsched.instance.documents import refused
from optsched.instance.reading import show
from optsched.program import SideRows
from optsched.solution import Conflict


class MinimumService(OfJobs):
    """Every job runs at least a fraction of the time, or at a fraction of its isolated throughput.

    With a the fraction, for every class k of the jobs:

        of=time       sum_c member_kc x_c  >=  n_k a                                 (minimum-service)
        of=isolated   sum_c T_kc x_c       >=  n_k a iso_k

    iso_k is the throughput of class k in steps/s under `formulations.isolated`. a <= 1 of it is
    feasible without other constraints; a = 1 is the sharing incentive. A job named by ``jobs`` that
    can run nowhere makes the instance infeasible. Of other jobs that can run nowhere nothing is
    asked: they are ``unplaced``, with the reason.

    Options
        fraction   a; of the time at most 1.
        of         ``time`` or ``isolated``.
        jobs       ids of the jobs.
        tenant     their tenant; without jobs, tenant and workload: all jobs.
        workload   their workload.

    References
        A. Ghodsi et al., "Dominant Resource Fairness", NSDI 2011, section 3 (sharing incentive); D.
        Narayanan et al., OSDI 2020, section 4.4.
    """

    kind = "minimum-service"
    declinable = True

    class Options(JobSelection):
        """Options of the minimum service."""

        fraction: Annotated[float, Field(gt=0.0, le=1e6, allow_inf_nan=False)]
        of: Literal["time", "isolated"] = "time"

        @model_validator(mode="after")
        def _within_time(self) -> MinimumService.Options:
            if self.of == "time" and self.fraction > 1.0:
                raise refused(show(self.fraction), "at most 1, all the time", ".fraction")
            return self

    options: Options

    def rows(self, C: Classes) -> SideRows | None:
        impossible = [conflict for _, conflict in self.impossible(C)]
        if impossible:
            raise Infeasible(impossible)
        k, a = np.flatnonzero(C.common(self.selected(C.instance))), self.options.fraction
        k = k[~self.declines(C.first[k])]
        if len(k) == 0:
            return None
        matrix, unit = C.member, np.ones(len(C))
        if self.options.of == "isolated":
            # Isolated throughput of one job of each class.
            matrix, unit = C.throughput, np.asarray(C.throughput @ Isolated().totals(C)) / C.count
        lower = C.count[k] * a * unit[k] * self.asked_of(C, k)
        return SideRows(
            name="minimum-service",
            matrix=sp.csr_matrix(matrix[k]),
            lower=lower,
            upper=np.full(len(k), np.inf),
            describe=partial(self._words, C, k, unit[k]),
            of_class=k,
        )

    def impossible(self, C: Classes) -> list[tuple[int, Conflict]]:
        """Jobs that are named but can run nowhere."""
        if self.options.jobs is None:
            return []
        lost = self.selected(C.instance) & (C.candidates.absence == Absence.NO_COLUMN)
        jobs = np.flatnonzero(lost)
        names, kinds = C.instance.jobs_table.names, C.candidates.kinds
        return [
            (
                job,
                Conflict(
                    self.kind,
                    -1,
                    f"job {names[job]} runs at least {self._amount()} (minimum-service), but "
                    f"{C.candidates.why_no_column(int(kinds.of_job[job]))}",
                ),
            )
            for job in jobs[~self.declines(jobs)].tolist()
        ]

    def _amount(self) -> str:
        percent = f"{100 * self.options.fraction:g} %"
        return (
            f"{percent} of the time"
            if self.options.of == "time"
            else f"at {percent} of its isolated throughput"
        )

    def _words(self, C: Classes, of_row: IntArray, unit: FloatArray, row: int) -> str:
        k = int(of_row[row])
        each = " each" if C.count[k] > 1 else ""
        if self.options.of == "time":
            return (
                f"{C.job_name(k)} must run {100 * self.options.fraction:g} % of the time{each} "
                "(minimum-service)"
            )
        pace = self.options.fraction * float(unit[row])
        return (
            f"{C.job_name(k)} must make {pace:.4g} steps/s{each}, "
            f"{100 * self.options.fraction:g} % of its isolated "
            "throughput (minimum-service)"
        )
