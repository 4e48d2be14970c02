"""Statistics of a trace: jobs, arrivals, durations, and demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from optsched.arrays import AnyArray, FloatArray, IntArray, group_rows
from optsched.display import Displayed, percent
from optsched.instance import Instance
from optsched.instance.durations import HOUR
from optsched.traces.demand import Demand, Nowhere, demand_of
from optsched.traces.trace import Trace

FORMAT = "optsched-trace-summary/1"
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True, repr=False, slots=True)
class Part(Displayed):
    """Jobs with a common property: its name, the number of jobs, and the fewest GPU-hours that they
    need.
    """

    name: str
    jobs: int
    gpu_hours: float


@dataclass(frozen=True, repr=False, slots=True)
class PoolDemand(Displayed):
    """The demand for a pool.

    Attributes
    ----------
    name : str
    gpus : int
    runnable, only : int
        Jobs that can run in it, and those that can run nowhere else.
    gpu_hours : float
        GPU-hours of the jobs that need the fewest in this pool (`Demand.wanted`).
    load : float or None
        ``gpu_hours`` divided by the GPU-hours of the pool in the span of the arrivals; None if
        those are 0.
    """

    name: str
    gpus: int
    runnable: int
    only: int
    gpu_hours: float
    load: float | None


@dataclass(frozen=True, repr=False, slots=True)
class DeadlineSummary(Displayed):
    """Deadlines of a trace.

    Attributes
    ----------
    jobs, soft : int
        Jobs that have one, and of these those whose deadline is soft.
    hopeless : int
        Jobs whose deadline is nearer than their duration.
    tightness : mapping
        Quantiles of (deadline - arrival) / duration.
    """

    jobs: int
    soft: int
    hopeless: int
    tightness: dict[str, float | None]


@dataclass(frozen=True, repr=False)
class TraceSummary(Displayed):
    """The result of `describe`; a value that does not exist is None.

    Attributes
    ----------
    name : str
    jobs, gpus : int
    first, last : float or None
        Arrivals, seconds on the clock of the instance.
    span : float
        Seconds between them.
    per_hour : float or None
        Arrivals per hour of the span, the first not counted.
    gangs, workloads, tenants : tuple of Part
        Gangs from small to large (``1-8``: elastic), the others with the most jobs first.
    gpu_hours, gpu_hours_mean : float
        GPU-hours of all jobs: the sums of ``least`` and ``mean`` of `Demand`.
    load, load_mean : float or None
        These divided by the GPU-hours of the cluster in the span.
    pools : tuple of PoolDemand
    durations : mapping
        Quantiles of the seconds of each job in its fastest configuration.
    deadlines : DeadlineSummary
    regime_jobs, regime_changes : int
    node_events : mapping
        Number by state, and ``nodes``: how many nodes have any.
    nowhere : tuple of Nowhere
        Jobs that can run nowhere.
    demand : Demand
    arrival : FloatArray, shape (J,)
    gang : FloatArray, shape (J,)
        Fewest GPUs of each job; a share of one counts as such.
    """

    name: str
    jobs: int
    gpus: int
    first: float | None
    last: float | None
    span: float
    per_hour: float | None
    gangs: tuple[Part, ...]
    workloads: tuple[Part, ...]
    tenants: tuple[Part, ...]
    gpu_hours: float
    gpu_hours_mean: float
    load: float | None
    load_mean: float | None
    pools: tuple[PoolDemand, ...]
    durations: dict[str, float | None]
    deadlines: DeadlineSummary
    regime_jobs: int
    regime_changes: int
    node_events: dict[str, int]
    nowhere: tuple[Nowhere, ...]
    demand: Demand
    arrival: FloatArray
    gang: FloatArray

    def _headline(self) -> str:
        load = "" if self.load is None else f", load {percent(self.load)} of the cluster"
        return f"{self.name}: {self.jobs:,} jobs on {self.gpus:,} GPUs{load}"

    def document(self) -> dict[str, Any]:
        """As ``optsched-trace-summary/1``: plain data, without the arrays over jobs."""
        arrays = ("demand", "arrival", "gang")
        fields = [field for field in self.__dataclass_fields__ if field not in arrays]
        return {"format": FORMAT} | {field: _plain(getattr(self, field)) for field in fields}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [asdict(item) for item in value]
    return asdict(value) if isinstance(value, DeadlineSummary) else value


def largest_parts(parts: Sequence[Part], most: int, rest: str) -> list[Part]:
    """At most ``most`` parts, those with the most jobs, in their order. All others are merged into
    one, called ``rest``.
    """
    if len(parts) <= most:
        return list(parts)
    by_jobs = sorted(range(len(parts)), key=lambda row: -parts[row].jobs)
    others = [parts[row] for row in by_jobs[most - 1 :]]
    hours = sum(part.gpu_hours for part in others)
    last = Part(rest, sum(part.jobs for part in others), hours)
    return [*(parts[row] for row in sorted(by_jobs[: most - 1])), last]


def describe(trace: Trace) -> TraceSummary:
    """Count and measure a trace.

    Parameters
    ----------
    trace : Trace

    Returns
    -------
    TraceSummary

    Raises
    ------
    InvalidInput
        The performance model or the compile step refuses the instance.
    """
    instance = trace.instance
    demand = demand_of(trace)
    table = instance.jobs_table
    count = len(table)
    span = float(np.ptp(table.arrival)) if count else 0.0
    gpus = int(demand.gpus.sum())
    # Jobs that can run nowhere count 0 GPU-hours
    hours = np.nan_to_num(demand.least)
    gang, most = _gangs(instance)
    # GPU-hours
    capacity = span / HOUR * demand.gpus
    states = {state: trace.node_events.state.count(state) for state in ("up", "drain", "down")}
    return TraceSummary(
        name=instance.name,
        jobs=count,
        gpus=gpus,
        first=float(table.arrival.min()) if count else None,
        last=float(table.arrival.max()) if count else None,
        span=span,
        per_hour=_ratio(count - 1, span / HOUR),
        gangs=_gang_parts(gang, most, hours),
        workloads=_parts([workload.name for workload in instance.workloads], table.workload, hours),
        tenants=_parts([tenant.name for tenant in instance.tenants], table.tenant, hours),
        gpu_hours=float(hours.sum()),
        gpu_hours_mean=float(np.nansum(demand.mean)),
        load=_ratio(float(hours.sum()), float(capacity.sum())),
        load_mean=_ratio(float(np.nansum(demand.mean)), float(capacity.sum())),
        pools=_pools(instance, demand, capacity),
        durations=_quantiles(demand.seconds[demand.runs]),
        deadlines=_deadlines(instance, demand),
        regime_jobs=len(np.unique(trace.regimes.job)),
        regime_changes=len(trace.regimes),
        node_events={**states, "nodes": len(set(trace.node_events.node))},
        nowhere=demand.nowhere,
        demand=demand,
        arrival=table.arrival,
        gang=gang,
    )


def _pools(instance: Instance, demand: Demand, capacity: FloatArray) -> tuple[PoolDemand, ...]:
    return tuple(
        PoolDemand(
            name=pool.name,
            gpus=int(demand.gpus[row]),
            runnable=int(demand.runnable[row]),
            only=int(demand.only[row]),
            gpu_hours=float(demand.wanted[row]),
            load=_ratio(float(demand.wanted[row]), float(capacity[row])),
        )
        for row, pool in enumerate(instance.cluster.pools)
    )


def _ratio(value: float, by: float) -> float | None:
    return value / by if by > 0 else None


def _quantiles(
    values: FloatArray, quantiles: Mapping[str, float] = QUANTILES
) -> dict[str, float | None]:
    if not len(values):
        return dict.fromkeys(quantiles)
    found = np.quantile(values, list(quantiles.values()))
    return dict(zip(quantiles, found.tolist(), strict=True))


def _gangs(instance: Instance) -> tuple[FloatArray, FloatArray]:
    """Fewest and most GPUs of each job; for explicit options, GPUs times the share."""
    table = instance.jobs_table
    options = instance.options
    low = table.gpus_min.astype(np.float64)
    high = table.gpus_max.astype(np.float64)
    if len(options):
        gpus = options.gpus * options.share
        start = options.indptr[:-1]
        # Options replace the gang of a job
        explicit = np.flatnonzero(table.options >= 0)
        low[explicit] = np.minimum.reduceat(gpus, start)[table.options[explicit]]
        high[explicit] = np.maximum.reduceat(gpus, start)[table.options[explicit]]
    return low, high


def _gang_parts(low: FloatArray, high: FloatArray, hours: FloatArray) -> tuple[Part, ...]:
    groups = group_rows([low, high], len(low))
    order = np.lexsort((high[groups.first], low[groups.first]))
    rows = groups.first[order]
    names = [_range(a, b) for a, b in zip(low[rows].tolist(), high[rows].tolist(), strict=True)]
    return _sums(names, groups.inverse, hours, order)


def _range(low: float, high: float) -> str:
    return f"{low:.6g}" if low == high else f"{low:.6g}-{high:.6g}"


def _parts(names: Sequence[str], of_job: IntArray, hours: FloatArray) -> tuple[Part, ...]:
    """Jobs grouped by a property, the largest group first; jobs without it are ``(none)``."""
    if not names:
        return ()
    count = np.bincount(of_job + 1, minlength=len(names) + 1)
    order = np.argsort(-count, kind="stable")
    # Leave out workloads and tenants without jobs
    order = order[count[order] > 0]
    every = ["(none)", *names]
    return _sums([every[row] for row in order.tolist()], of_job + 1, hours, order)


def _sums(
    names: Sequence[str],
    of_job: IntArray,
    hours: FloatArray,
    order: AnyArray,
) -> tuple[Part, ...]:
    size = int(order.max(initial=-1)) + 1
    jobs = np.bincount(of_job, minlength=size)
    total = np.bincount(of_job, weights=hours, minlength=size)
    rows = zip(names, jobs[order].tolist(), total[order].tolist(), strict=True)
    return tuple(Part(name, count, gpu_hours) for name, count, gpu_hours in rows)


def _deadlines(instance: Instance, demand: Demand) -> DeadlineSummary:
    table = instance.jobs_table
    due = np.isfinite(table.deadline)
    # Jobs that can run nowhere have no duration, hence no tightness
    rated = due & demand.runs & (np.nan_to_num(demand.seconds) > 0)
    tightness = (table.deadline[rated] - table.arrival[rated]) / demand.seconds[rated]
    hopeless = int(np.count_nonzero(tightness < 1 - 1e-9))
    return DeadlineSummary(
        int(due.sum()),
        int((due & table.soft_deadline).sum()),
        hopeless,
        _quantiles(tightness, {"min": 0.0, "p10": 0.1, "p50": 0.5, "p90": 0.9}),
    )
