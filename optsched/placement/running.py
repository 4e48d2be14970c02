"""What runs now, as arrays over all jobs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optsched.arrays import BoolArray, IntArray
from optsched.instance import Instance
from optsched.instance.documents import NODE_STATES

DOWN = NODE_STATES.index("down")


@dataclass(frozen=True)
class Running:
    """What runs now; arrays of shape (jobs,).

    Attributes
    ----------
    pool, gpus, nodes : IntArray
        Pool, GPUs and nodes that each job holds; -1, 0 and 0 for one that does not run.
    lost : BoolArray
        It holds a GPU of a node that is down.
    leaves : BoolArray
        It holds a GPU of a node that takes no more work: it drains, is reserved, or not available.
    """

    pool: IntArray
    gpus: IntArray
    nodes: IntArray
    lost: BoolArray
    leaves: BoolArray

    @classmethod
    def of(cls, instance: Instance) -> Running:
        """What runs in an instance."""
        table, cluster, now = instance.jobs_table, instance.cluster, instance.now
        count = len(table)
        pool, gpus, nodes = (
            np.full(count, -1, np.int64),
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
        )
        lost, leaves = np.zeros(count, bool), np.zeros(count, bool)
        places, numbering = table.places, cluster.numbering
        pool[places.job], gpus[places.job] = places.pool, places.length
        owner = np.repeat(places.job, places.length)
        node = numbering.node_of(places.numbers(numbering))
        state = np.concatenate([*(p.node_state for p in cluster.pools), np.zeros(0, np.int64)])
        usable = np.concatenate([*(p.usable(now) for p in cluster.pools), np.zeros(0, bool)])
        lost[owner[state[node] == DOWN]] = True
        leaves[owner[~usable[node]]] = True
        both = owner * max(numbering.nodes, 1) + node
        both = both if (both[1:] >= both[:-1]).all() else np.sort(both)
        once = both[np.concatenate([both[:1] >= 0, both[1:] != both[:-1]])] // max(
            numbering.nodes, 1
        )
        nodes += np.bincount(once, minlength=count)
        return cls(pool, gpus, nodes, lost, leaves)

    @property
    def runs(self) -> BoolArray:
        """Mask of the jobs that run."""
        return self.pool >= 0

    def stays(self, preemptible: BoolArray) -> BoolArray:
        """Mask of the jobs that keep their GPUs whatever happens: they run and cannot be preempted."""
        return self.runs & ~preemptible & ~self.lost
