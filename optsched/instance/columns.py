"""Job documents to columns, chunk by chunk."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optsched.arrays import AnyArray, condensed
from optsched.errors import InvalidInput
from optsched.instance.cluster import Cluster, Tenant
from optsched.instance.documents import JobDocument
from optsched.instance.interning import OptionInterner, RateInterner
from optsched.instance.rates import OWN_GANG
from optsched.instance.reading import CHUNK, listed, show, validate_chunks
from optsched.instance.references import NOWHERE, check_running, resolve_predecessors
from optsched.instance.running import Place
from optsched.instance.tables import ARRAY_FIELDS, DTYPES, JobNames, JobTable, Workload


@dataclass(repr=False, eq=False)
class CheckedJobs:
    """Jobs whose fields and references are right, as lists: what `JobColumns.add` takes.

    Attributes
    ----------
    ids : dict of str to int
        Id of each job, with its place among these.
    columns : dict of str to list
        By names of `ARRAY_FIELDS`.
    running : dict
        `JobTable.running`, by places among these.
    after : dict of int to tuple of str
        Names of predecessors, by places among these.
    """

    ids: dict[str, int] = field(default_factory=dict)
    columns: dict[str, list[Any]] = field(default_factory=dict)
    running: dict[int, Place] = field(default_factory=dict)
    after: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)


class JobColumns:
    """Gathers jobs into one column per field, for the `JobTable` of all of them.

    A workload that no table defines is a mere label of jobs that bring their own rates; ``labels``
    collects those that are new. Jobs that are to join others must not have an id that is ``taken``.
    """

    def __init__(
        self,
        now: float,
        cluster: Cluster,
        workloads: Sequence[Workload],
        tenants: Sequence[Tenant],
        rates: RateInterner,
        taken: Container[str] = frozenset(),
        path: str = "jobs",
    ) -> None:
        self._path = path
        self._default_arrival = min(0.0, now)
        self._cluster = cluster
        self._workload_rows = {workload.name: row for row, workload in enumerate(workloads)}
        self._labels = {workload.name for workload in workloads if workload.label}
        self._tenant_rows = {tenant.name: row for row, tenant in enumerate(tenants)}
        self.rates = rates
        self._taken = taken
        self.options = OptionInterner(cluster)
        self.labels: list[str] = []
        self.rows: dict[str, int] = {}
        self._lists: dict[str, list[Any]] = {name: [] for name in ARRAY_FIELDS}
        self._arrays: dict[str, list[AnyArray]] = {name: [] for name in ARRAY_FIELDS}
        self._level_rows: dict[tuple[int, ...], int] = {}
        self._running: dict[int, Place] = {}
        self._after: dict[int, tuple[str, ...]] = {}

    def read(self, documents: object, elsewhere: JobNames = NOWHERE) -> JobTable:
        """The table of a list of job documents; raises `InvalidInput`."""
        if not isinstance(documents, list | tuple):
            raise InvalidInput(self._path, show(documents), "a list of jobs")
        for start, chunk in validate_chunks(JobDocument, documents, self._path):
            self.add(self.checked(chunk, start))
        return self.table(elsewhere)

    def checked(self, jobs: Sequence[JobDocument], start: int = 0) -> CheckedJobs:
        """Check what jobs say of other objects, and add none of them yet.

        Parameters
        ----------
        jobs : sequence of JobDocument
        start : int
            Number of the first one in its list of documents, for messages.

        Raises
        ------
        InvalidInput
            Profiles, labels and lists of options or levels that were met before it stay known. They
            do no harm: what no job uses is dropped when jobs join others (`compaction`).
        """
        found = CheckedJobs()
        gpus = []
        workload = []
        rates = []
        options = []
        tenants = []
        for place, job in enumerate(jobs):
            path = f"{self._path}[{start + place}]"
            if job.id in found.ids or job.id in self.rows or job.id in self._taken:
                raise InvalidInput(f"{path}.id", f"{show(job.id)} a second time", "ids that differ")
            found.ids[job.id] = place
            gpus.append(self._gpus(job, path))
            workload.append(self._workload(job, path))
            rates.append(
                -1
                if job.throughput is None
                else self.rates.add(job.throughput, f"{path}.throughput")
            )
            options.append(
                -1 if job.options is None else self.options.add(job.options, f"{path}.options")
            )
            tenants.append(-1 if job.tenant is None else self._tenant(job.tenant, path))
            if job.running is not None:
                found.running[place] = check_running(job.running, self._cluster, f"{path}.running")
            if job.after:
                found.after[place] = job.after
        # Rules over several fields come last, as `check_jobs` has them for jobs that are arrays.
        for place, job in enumerate(jobs):
            self._check_rules(job, gpus[place], start + place)
        infinity = float("inf")
        found.columns = {
            "workload": workload,
            "rates": rates,
            "options": options,
            "tenant": tenants,
            "gpus_min": [least for least, _, _ in gpus],
            "gpus_max": [most for _, most, _ in gpus],
            "levels": [levels for _, _, levels in gpus],
            "steps": [job.steps for job in jobs],
            "steps_done": [job.steps_done for job in jobs],
            "weight": [job.weight for job in jobs],
            "arrival": [self._arrival(job) for job in jobs],
            "deadline": [infinity if job.deadline is None else job.deadline for job in jobs],
            "soft_deadline": [
                job.deadline is not None and job.deadline_kind == "soft" for job in jobs
            ],
            "preemptible": [job.preemptible for job in jobs],
            "restart_cost": [job.restart_cost for job in jobs],
            "exempt_time": [job.exempt_time for job in jobs],
            "checkpoint_interval": [job.checkpoint_interval for job in jobs],
            "isolated_time": [
                0.0 if job.history is None else job.history.isolated_time for job in jobs
            ],
        }
        return found

    def _arrival(self, job: JobDocument) -> float:
        return self._default_arrival if job.arrival is None else job.arrival

    def _check_rules(self, job: JobDocument, gpus: tuple[int, int, int], row: int) -> None:
        if job.deadline is not None and job.deadline < self._arrival(job):
            raise InvalidInput(
                f"{self._path}[{row}].deadline",
                f"{job.deadline:g}, before the arrival {self._arrival(job):g} (job {show(job.id)})",
                "a deadline not before the arrival",
            )
        least, most, _ = gpus
        if least < most and any(count == OWN_GANG for _, count, _, _ in job.throughput or ()):
            raise InvalidInput(
                f"{self._path}[{row}].throughput",
                f"a plain number in an elastic job (job {show(job.id)})",
                'rates by GPU count such as {"1": 9}',
            )

    def add(self, jobs: CheckedJobs) -> None:
        """Take in jobs that were checked after all that were added before."""
        start = len(self.rows)
        self.rows |= {name: start + place for name, place in jobs.ids.items()}
        self._running |= {start + place: held for place, held in jobs.running.items()}
        self._after |= {start + place: names for place, names in jobs.after.items()}
        for name, values in jobs.columns.items():
            self._lists[name] += values
        # Numbers in arrays take a quarter of the memory, and arrays are slow to make one by one.
        if len(self._lists["steps"]) >= CHUNK:
            self._to_arrays()

    def _to_arrays(self) -> None:
        for name, values in self._lists.items():
            column: AnyArray = np.array(values, DTYPES[ARRAY_FIELDS[name]])
            # Turns -0.0 into 0.0.
            column = column + 0.0 if column.dtype == np.float64 else column
            self._arrays[name].append(column)
            values.clear()

    def _gpus(self, job: JobDocument, path: str) -> tuple[int, int, int]:
        gpus = job.gpus
        if isinstance(gpus, int):
            return gpus, gpus, -1
        if gpus.min > gpus.max:
            raise InvalidInput(
                f"{path}.gpus", f"min {gpus.min} above max {gpus.max}", "min at most max"
            )
        if gpus.levels is None:
            return gpus.min, gpus.max, -1
        levels = tuple(sorted(set(gpus.levels)))
        if len(levels) < len(gpus.levels) or levels[0] < gpus.min or levels[-1] > gpus.max:
            raise InvalidInput(
                f"{path}.gpus.levels",
                show(list(gpus.levels)),
                f"different counts from {gpus.min} to {gpus.max}",
            )
        return gpus.min, gpus.max, self._level_rows.setdefault(levels, len(self._level_rows))

    def _workload(self, job: JobDocument, path: str) -> int:
        brings_own = job.throughput is not None or job.options is not None
        if job.workload is None:
            if not brings_own:
                raise InvalidInput(path, "no workload, throughput or options", "one of them")
            return -1
        row = self._workload_rows.get(job.workload)
        if not brings_own and (row is None or job.workload in self._labels):
            raise InvalidInput(
                f"{path}.workload",
                show(job.workload),
                "one of the workloads, or a throughput of the job's own",
            )
        if row is None:
            row = self._workload_rows[job.workload] = len(self._workload_rows)
            self._labels.add(job.workload)
            self.labels.append(job.workload)
        return row

    def _tenant(self, tenant: str, path: str) -> int:
        if tenant not in self._tenant_rows:
            known = listed(self._tenant_rows) or "(the instance has none)"
            raise InvalidInput(f"{path}.tenant", show(tenant), f"one of the tenants {known}")
        return self._tenant_rows[tenant]

    def table(self, elsewhere: JobNames = NOWHERE) -> JobTable:
        """All that was added; predecessors may be among the jobs ``elsewhere``."""
        self._to_arrays()
        arrays = {name: condensed(np.concatenate(parts)) for name, parts in self._arrays.items()}
        names = JobNames(len(self.rows), tuple(self.rows))
        after, awaits = resolve_predecessors(self._after, names, elsewhere, self._path)
        return JobTable(
            names=names,
            level_lists=tuple(self._level_rows),
            running=dict(self._running),
            after=after,
            awaits=awaits,
            **arrays,
        )
