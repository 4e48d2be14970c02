"""GPUs one by one: when each is free, and those that are free at the same time put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.instance import Instance
from optsched.instance.cluster import UP


@dataclass(frozen=True)
class Machines:
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
    def of(cls, instance: Instance, busy: Mapping[int, float]) -> Machines:
        """The GPUs of nodes that are up or will be available, each free when its node is and who runs there has ended.

        Parameters
        ----------
        instance : Instance
        busy : mapping
            Seconds from now until a job that keeps its GPUs has ended, by row of the job table.
        """
        now, pools = instance.now, instance.cluster.pools
        free: list[dict[str, float]] = []
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
                if (
                    gpu in free[row]
                ):  # a job may end on a node that takes no more work: that is no machine
                    free[row][gpu] = max(free[row][gpu], seconds)
        groups = [np.unique(list(of_pool.values()), return_counts=True) for of_pool in free]
        return cls(
            np.repeat(np.arange(len(pools), dtype=np.int64), [len(times) for times, _ in groups]),
            np.concatenate([np.zeros(0), *(times for times, _ in groups)]).astype(np.float64),
            np.concatenate([np.zeros(0), *(counts for _, counts in groups)]).astype(np.int64),
        )
