"""The result of a simulation, and its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray
from optsched.arrays.values import cached_property
from optsched.display import DisplayedTable, TableColumns, count
from optsched.display.columns import title, written
from optsched.display.picture import Picture
from optsched.instance.durations import HOUR
from optsched.lazy import convenience
from optsched.simulation.fairness import finish_time_ratios
from optsched.simulation.options import RHO
from optsched.simulation.recording import JobLog, RoundLog, Segments
from optsched.traces import Trace

JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, repr=False)
class Simulation(DisplayedTable):
    """A simulated trace.

    Attributes
    ----------
    trace : Trace
        With the performance object by which jobs ran.
    policy : str
        Name of the policy, in one word or two.
    options : mapping
        Options of the simulation, as given.
    measured : BoolArray, shape (jobs,)
        Jobs that count in the metrics: those between warm-up and cool-down.
    jobs : JobLog
    rounds : RoundLog
    segments : Segments
    notices : tuple of str
        Messages to the user.
    """

    trace: Trace
    policy: str
    options: Mapping[str, Any]
    measured: BoolArray
    jobs: JobLog
    rounds: RoundLog
    segments: Segments
    notices: tuple[str, ...] = field(default=())

    @cached_property
    def completed(self) -> BoolArray:
        """Jobs that were complete at the end, shape (jobs,)."""
        return ~np.isnan(self.jobs.finish)

    @cached_property
    def completion_times(self) -> FloatArray:
        """Seconds from the arrival of a job to its end (JCT), shape (jobs,); NaN for jobs that did
        not end.
        """
        return self.jobs.finish - self.trace.instance.jobs_table.arrival

    @cached_property
    def end(self) -> float:
        """When the last round ended, seconds; the last arrival where there is no round."""
        arrival = self.trace.instance.jobs_table.arrival
        return float(self.rounds.end.max(initial=arrival.max(initial=0.0)))

    def finish_time_ratios(self, definition: RHO = "isolated") -> FloatArray:
        """Finish-time ratio rho of each job:
        the time that it took, divided by the time that it would have taken with a fair share.

        Parameters
        ----------
        definition : str
            ``isolated`` (Themis), ``contention`` (Sia) or ``static`` (Shockwave), see
            `optsched.simulation.fairness`.

        Returns
        -------
        FloatArray, shape (jobs,)
            NaN for a job that never ended, or that has a known rate on no pool.
        """
        return finish_time_ratios(self.trace, self.jobs.finish, self.end, definition)

    def metrics(self, *, rho: RHO = "isolated", unfair: float = 1.0) -> dict[str, float | None]:
        """The metrics of the simulation. A metric that does not exist is None.

        Parameters
        ----------
        rho : str
            The published definition of the finish-time ratio to use
            (`optsched.simulation.fairness`).
        unfair : float
            A job counts as unfairly treated if its ratio is larger than this: 1 in Themis and Sia,
            1.05 in Shockwave.

        Returns
        -------
        dict
            ``jobs`` (measured), ``completed``; ``mean_jct``, ``p50_jct``, ``p99_jct`` (s);
            ``makespan`` (s, from the first arrival to the last end of all jobs); ``utilisation``
            (part of the GPU time of the nodes that are up that GPUs were held, until then),
            ``progress`` (the same without the time in which states were restored); ``mean_rho``,
            ``worst_rho``, ``unfair_fraction``; ``deadlines_met`` (part of the jobs that have one);
            ``gpu_hours``, ``gpu_hours_per_job``; ``restarts_per_job`` (starts after the first);
            ``cost`` (USD), ``energy`` (kWh, where all pools state their power); ``lost_steps``;
            ``fragmentation`` (part of the free GPU time that is free on nodes in use);
            ``mean_queue`` (jobs that wait), ``mean_contention`` (jobs there); ``rounds``,
            ``solves``, ``fallbacks``, ``mean_solve_ms``, ``p99_solve_ms`` (wall time of a plan).
        """
        table = self.trace.instance.jobs_table
        log = self.jobs
        counted = self.measured
        done = counted & self.completed
        jct = self.completion_times[done]
        ratios = self.finish_time_ratios(rho)[done]
        known = ~np.isnan(ratios)
        due = counted & np.isfinite(table.deadline)
        with np.errstate(invalid="ignore"):
            met = log.finish[due] <= table.deadline[due] * (1 + 1e-12)
        started = counted & (log.starts > 0)
        return {
            "jobs": int(counted.sum()),
            "completed": int(done.sum()),
            "mean_jct": _mean(jct),
            "p50_jct": _quantile(jct, 0.5),
            "p99_jct": _quantile(jct, 0.99),
            "makespan": _makespan(self),
            "mean_rho": _mean(ratios[known]),
            "worst_rho": float(ratios[known].max()) if known.any() else None,
            "unfair_fraction": _mean((ratios[known] > unfair).astype(float)),
            "deadlines_met": _mean(met.astype(float)),
            "gpu_hours": float(log.gpu_seconds[counted].sum()) / HOUR,
            "gpu_hours_per_job": _mean(log.gpu_seconds[counted] / HOUR),
            "restarts_per_job": _mean((log.starts[started] - 1).astype(float)),
            "cost": _cost(self, counted),
            "lost_steps": float(log.lost[counted].sum()),
            **_over_time(self),
        }

    def plot(self) -> Picture:
        """Completion times, fairness, utilisation and the queue, in one picture."""
        return Picture(convenience("Simulation.plot")(self))

    def _headline(self) -> str:
        done = f"{int(self.completed.sum()):,} of {count(len(self.completed), 'job')} complete"
        return f"of {self.trace.name} by {self.policy}: {done}"

    def _facts(self) -> Mapping[str, str]:
        metrics = self.metrics()
        shown = (
            "mean_jct",
            "p99_jct",
            "makespan",
            "utilisation",
            "worst_rho",
            "deadlines_met",
            "cost",
        )
        facts = {title(name): written(name, metrics[name]) for name in shown}
        return facts | {"notices": "; ".join(self.notices)}

    def to_columns(self, first: int | None = None) -> TableColumns:
        """The jobs: times in seconds on the clock of the trace, None for what did not happen."""
        table = self.trace.instance.jobs_table
        log = self.jobs
        rows = slice(first)

        def known(values: FloatArray) -> list[float | None]:
            return [None if np.isnan(value) else value for value in values[rows].tolist()]

        arrival = table.arrival[rows].tolist()
        return {
            "job": [table.names[row] for row in range(len(arrival))],
            "arrival": arrival,
            "first_start": known(log.first_start),
            "finish": known(log.finish),
            "completion_time": known(self.completion_times),
            "steps_done": log.steps_done[rows].tolist(),
            "gpu_hours": (log.gpu_seconds[rows] / HOUR).tolist(),
            "starts": log.starts[rows].tolist(),
        }


def _over_time(simulation: Simulation) -> dict[str, float | None]:
    """The metrics of rounds."""
    rounds = simulation.rounds
    pools = simulation.trace.instance.cluster.pools
    last = _last(simulation)
    # The time after the end of the last job is not counted.
    length = np.clip(np.minimum(rounds.end, last) - rounds.start, 0.0, None)
    available = (rounds.gpus * length[:, np.newaxis]).sum(axis=0)
    busy = rounds.busy.sum(axis=0)
    seconds = float(length.sum())
    free = float(available.sum() - busy.sum())
    arrival = np.maximum(
        simulation.trace.instance.jobs_table.arrival, rounds.start.min(initial=np.inf)
    )
    finish = np.where(np.isnan(simulation.jobs.finish), last, simulation.jobs.finish)
    # Little's law: the mean number of jobs present is the sum of their times in the system divided
    # by the length.
    time_present = float(np.clip(np.minimum(finish, last) - arrival, 0.0, None).sum())
    power = [(pool.watts_per_gpu, pool.watts_idle) for pool in pools]
    joules = [
        on * used + idle * max(all_of - used, 0.0)
        for (on, idle), used, all_of in zip(power, busy.tolist(), available.tolist(), strict=True)
        if on is not None and idle is not None
    ]
    planned = rounds.seconds[rounds.solved] * 1e3
    return {
        "utilisation": _part(busy.sum(), available.sum()),
        "progress": _part(busy.sum() - simulation.jobs.restoring.sum(), available.sum()),
        "energy": sum(joules) / JOULES_PER_KWH if len(joules) == len(pools) else None,
        "fragmentation": _part((rounds.stranded * length).sum(), free),
        "mean_queue": _part(max(time_present - float(simulation.jobs.held.sum()), 0.0), seconds),
        "mean_contention": _part(time_present, seconds),
        "rounds": len(rounds),
        "solves": int(rounds.solved.sum()),
        "fallbacks": int(rounds.fallback.sum()),
        "mean_solve_ms": _mean(planned),
        "p99_solve_ms": _quantile(planned, 0.99),
    }


def _last(simulation: Simulation) -> float:
    """When the last job ended; the end of the last round if jobs were still running when the
    simulation stopped.
    """
    rounds = simulation.rounds
    finish = simulation.jobs.finish
    if not len(rounds):
        return 0.0
    used = rounds.end[rounds.busy.sum(axis=1) > 0]
    running = np.isnan(finish).any() and bool(rounds.running[-1] > 0)
    ended = (
        float(np.nanmax(finish))
        if simulation.completed.any()
        else float(used.max(initial=rounds.start[0]))
    )
    return float(rounds.end[-1]) if running else ended


def _makespan(simulation: Simulation) -> float | None:
    """Makespan of all jobs in seconds; None if some job did not end."""
    finish = simulation.jobs.finish
    if not len(finish) or np.isnan(finish).any():
        return None
    return float(finish.max() - simulation.trace.instance.jobs_table.arrival.min())


def _cost(simulation: Simulation, counted: BoolArray) -> float | None:
    priced = all(
        pool.cost_per_gpu_hour is not None for pool in simulation.trace.instance.cluster.pools
    )
    return float(simulation.jobs.cost[counted].sum()) if priced else None


def _part(amount: float, whole: float) -> float | None:
    """Amount over whole; None if there is no whole."""
    return float(amount / whole) if whole > 0 else None


def _mean(values: FloatArray) -> float | None:
    return float(values.mean()) if len(values) else None


def _quantile(values: FloatArray, part: float) -> float | None:
    return float(np.quantile(values, part)) if len(values) else None
