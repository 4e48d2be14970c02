"""Job documents to columns, chunk by chunk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optsched.arrays import AnyArray, condensed
from optsched.errors import InvalidInput
from optsched.instance.cluster import Cluster, Tenant
from optsched.instance.documents import JobDocument
from optsched.instance.interning import OptionInterner, RateInterner
from optsched.instance.reading import listed, show, validate_chunks
from optsched.instance.references import NOWHERE, check_running, resolve_predecessors
from optsched.instance.tables import ARRAY_FIELDS, DTYPES, JobNames, JobTable, Workload


class JobColumns:
    """Gathers jobs into one list per field; `read` makes the `JobTable`.

    A workload that no table defines is a mere label of jobs that bring their own rates; ``labels`` collects those that
    are new. Jobs that are to join others (``elsewhere``) must not have their ids, and may come after them.
    """

    def __init__(
        self,
        now: float,
        cluster: Cluster,
        workloads: Sequence[Workload],
        tenants: Sequence[Tenant],
        rates: RateInterner,
        elsewhere: JobNames = NOWHERE,
        path: str = "jobs",
    ) -> None:
        self._path = path
        self._default_arrival = min(0.0, now)
        self._cluster = cluster
        self._workload_rows = {workload.name: row for row, workload in enumerate(workloads)}
        self._labels = {workload.name for workload in workloads if workload.label}
        self._tenant_rows = {tenant.name: row for row, tenant in enumerate(tenants)}
        self._rates = rates
        self._elsewhere = elsewhere
        self.options = OptionInterner(cluster)
        self.labels: list[str] = []
        self._columns: dict[str, list[np.ndarray]] = {name: [] for name in ARRAY_FIELDS}
        self._rows: dict[str, int] = {}
        self._level_rows: dict[tuple[int, ...], int] = {}
        self._running: dict[int, tuple[int, tuple[str, ...], float | None]] = {}
        self._after: dict[int, tuple[str, ...]] = {}

    def read(self, documents: object) -> JobTable:
        """The table of a list of job documents; raises `InvalidInput`."""
        if not isinstance(documents, list | tuple):
            raise InvalidInput(self._path, show(documents), "a list of jobs")
        for start, chunk in validate_chunks(JobDocument, documents, self._path):
            self._extend(chunk, start)
        return self._finish()

    def _extend(self, jobs: Sequence[JobDocument], start: int) -> None:
        """Add a chunk whose first job is number ``start`` of the documents."""
        rows = self._rows
        gpus: list[tuple[int, int, int]] = []
        workload: list[int] = []
        rates: list[int] = []
        options: list[int] = []
        tenants: list[int] = []
        for number, job in enumerate(jobs, start):
            path = f"{self._path}[{number}]"
            if rows.setdefault(job.id, number) != number or job.id in self._elsewhere:
                raise InvalidInput(f"{path}.id", f"{show(job.id)} a second time", "ids that differ")
            gpus.append(self._gpus(job, path))
            workload.append(self._workload(job, path))
            rates.append(
                -1
                if job.throughput is None
                else self._rates.add(job.throughput, f"{path}.throughput")
            )
            options.append(
                -1 if job.options is None else self.options.add(job.options, f"{path}.options")
            )
            tenants.append(-1 if job.tenant is None else self._tenant(job.tenant, path))
            if job.running is not None:
                self._running[number] = check_running(job.running, self._cluster, f"{path}.running")
            if job.after:
                self._after[number] = job.after
        infinity = float("inf")
        put = self._put
        put("workload", workload)
        put("rates", rates)
        put("options", options)
        put("tenant", tenants)
        put("gpus_min", [g[0] for g in gpus])
        put("gpus_max", [g[1] for g in gpus])
        put("levels", [g[2] for g in gpus])
        put("steps", [job.steps for job in jobs])
        put("steps_done", [job.steps_done for job in jobs])
        put("weight", [job.weight for job in jobs])
        put(
            "arrival",
            [self._default_arrival if job.arrival is None else job.arrival for job in jobs],
        )
        put("deadline", [infinity if job.deadline is None else job.deadline for job in jobs])
        put(
            "soft_deadline",
            [job.deadline is not None and job.deadline_kind == "soft" for job in jobs],
        )
        put("preemptible", [job.preemptible for job in jobs])
        put("restart_cost", [job.restart_cost for job in jobs])
        put(
            "isolated_time",
            [0.0 if job.history is None else job.history.isolated_time for job in jobs],
        )

    def _put(self, name: str, values: Sequence[object]) -> None:
        column: AnyArray = np.array(values, DTYPES[ARRAY_FIELDS[name]])
        # Turns -0.0 into 0.0.
        self._columns[name].append(column + 0.0 if column.dtype == np.float64 else column)

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

    def _finish(self) -> JobTable:
        """The table; predecessors are resolved now that all ids are known."""
        arrays = {
            name: condensed(np.concatenate(parts))
            if parts
            else np.zeros(0, DTYPES[ARRAY_FIELDS[name]])
            for name, parts in self._columns.items()
        }
        names = JobNames(len(self._rows), tuple(self._rows))
        after, awaits = resolve_predecessors(self._after, names, self._elsewhere, self._path)
        return JobTable(
            names=names,
            level_lists=tuple(self._level_rows),
            running=self._running,
            after=after,
            awaits=awaits,
            **arrays,
        )
