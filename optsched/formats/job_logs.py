"""Logs of clusters as arrays: when jobs came, on how many GPUs they ran and for how long, but not at which rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.errors import InvalidInput
from optsched.formats.recorded import recorded_workload, speeds_of
from optsched.instance import Instance

WORKLOAD = "recorded"
"""Name of the one workload of all jobs."""


@dataclass(frozen=True)
class JobLog:
    """Jobs as a cluster recorded them, in any order; arrays over jobs.

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
    """An instance made of a log, and how many of its jobs were left out, by reason."""

    instance: Instance
    left_out: Mapping[str, int] = field(default_factory=dict)


def recorded_instance(
    jobs: JobLog,
    pools: Sequence[Mapping[str, Any]],
    speed: Mapping[str, float] | None = None,
    *,
    at: float | None = None,
    name: str,
) -> Instance:
    """Make an instance: a step is a second of the recorded run, and every pool makes one step per second.

    Jobs stand in the order of their arrival (of equal ones in the order given), on a clock that is 0 at the first.

    Parameters
    ----------
    jobs : JobLog
        Gangs of at least 1, seconds above 0.
    pools : sequence of pool documents
    speed : mapping from str to float, optional
        How many times as fast as recorded jobs run in a pool; 1 where left out.
    at : float, optional
        Take the jobs that have arrived by then, s after the first; ``now`` is ``at``. By default all jobs, and ``now``
        is 0.
    name : str

    Raises
    ------
    InvalidInput
        There are no jobs.
    UsageError
        A speed of an unknown pool, or one that is not above 0.
    """
    factors = speeds_of([str(pool["name"]) for pool in pools], speed)
    if not len(jobs.arrival):
        raise InvalidInput("", "no jobs", "at least one that ran")
    order = np.argsort(jobs.arrival, kind="stable")
    arrival = jobs.arrival[order] - jobs.arrival.min()
    if at is not None:
        order, arrival = order[arrival <= at], arrival[arrival <= at]
    return Instance.from_arrays(
        pools=pools,
        workloads={WORKLOAD: recorded_workload(jobs.gpus[order].tolist(), factors)},
        workload=np.zeros(len(order), np.int64),
        gpus=jobs.gpus[order],
        steps=jobs.seconds[order],
        arrival=arrival,
        now=0.0 if at is None else at,
        ids=None if jobs.ids is None else [jobs.ids[row] for row in order.tolist()],
        tenant=None if jobs.tenant is None else jobs.tenant[order],
        tenants=[{"name": tenant} for tenant in jobs.tenants],
        name=name,
    )
