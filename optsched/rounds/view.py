"""The instance as it is in the coming round."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from optsched.arrays import BoolArray, IntArray
from optsched.instance import Instance
from optsched.instance.cluster import Cluster
from optsched.placement.standing import Standing
from optsched.rounds.state import RoundState, Running, cluster_in_round


@dataclass(frozen=True)
class View:
    """What a round is planned for.

    Attributes
    ----------
    instance : Instance
        Reserved nodes take no work; deadlines that have passed are gone.
    running : Running
    must : BoolArray, shape (jobs,)
        Jobs that run on whatever happens: they cannot be preempted.
    outside : BoolArray, shape (jobs,)
        Those of them that hold GPUs of nodes that take no more work.
    awaits : BoolArray, shape (jobs,)
        Jobs whose predecessors are not done.
    notices : tuple of str
    """

    instance: Instance
    running: Running
    must: BoolArray
    outside: BoolArray
    awaits: BoolArray
    notices: tuple[str, ...]

    @classmethod
    def of(cls, state: RoundState) -> View:
        """The view of a state."""
        given = state.instance
        table = given.jobs_table
        cluster = cluster_in_round(given.cluster, state.reservations, given.now, state.until)
        late = np.flatnonzero((table.deadline <= given.now) & ~table.soft_deadline)
        notices = [
            f"job {table.names[job]} is late: its deadline was {given.now - table.deadline[job]:g} s ago, and it is "
            "held to it no more"
            for job in late.tolist()
        ]
        if len(late):
            deadline = table.deadline.copy()
            deadline[late] = np.inf
            table = replace(table, deadline=deadline)
        running = Running.of(replace(given, cluster=cluster))
        must = running.runs & ~table.preemptible & ~running.lost
        awaits = np.zeros(len(table), bool)
        awaits[[job for job, before in table.after.items() if before]] = True
        instance = replace(given, cluster=cluster, jobs_table=table)
        return cls(instance, running, must, must & running.leaves, awaits & ~must, tuple(notices))

    def standing(self, jobs: IntArray) -> Standing:
        """Running jobs that stay where they are and are in no row of an allocation."""
        table, workloads = self.instance.jobs_table, self.instance.workloads
        demand = [workloads[row].demand if row >= 0 else {} for row in table.workload[jobs].tolist()]
        names = sorted({name for need in demand for name in need} & _of_nodes(self.instance.cluster))
        needs = {name: np.array([need.get(name, 0.0) for need in demand]) for name in names}
        return Standing.of_jobs(self.instance, jobs, [table.running[job][1] for job in jobs.tolist()], needs=needs)


def _of_nodes(cluster: Cluster) -> set[str]:
    """Names of what belongs to nodes: CPUs, memory, and resources of some nodes."""
    groups = {item.name for item in cluster.resources if item.nodes is not None and item.kind == "renewable"}
    return {"cpu", "memory"} | groups
