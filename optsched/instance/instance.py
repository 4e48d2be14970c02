"""`Instance`: a validated scheduling problem, kept as arrays; `Job`:
a read-only view of one job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from optsched.arrays import IntArray
from optsched.arrays.values import cached_property
from optsched.display import Displayed, DisplayedTable, TableColumns, count, first_of
from optsched.display.picture import Picture
from optsched.errors import checks_keywords
from optsched.instance.cluster import Cluster, PoolSizes, Tenant
from optsched.instance.documents import FORMAT
from optsched.instance.rates import RateTable
from optsched.instance.tables import Colocation, JobTable, OptionTable, Workloads
from optsched.lazy import convenience


class Job(NamedTuple):
    """Read-only view of one job. Times in seconds; ``deadline`` is None if there is none."""

    id: str
    workload: str | None
    gpus: tuple[int, int]
    steps: float
    steps_done: float
    weight: float
    arrival: float
    deadline: float | None
    tenant: str | None
    throughput: Mapping[str, Any] | None


@dataclass(frozen=True, repr=False, eq=False)
class Instance(DisplayedTable):
    """A scheduling problem: a cluster, workloads, tenants and a table of jobs.

    Make one with `optsched.load`, `Instance.from_document` or `Instance.from_arrays`; all of them
    validate.

    Attributes
    ----------
    name : str
    cluster : Cluster
    jobs_table : JobTable
        One array per field.
    rates : RateTable
        Throughput profiles of jobs and workloads.
    options : OptionTable
    workloads : Workloads
        A tuple of `Workload`.
    tenants : tuple of Tenant
    colocation : tuple of Colocation
    constraints : tuple
        Side constraints, as documents.
    performance : mapping
        ``{"model": name, ...}``.
    round, now : float
        Round length and clock, seconds.
    kind : str
        The format key; names the kind of problem.
    """

    name: str
    cluster: Cluster
    jobs_table: JobTable
    rates: RateTable
    options: OptionTable
    workloads: Workloads = field(default_factory=Workloads)
    tenants: tuple[Tenant, ...] = ()
    colocation: tuple[Colocation, ...] = ()
    constraints: tuple[Any, ...] = ()
    performance: Mapping[str, Any] = field(default_factory=lambda: {"model": "table"})
    round: float = 360.0
    now: float = 0.0
    kind: str = FORMAT

    @property
    def jobs(self) -> Jobs:
        """The jobs as a sequence of views, also by name: ``instance.jobs["a"]``."""
        return Jobs(self)

    @cached_property
    def sha256(self) -> str:
        """Hash of the content; equal for JSON, YAML, npz and arrays with the same content."""
        return cast("str", convenience("Instance.sha256")(self))

    @property
    def identity(self) -> dict[str, str]:
        """Name and hash, with which documents refer to their instance."""
        return {"name": self.name, "sha256": self.sha256}

    @cached_property
    def states(self) -> frozenset[str]:
        """Names of stated fields that only some formulations and side constraints read, and that
        could make a difference (`optsched.formulation.notes`).
        """
        table, tenants, options = self.jobs_table, self.tenants, self.options
        arrived = table.arrival[table.arrival <= self.now]  # later arrivals have their own note
        differs = {
            "deadline": np.isfinite(table.deadline).any(),
            "weight": (table.weight != table.weight[:1]).any(),
            "arrival": (arrived != arrived[:1]).any(),
            "tenant": (table.tenant != table.tenant[:1]).any(),
            "tenant_weight": len({tenant.weight for tenant in tenants}) > 1,
            "queue": any(tenant.policy == "fifo" for tenant in tenants),
            "preemptible": not table.preemptible.all(),
            "running": table.running,
            "after": table.after,
            "restart_cost": table.restart_cost.any() or self.workloads.with_restart_cost,
            "exempt_time": table.exempt_time.any(),
            "checkpoint_interval": table.checkpoint_interval.any(),
            "isolated_time": table.isolated_time.any(),
            "colocation": self.colocation,
            "value": options.value.any(),
            "cost": options.cost.any(),
            "limit": (options.limit > options.share).any(),
            "partitions": any(pool.partitions for pool in self.cluster.pools),
        }
        return frozenset(name for name, different in differs.items() if different)

    @cached_property
    def compiled(self) -> dict[Any, Any]:
        """The candidates of this instance, by how they were compiled: another `optsched.solve` of
        the same object uses them again, if all its rates are stated (`optsched.api`). Copies of the
        instance, and other processes, begin without any.
        """
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "compiled"}

    @property
    def pool_sizes(self) -> PoolSizes:
        """GPUs on the nodes of every pool that can take work now."""
        return self.cluster.sizes(self.now)

    @cached_property
    def queue(self) -> IntArray:
        """Position of each job (from 1) in the queue of its tenant if the tenant has the policy
        fifo, else 0.

        The queue is in the order of arrival, then of the file.
        """
        table = self.jobs_table
        queued = np.array([tenant.policy == "fifo" for tenant in self.tenants] + [False])[
            table.tenant
        ]
        jobs = np.flatnonzero(queued)
        # lexsort: the last key is the primary one. Tenant, then arrival, then position in the file.
        jobs = jobs[np.lexsort((jobs, table.arrival[jobs], table.tenant[jobs]))]
        tenant, number = table.tenant[jobs], np.arange(len(jobs))
        first = np.flatnonzero(np.append(True, tenant[1:] != tenant[:-1])) if len(jobs) else number
        place = np.zeros(len(table), np.int64)
        # Positions are counted from the first job of each tenant.
        place[jobs] = number - np.repeat(first, np.diff(np.append(first, len(jobs)))) + 1
        return place

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Instance:
        """Build an instance from a parsed document in the format ``optsched-instance/1``.

        Parameters
        ----------
        document : mapping

        Returns
        -------
        Instance

        Raises
        ------
        InvalidInput
            Naming the field, what was found and what was expected.
        """
        return cast("Instance", convenience("Instance.from_document")(document))

    @classmethod
    @checks_keywords
    def from_arrays(
        cls,
        *,
        pools: Mapping[str, int] | Sequence[Mapping[str, Any]],
        throughput: ArrayLike | None = None,
        workload: ArrayLike | None = None,
        workloads: Mapping[str, Mapping[str, Any]] | None = None,
        gpus: ArrayLike = 1,
        gpus_max: ArrayLike | None = None,
        steps: ArrayLike = 1.0,
        steps_done: ArrayLike = 0.0,
        weight: ArrayLike = 1.0,
        arrival: ArrayLike | None = None,
        deadline: ArrayLike = np.inf,
        soft_deadline: ArrayLike = False,
        tenant: ArrayLike | None = None,
        tenants: Sequence[Mapping[str, Any]] = (),
        preemptible: ArrayLike = True,
        restart_cost: ArrayLike = 0.0,
        isolated_time: ArrayLike = 0.0,
        exempt_time: ArrayLike = 0.0,
        checkpoint_interval: ArrayLike = 0.0,
        ids: Sequence[str] | None = None,
        colocation: Sequence[Mapping[str, Any]] = (),
        resources: Sequence[Mapping[str, Any]] = (),
        constraints: Sequence[Any] = (),
        performance: Mapping[str, Any] | None = None,
        name: str = "arrays",
        now: float = 0.0,
        round: float = 360.0,
    ) -> Instance:
        """Build an instance from arrays over jobs; numbers stand for all jobs.

        Parameters
        ----------
        pools : mapping or sequence
            GPUs by pool name, or pool documents (`optsched.instance.documents.PoolDocument`).
        throughput : array, shape (jobs, pools), optional
            steps/s of each job at its own gang on each pool; 0 where it cannot run.
        workload : int array, shape (jobs,), optional
            Row in ``workloads`` (in order), -1 for none. A job needs a workload or a row of
            ``throughput``.
        workloads, tenants, colocation, resources, constraints, performance
            As in an instance document.
        gpus : int or array
            Gang sizes. (Levels and explicit options need a document.)
        gpus_max : int or array, optional
            Most GPUs of elastic jobs, which can run on any count from ``gpus`` to this one.
        steps, steps_done, weight, arrival, deadline, soft_deadline, preemptible, restart_cost
            As in an instance document; ``deadline`` is inf where absent.
        isolated_time, exempt_time, checkpoint_interval
            As in an instance document.
        tenant : int array, optional
            Row in ``tenants``, -1 for none.
        ids : sequence of str, optional
            Default: j0, j1, ...
        name : str
            Of the instance.
        now : float
            The clock, seconds.
        round : float
            Length of a round, seconds.

        Returns
        -------
        Instance

        Raises
        ------
        InvalidInput
            Naming the array and the first wrong row.
        """
        header = {
            "format": FORMAT,
            "name": name,
            "round": round,
            "now": now,
            "cluster": {"pools": pools, "resources": resources},
            "workloads": workloads,
            "tenants": tenants,
            "colocation": colocation,
            "constraints": constraints,
            "performance": performance,
        }
        columns = {
            "workload": workload,
            "gpus_min": gpus,
            "steps": steps,
            "steps_done": steps_done,
            "weight": weight,
            "arrival": arrival,
            "deadline": deadline,
            "soft_deadline": soft_deadline,
            "tenant": tenant,
            "preemptible": preemptible,
            "restart_cost": restart_cost,
            "isolated_time": isolated_time,
            "exempt_time": exempt_time,
            "checkpoint_interval": checkpoint_interval,
            "gpus_max": gpus_max,
        }
        build = convenience("Instance.from_arrays")
        return cast("Instance", build(header, columns, throughput, ids))

    def to_document(self) -> dict[str, Any]:
        """The instance as a document that `from_document` reads back to an equal instance."""
        return cast("dict[str, Any]", convenience("Instance.to_document")(self))

    def plot(self) -> Picture:
        """A picture of the cluster and of what runs on it."""
        return Picture(convenience("Instance.plot")(self))

    def _headline(self) -> str:
        jobs, pools = len(self.jobs_table), len(self.cluster.pools)
        gpus = self.cluster.size
        return f"{self.name}: {count(jobs, 'job')}, {count(gpus, 'GPU')} in {count(pools, 'pool')}"

    def _facts(self) -> Mapping[str, str]:
        return {
            "pools": first_of([pool.name for pool in self.cluster.pools]),
            "tenants": first_of([tenant.name for tenant in self.tenants]),
            "constraints": first_of([str(document["kind"]) for document in self.constraints]),
            "rates": str(self.performance["model"]),
        }

    def to_columns(self, first: int | None = None) -> TableColumns:
        """The jobs; times in seconds, None where a job has none."""
        table, rows = self.jobs_table, slice(first)
        numbers = range(len(table))[rows]
        columns: dict[str, list[Any]] = {"job": [table.names[row] for row in numbers]}
        # Leave out empty columns.
        if self.workloads:
            workloads = [*(workload.name for workload in self.workloads), None]
            columns["workload"] = [workloads[k] for k in table.workload[rows].tolist()]
        if self.tenants:
            tenants = [*(tenant.name for tenant in self.tenants), None]
            columns["tenant"] = [tenants[k] for k in table.tenant[rows].tolist()]
        names = ("gpus_min", "gpus_max", "steps", "steps_done", "weight", "arrival")
        columns |= {name: getattr(table, name)[rows].tolist() for name in names}
        if np.isfinite(table.deadline).any():
            deadlines = table.deadline[rows].tolist()
            columns["deadline"] = [None if value == np.inf else value for value in deadlines]
        return columns


class Jobs(Displayed):
    """Sequence of `Job` views over an instance's table."""

    __slots__ = ("_instance",)

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def _headline(self) -> str:
        return f"of {self._instance.name}: {count(len(self), 'job')}"

    def __len__(self) -> int:
        return len(self._instance.jobs_table)

    def __iter__(self) -> Iterator[Job]:
        return (self[row] for row in range(len(self)))

    def __contains__(self, name: object) -> bool:
        """Whether there is a job of that name."""
        if not isinstance(name, str):
            return False
        try:
            self._instance.jobs_table.names.index(name)
        except KeyError:
            return False
        return True

    def __getitem__(self, key: int | str) -> Job:
        instance, table = self._instance, self._instance.jobs_table
        row = table.names.index(key) if isinstance(key, str) else range(len(table))[key]
        workload = int(table.workload[row])
        tenant = int(table.tenant[row])
        rates = int(table.rates[row])
        return Job(
            id=table.names[row],
            workload=None if workload < 0 else instance.workloads[workload].name,
            gpus=(int(table.gpus_min[row]), int(table.gpus_max[row])),
            steps=float(table.steps[row]),
            steps_done=float(table.steps_done[row]),
            weight=float(table.weight[row]),
            arrival=float(table.arrival[row]),
            deadline=None if np.isinf(table.deadline[row]) else float(table.deadline[row]),
            tenant=None if tenant < 0 else instance.tenants[tenant].name,
            throughput=None if rates < 0 else instance.rates.document(rates),
        )
