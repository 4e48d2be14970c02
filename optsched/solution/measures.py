"""Measures of an answer that do not depend on what its formulation optimises,
so that answers can be compared.

Jobs measured are those that could run now: arrived, with steps left and a column. With N_j the
steps left of job j, R_j its rate in its fastest column alone and D_j its shortest duration alone
(of an allocation N_j / R_j):

    share_j      what the job gets of what it could get, had it the cluster to itself
                 allocation: throughput_j / R_j      schedule: D_j / (its last end - now)
    fairness     Jain's index of the shares, (sum share)^2 / (n sum share^2): 1 if all are equal, 1/n if one has all
    end_j        allocation: N_j / throughput_j, as if nothing changed      schedule: its last end - now
    makespan     max_j end_j; does not exist if some job measured gets nothing
    deadlines    jobs that have arrived and have steps left and a deadline (soft or hard); met: now + end_j <= deadline
    utilisation  GPUs in use / usable GPUs            schedule: GPU seconds / (usable GPUs x seconds until the last end)
    cost         USD per hour of what is in use       schedule: on average until the last end

References
----------
R. Jain, D. Chiu, W. Hawe. "A quantitative measure of fairness and discrimination for resource
allocation in shared computer systems", DEC Research Report TR-301, 1984.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray
from optsched.candidates import Absence, Candidates
from optsched.display import Displayed
from optsched.solution.allocation import Allocation
from optsched.solution.certificate import FEASIBILITY
from optsched.solution.schedule import Schedule
from optsched.solution.solution import Solution, allocation_metrics


@dataclass(frozen=True, repr=False)
class Measures(Displayed):
    """Figures of one answer; None where one does not exist.

    Attributes
    ----------
    jobs : int
        Jobs measured.
    idle : int
        Those of them that get nothing.
    smallest_share, mean_share, fairness : float or None
        Of the jobs measured that have a rate.
    utilisation : float or None
        None without GPUs.
    cost_per_hour : float or None
        USD; 0 if nothing is in use, None where a pool in use has no price.
    makespan, last_end : float or None
        Seconds from now until all jobs measured have ended, and until the last of those that are
        served has.
    deadlines, deadlines_met : int
    """

    jobs: int
    idle: int
    smallest_share: float | None
    mean_share: float | None
    fairness: float | None
    utilisation: float | None
    cost_per_hour: float | None
    makespan: float | None
    last_end: float | None
    deadlines: int
    deadlines_met: int

    def to_document(self) -> dict[str, Any]:
        """The figures as plain data."""
        return asdict(self)


def measure(solution: Solution, candidates: Candidates) -> Measures | None:
    """Measure an answer; None if there is none.

    Parameters
    ----------
    solution : Solution
    candidates : Candidates
        What jobs could run in now (`optsched.compile` of the instance): the same for all answers
        that are compared.
    """
    if solution.schedule is not None:
        return _of_schedule(solution.schedule, candidates)
    if solution.allocation is not None:
        return _of_allocation(solution.allocation, candidates)
    return None


def fastest_rate(candidates: Candidates) -> FloatArray:
    """R_j, steps/s of each job in its fastest column alone; 0 without one, shape (jobs,)."""
    columns, kinds = candidates.columns, candidates.kinds
    best = np.zeros(len(kinds) + 1)  # the last is for jobs without a kind
    alone = columns.partner < 0
    np.maximum.at(best, columns.kind[alone], columns.rate[alone])
    return best[kinds.of_job]


def shortest_duration(candidates: Candidates) -> FloatArray:
    """D_j, seconds that each job needs for its steps left in its fastest column alone;
    inf without one, shape (jobs,).

    Exact where an option states its duration.
    """
    columns, kinds, table = candidates.columns, candidates.kinds, candidates.instance.jobs_table
    exact = ~np.isnan(columns.duration)
    alone = columns.partner < 0
    rate, duration = np.zeros(len(kinds) + 1), np.full(len(kinds) + 1, np.inf)
    np.maximum.at(rate, columns.kind[alone & ~exact], columns.rate[alone & ~exact])
    np.minimum.at(duration, columns.kind[alone & exact], columns.duration[alone & exact])
    with np.errstate(divide="ignore", invalid="ignore"):
        done = np.where(table.steps > 0, table.steps_left / table.steps, 1.0)
        by_rate = np.where(rate[kinds.of_job] > 0, table.steps_left / rate[kinds.of_job], np.inf)
        stated = np.where(
            np.isfinite(duration[kinds.of_job]), duration[kinds.of_job] * done, np.inf
        )
    return np.minimum(by_rate, stated)


def jain_index(share: FloatArray) -> float | None:
    """(sum s)^2 / (n sum s^2); None if nobody has anything."""
    largest = float(share.max(initial=0.0))
    if largest <= 0:
        return None
    scaled = share / largest  # squares of rates may underflow
    return float(scaled.sum() ** 2 / (len(scaled) * (scaled**2).sum()))


def _of_allocation(allocation: Allocation, candidates: Candidates) -> Measures:
    table, metrics = candidates.instance.jobs_table, allocation_metrics(allocation)
    throughput, fastest = allocation.throughput, fastest_rate(candidates)
    with np.errstate(divide="ignore", invalid="ignore"):
        end = np.where(throughput > 0, table.steps_left / throughput, np.inf)
        share = throughput / fastest
    resources = allocation.classes.resources
    gpus = float(resources.capacity[resources.pool >= 0].sum())
    return _measures(
        candidates,
        end,
        share,
        fastest > 0,
        metrics["gpus_in_use"] / gpus if gpus > 0 else None,
        metrics.get("cost_per_hour") if (allocation.x > 0).any() else 0.0,
    )


def _of_schedule(schedule: Schedule, candidates: Candidates) -> Measures:
    C, now, jobs = schedule.classes, candidates.instance.now, len(candidates.instance.jobs_table)
    # The last end of each job; one without a stretch never ends.
    end = np.full(jobs, -np.inf)
    np.maximum.at(end, schedule.job, schedule.end - now)
    end = np.where(np.isfinite(end), end, np.inf)
    shortest = shortest_duration(candidates)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(np.isfinite(end), shortest / end, 0.0)
    length = float((schedule.end - now).max(initial=0.0))
    configuration, seconds = C.configuration[schedule.column], schedule.end - schedule.start
    gpus = float(C.capacity[C.resources.pool >= 0].sum())
    held = np.where(schedule.pool >= 0, schedule.gpus * C.configurations.share[configuration], 0.0)
    cost = C.configurations.cost_per_hour(C.instance.cluster)[configuration]
    return _measures(
        candidates,
        end,
        share,
        np.isfinite(shortest),
        float(held @ seconds) / (gpus * length) if gpus > 0 and length > 0 else None,
        # An empty schedule has no length, and costs nothing
        float(cost @ seconds) / (length or 1.0) if np.isfinite(cost).all() else None,
    )


def _measures(
    candidates: Candidates,
    end: FloatArray,
    share: FloatArray,
    rated: BoolArray,
    utilisation: float | None,
    cost_per_hour: float | None,
) -> Measures:
    """The figures of all jobs' ends and shares; ``rated`` marks those whose share exists."""
    table = candidates.instance.jobs_table
    absence = candidates.absence
    now = candidates.instance.now
    # Jobs that the formulation excludes get nothing, and count.
    present = np.isin(absence, (Absence.PRESENT, Absence.EXCLUDED))
    served = present & np.isfinite(end)
    idle = int(present.sum() - served.sum())
    shares = share[present & rated]
    # A job that can run nowhere misses its deadline, though it is not measured otherwise.
    asked = np.isfinite(table.deadline) & (present | (absence == Absence.NO_COLUMN))
    left = np.where(asked, table.deadline - now, 0.0)
    met = asked & (end <= left + FEASIBILITY * np.abs(left))
    last = float(end[served].max()) if served.any() else None
    return Measures(
        jobs=int(present.sum()),
        idle=idle,
        smallest_share=float(shares.min()) if len(shares) else None,
        mean_share=float(shares.mean()) if len(shares) else None,
        fairness=jain_index(shares),
        utilisation=utilisation,
        cost_per_hour=cost_per_hour,
        makespan=last if idle == 0 else None,
        last_end=last,
        deadlines=int(asked.sum()),
        deadlines_met=int(met.sum()),
    )
