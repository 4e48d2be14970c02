"""Traces with the run time of each job but without rates: a step is a second of the recorded run.

A job runs on its recorded number of GPUs, at 1 step/s in every pool, or at the speed factor given
for the pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.errors import InvalidInput
from optsched.formats.inputs import Speeds, speeds_of
from optsched.instance import Instance

# Name of the workload of all jobs of a `RecordedJobs`.
WORKLOAD = "recorded"

# Share of its rate that a gang keeps on several nodes: gang -> nodes -> share.
NodeRates = Mapping[int, Mapping[int, float]]


def recorded_workload(
    gangs: Iterable[int], speeds: Mapping[str, float], spread: NodeRates | None = None
) -> dict[str, Any]:
    """A workload with a rate for each gang on the fewest nodes; for gangs in ``spread``, on the
    numbers of nodes listed there.
    """
    sizes = sorted(set(gangs))
    return {
        "throughput": {
            pool: {
                str(gang): {str(nodes): speed * share for nodes, share in spread[gang].items()}
                if spread and gang in spread
                else speed
                for gang in sizes
            }
            for pool, speed in speeds.items()
        }
    }


def gangs_of_models(models: Sequence[str], gangs: IntArray, rows: IntArray) -> dict[str, set[int]]:
    """The gang sizes that occur for each model among these jobs."""
    found: dict[str, set[int]] = {}
    for row, gang in zip(rows.tolist(), gangs[rows].tolist(), strict=True):
        found.setdefault(models[row], set()).add(gang)
    return found


def arrived(
    arrival: FloatArray, at: float | None, rows: IntArray | None = None
) -> tuple[IntArray, float]:
    """The jobs that have arrived by ``at`` in the order of their arrival, and the clock.

    Without ``at`` these are all jobs, and the clock is the first arrival. Jobs of the same time
    stay in the order of the file, as in the simulators of these traces. If ``rows`` is given, only
    these jobs are used.
    """
    rows = np.arange(len(arrival)) if rows is None else rows
    order = rows[np.argsort(arrival[rows], kind="stable")]
    if at is None:
        return order, float(arrival[order[0]])
    return order[arrival[order] <= at], float(at)


@dataclass(frozen=True)
class RecordedJobs:
    """Recorded jobs of a cluster, in any order; arrays over jobs.

    Attributes
    ----------
    arrival, seconds : FloatArray
        Time of the submission on any clock, and seconds that the job ran.
    gpus : IntArray
    ids : sequence of str, optional
    tenant : IntArray, optional
        Row in ``tenants``, -1 for none.
    tenants : tuple of str
    """

    arrival: FloatArray
    seconds: FloatArray
    gpus: IntArray
    ids: Sequence[str] | None = None
    tenant: IntArray | None = None
    tenants: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImportedLog:
    """An instance from a log, and the number of jobs that were left out, by reason."""

    instance: Instance
    left_out: Mapping[str, int] = field(default_factory=dict)


def recorded_instance(
    jobs: RecordedJobs,
    pools: Sequence[Mapping[str, Any]],
    speeds: Speeds | None = None,
    *,
    at: float | None = None,
    name: str,
) -> Instance:
    """Make an instance: a step is a second of the recorded run,
    and every pool makes one step per second.

    Jobs are in the order of their arrival (of equal ones in the order given), on a clock that is 0
    at the first.

    Parameters
    ----------
    jobs : RecordedJobs
        Gangs of at least 1, seconds above 0.
    pools : sequence of pool documents
    speeds : mapping from str to float, optional
        How many times as fast as recorded jobs run in a pool; 1 where left out.
    at : float, optional
        Take the jobs that have arrived by then, s after the first; ``now`` is ``at``. By default
        all jobs, and ``now`` is 0.
    name : str

    Raises
    ------
    InvalidInput
        There are no jobs.
    UsageError
        A speed of an unknown pool, or one that is not above 0.
    """
    # Refuse unknown pools before processing the log
    factors = speeds_of([str(pool["name"]) for pool in pools], speeds)
    if not len(jobs.arrival):
        raise InvalidInput("", "no jobs", "at least one that ran")
    # Times of logs have any origin; the clock of the instance is 0 at the first job
    arrival = jobs.arrival - jobs.arrival.min()
    order, now = arrived(arrival, at)
    return Instance.from_arrays(
        pools=pools,
        workloads={WORKLOAD: recorded_workload(jobs.gpus[order].tolist(), factors)},
        workload=np.zeros(len(order), np.int64),
        gpus=jobs.gpus[order],
        steps=jobs.seconds[order],
        arrival=arrival[order],
        now=now,
        ids=None if jobs.ids is None else [jobs.ids[row] for row in order.tolist()],
        tenant=None if jobs.tenant is None else jobs.tenant[order],
        tenants=[{"name": tenant} for tenant in jobs.tenants],
        name=name,
    )
