"""Job documents to columns, chunk by chunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from optsched.arrays import AnyArray
from optsched.errors import InvalidInput
from optsched.instance.cluster import Cluster
from optsched.instance.documents import JobDocument
from optsched.instance.interning import OptionInterner, RateInterner
from optsched.instance.job_references import check_running, resolve_predecessors
from optsched.instance.reading import listed, show
from optsched.instance.tables import ARRAY_FIELDS, JobNames, JobTable

DTYPES = {"i": np.int64, "f": np.float64, "b": np.bool_}


class JobColumns:
    """Gathers jobs into one list per field; `finish` makes the `JobTable`.

    A workload that no table defines is a mere label of jobs that bring their own rates; ``labels`` collects those.
    """

    def __init__(
        self,
        now: float,
        cluster: Cluster,
        workload_rows: Mapping[str, int],
        tenant_rows: Mapping[str, int],
        rates: RateInterner,
        options: OptionInterner,
    ) -> None:
        self._default_arrival = min(0.0, now)
        self._cluster = cluster
        self._workload_rows = dict(workload_rows)
        self._defined = frozenset(workload_rows)
        self._tenant_rows = tenant_rows
        self._rates = rates
        self.options = options
        self.labels: list[str] = []
        self._columns: dict[str, list[np.ndarray]] = {name: [] for name in ARRAY_FIELDS}
        self._rows: dict[str, int] = {}
        self._level_rows: dict[tuple[int, ...], int] = {}
        self._running: dict[int, tuple[int, tuple[str, ...], float | None]] = {}
        self._after: dict[int, tuple[str, ...]] = {}

    def extend(self, jobs: Sequence[JobDocument], start: int) -> None:
        """Add a chunk whose first job is number ``start`` of the document."""
        rows = self._rows
        gpus: list[tuple[int, int, int]] = []
        workload: list[int] = []
        rates: list[int] = []
        options: list[int] = []
        tenants: list[int] = []
        for number, job in enumerate(jobs, start):
            if rows.setdefault(job.id, number) != number:
                raise InvalidInput(f"jobs[{number}].id", f"{show(job.id)} a second time", "ids that differ")
            gpus.append(self._gpus(job, number))
            workload.append(self._workload(job, number))
            rates.append(
                -1 if job.throughput is None else self._rates.add(job.throughput, f"jobs[{number}].throughput")
            )
            options.append(-1 if job.options is None else self.options.add(job.options, f"jobs[{number}].options"))
            tenants.append(-1 if job.tenant is None else self._tenant(job.tenant, number))
            if job.running is not None:
                self._running[number] = check_running(job.running, self._cluster, f"jobs[{number}].running")
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
        put("arrival", [self._default_arrival if job.arrival is None else job.arrival for job in jobs])
        put("deadline", [infinity if job.deadline is None else job.deadline for job in jobs])
        put("soft_deadline", [job.deadline is not None and job.deadline_kind == "soft" for job in jobs])
        put("preemptible", [job.preemptible for job in jobs])
        put("restart_cost", [job.restart_cost for job in jobs])
        put("isolated_time", [0.0 if job.history is None else job.history.isolated_time for job in jobs])

    def _put(self, name: str, values: Sequence[object]) -> None:
        column: AnyArray = np.array(values, DTYPES[ARRAY_FIELDS[name]])
        self._columns[name].append(column + 0.0 if column.dtype == np.float64 else column)  # turns -0.0 into 0.0

    def _gpus(self, job: JobDocument, number: int) -> tuple[int, int, int]:
        gpus = job.gpus
        if isinstance(gpus, int):
            return gpus, gpus, -1
        if gpus.min > gpus.max:
            raise InvalidInput(f"jobs[{number}].gpus", f"min {gpus.min} above max {gpus.max}", "min at most max")
        if gpus.levels is None:
            return gpus.min, gpus.max, -1
        levels = tuple(sorted(set(gpus.levels)))
        if len(levels) < len(gpus.levels) or levels[0] < gpus.min or levels[-1] > gpus.max:
            raise InvalidInput(
                f"jobs[{number}].gpus.levels",
                show(list(gpus.levels)),
                f"different counts from {gpus.min} to {gpus.max}",
            )
        return gpus.min, gpus.max, self._level_rows.setdefault(levels, len(self._level_rows))

    def _workload(self, job: JobDocument, number: int) -> int:
        brings_own = job.throughput is not None or job.options is not None
        if job.workload is None:
            if not brings_own:
                raise InvalidInput(f"jobs[{number}]", "no workload, throughput or options", "one of them")
            return -1
        if job.workload not in self._defined and not brings_own:
            raise InvalidInput(
                f"jobs[{number}].workload", show(job.workload), "one of the workloads, or a throughput of the job's own"
            )
        if job.workload not in self._workload_rows:
            self._workload_rows[job.workload] = len(self._workload_rows)
            self.labels.append(job.workload)
        return self._workload_rows[job.workload]

    def _tenant(self, tenant: str, number: int) -> int:
        if tenant not in self._tenant_rows:
            known = listed(self._tenant_rows) or "(the instance has none)"
            raise InvalidInput(f"jobs[{number}].tenant", show(tenant), f"one of the tenants {known}")
        return self._tenant_rows[tenant]

    def finish(self) -> JobTable:
        """The table; predecessors are resolved now that all ids are known."""
        arrays = {
            name: np.concatenate(parts) if parts else np.zeros(0, DTYPES[ARRAY_FIELDS[name]])
            for name, parts in self._columns.items()
        }
        names = JobNames(len(self._rows), tuple(self._rows))
        return JobTable(
            names=names,
            level_lists=tuple(self._level_rows),
            running=self._running,
            after=resolve_predecessors(self._after, names),
            **arrays,
        )
