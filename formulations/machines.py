"""GPUs one by one: when each is free, and the order of jobs on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray, IntArray, owners
from optsched.candidates import Classes
from optsched.instance import Instance
from optsched.instance.cluster import UP
from optsched.solution import Schedule


@dataclass(frozen=True)
class FreeMachines:
    """Groups of machines (GPUs) that are alike: of one pool, and free from the same time on.

    Attributes
    ----------
    pool : IntArray, shape (G,)
        Increasing.
    free : FloatArray, shape (G,)
        Seconds after now; 0 for machines that are free now. Increasing in each pool.
    count : IntArray, shape (G,)
        N_g.
    """

    pool: IntArray
    free: FloatArray
    count: IntArray

    def __len__(self) -> int:
        return len(self.pool)

    @property
    def free_now(self) -> int:
        """How many machines are free now."""
        return int(self.count[self.free == 0].sum())

    @classmethod
    def of(cls, instance: Instance, busy: Mapping[int, float]) -> FreeMachines:
        """The GPUs of nodes that are up or will be available,
        each free when its node is, and the job that runs there has ended.

        Parameters
        ----------
        instance : Instance
        busy : mapping
            Seconds from now until a job that keeps its GPUs has ended, by row of the job table.
        """
        now, pools = instance.now, instance.cluster.pools
        free = []
        for pool in pools:
            up = np.flatnonzero(pool.node_state == UP).tolist()
            opens = np.maximum(pool.node_available_from - now, 0.0).tolist()
            free.append(
                {
                    f"{pool.node_name(node)}/{gpu}": opens[node]
                    for node in up
                    for gpu in range(int(pool.node_gpus[node]))
                }
            )
        for job, seconds in busy.items():
            row, gpus, _ = instance.jobs_table.running[job]
            for gpu in gpus:
                # A job may end on a node that takes no more work: that is no machine.
                if gpu in free[row]:
                    free[row][gpu] = max(free[row][gpu], seconds)
        groups = [np.unique(list(of_pool.values()), return_counts=True) for of_pool in free]
        return cls(
            owners([len(times) for times, _ in groups]),
            np.concatenate([np.zeros(0), *(times for times, _ in groups)]).astype(np.float64),
            np.concatenate([np.zeros(0), *(counts for _, counts in groups)]).astype(np.int64),
        )


def rank(group: IntArray) -> IntArray:
    """0, 1, 2, ... inside each group, in order of appearance."""
    order = np.argsort(group, kind="stable")
    number = np.empty(len(group), np.int64)
    number[order] = np.arange(len(group)) - np.searchsorted(group[order], group[order])
    return number


def place_in(columns: IntArray, schedule: Schedule, wrong: str) -> IntArray:
    """Place of the column of each stretch among columns, which ascend, shape (S,); raises
    ValueError with what is ``wrong`` where one is not among them.
    """
    if not np.isin(schedule.column, columns).all():
        raise ValueError(f"a job runs in a configuration {wrong}")
    return np.searchsorted(columns, schedule.column)


def check_each_once(C: Classes, schedule: Schedule) -> None:
    """Raise ValueError for a job of the program that does not run once."""
    names = C.instance.jobs_table.names
    times = np.bincount(schedule.job, minlength=len(names))
    odd = np.flatnonzero((C.of_job >= 0) & (times != 1))
    if len(odd):
        raise ValueError(f"job {names[int(odd[0])]} runs {times[odd[0]]} times, expected once")
