"""What stands on GPUs and stays there, as arrays: rows of the allocation, and jobs that are in no program any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.candidates import Classes, JobRows
from optsched.candidates.resources import Resources
from optsched.instance import Instance
from optsched.instance.cluster import NONE
from optsched.instance.reading import listed, show
from optsched.placement.needs import OWN, members, needs_per_gpu, own_capacity, renewable_groups

SLACK = 1e-9
"""Slack of the shares of one GPU."""
MOST_NAMED = 4
"""Holders of a GPU that a message names."""


@dataclass(frozen=True)
class Standing:
    """S holders of GPUs that stay where they are, on nodes of any state.

    A node that takes no work keeps what stands on it, and that is in nobody's way on other nodes;
    only of a resource that both belong to it uses its part.

    Attributes
    ----------
    instance : Instance
    job, partner : IntArray, shape (S,)
        Rows of the job table; -1 for a job that is not in it, and for the partner of a job alone.
    share : FloatArray, shape (S,)
        Share of each of its GPUs, in (0, 1].
    need : FloatArray, shape (S, 2)
        CPUs and memory (GB) per GPU.
    group_need : FloatArray, shape (S, G)
        Of each renewable resource that belongs to some nodes, per GPU on these nodes.
    gpu : IntArray, shape (F,)
        GPUs that are held, by their number in the cluster (`Cluster.numbering`).
    owner : IntArray, shape (F,)
        Who holds each of them, ascending.

    Raises
    ------
    ValueError
        A job stands twice, or GPUs are held by more than they can be.
    """

    instance: Instance
    job: IntArray
    partner: IntArray
    share: FloatArray
    need: FloatArray
    group_need: FloatArray
    gpu: IntArray
    owner: IntArray

    def __post_init__(self) -> None:
        jobs = np.sort(self.jobs)
        again = np.flatnonzero(jobs[1:] == jobs[:-1])
        if len(again):
            raise ValueError(
                f"job {self.instance.jobs_table.names[int(jobs[again[0]])]} stands twice"
            )
        key = np.sort(self.gpu * (len(self) + 1) + self.owner)
        again = np.flatnonzero(key[1:] == key[:-1])
        if len(again):
            gpu, owner = divmod(int(key[again[0]]), len(self) + 1)
            raise ValueError(f"{self.named(owner)} stands twice on {self._gpu(gpu)}")
        over = np.flatnonzero(self.load > 1 + SLACK)
        if len(over):
            gpu = int(over[0])
            holders = [self.named(owner) for owner in self.owner[self.gpu == gpu].tolist()]
            text = ", ".join(holders[:MOST_NAMED]) + (
                " and more" if len(holders) > MOST_NAMED else ""
            )
            raise ValueError(
                f"{self.load[gpu]:g} of {self._gpu(gpu)} is held (by {text}), expected at most 1"
            )

    @classmethod
    def none(cls, instance: Instance) -> Standing:
        return cls.of_jobs(instance, np.zeros(0, np.int64), ())

    @classmethod
    def of_rows(
        cls, classes: Classes, rows: JobRows, chosen: IntArray, gpus: Sequence[Sequence[str]]
    ) -> Standing:
        """Rows of an allocation, each on the GPUs that its jobs have.

        Parameters
        ----------
        classes : Classes
        rows : JobRows
            The allocation row by row.
        chosen : IntArray, shape (S,)
            Rows that stand.
        gpus : sequence of sequences of str, length S
            ``node/index``.

        Raises
        ------
        ValueError
            A row has not as many GPUs as its column, or one that its pool has not; see also
            `Standing`.
        """
        chosen = np.asarray(chosen, np.int64)
        gpu, owner = _numbered(classes.instance, gpus, rows.job[chosen])
        return cls.of_numbers(classes, rows, chosen, gpu, np.bincount(owner, minlength=len(chosen)))

    @classmethod
    def of_numbers(
        cls, classes: Classes, rows: JobRows, chosen: IntArray, gpu: IntArray, count: IntArray
    ) -> Standing:
        """The same by the numbers of the GPUs, row by row, and how many each row has."""
        column = rows.column[chosen]
        instance = classes.instance
        need, group_need = needs_per_gpu(classes, column)
        owner = np.repeat(np.arange(len(chosen), dtype=np.int64), count)
        wrong = np.flatnonzero(count != classes.gpus[column])
        if len(wrong):
            s = int(wrong[0])
            text = f"{_named(instance, rows.job[chosen], s)} stands on {count[s]} GPUs"
            raise ValueError(f"{text}, expected the {classes.gpus[column[s]]} of its row")
        numbering = instance.cluster.numbering
        wrong = np.flatnonzero(
            numbering.pool[numbering.node_of(gpu)] != classes.pool[column[owner]]
        )
        if len(wrong):
            s = int(owner[wrong[0]])
            pool = int(classes.pool[column[owner[wrong[0]]]])
            text = f"{_named(instance, rows.job[chosen], s)} stands on {show(numbering.gpu_name(int(gpu[wrong[0]])))}"
            raise ValueError(
                f"{text}, expected GPUs of pool {show(instance.cluster.pools[pool].name)}"
            )
        share = classes.configurations.share[classes.configuration[column]]
        return cls(
            instance, rows.job[chosen], rows.partner[chosen], share, need, group_need, gpu, owner
        )

    @classmethod
    def of_jobs(
        cls,
        instance: Instance,
        jobs: IntArray,
        gpus: Sequence[Sequence[str]],
        *,
        share: FloatArray | float = 1.0,
        needs: Mapping[str, FloatArray | float] | None = None,
    ) -> Standing:
        """Jobs that no allocation has, with what they need.

        Parameters
        ----------
        instance : Instance
        jobs : IntArray, shape (S,)
            Rows of the job table, -1 for a job that is not in it.
        gpus : sequence of sequences of str, length S
            ``node/index``.
        share : FloatArray, shape (S,), or float
            Share of each GPU, in (0, 1].
        needs : mapping of str to FloatArray of shape (S,) or float, optional
            What each needs per GPU: ``cpu``, ``memory`` (GB), or a renewable resource of some
            nodes.

        Raises
        ------
        ValueError
            A share, a need or its name is wrong; see also `Standing`.
        """
        job = np.asarray(jobs, np.int64)
        names = (*OWN, *(group.name for group in renewable_groups(instance)))
        need = np.zeros((len(job), len(names)))
        for name, amount in (needs or {}).items():
            if name not in names:
                raise ValueError(f"needs: found {show(name)}, expected one of {listed(names)}")
            need[:, names.index(name)] = amount
        shares = np.broadcast_to(np.asarray(share, np.float64), len(job))
        wrong = np.flatnonzero(~((shares > 0) & (shares <= 1)))
        if len(wrong):
            raise ValueError(
                f"share[{wrong[0]}]: found {shares[wrong[0]]:g}, expected a number above 0, at most 1"
            )
        wrong = np.flatnonzero(~((need >= 0) & (need < np.inf)).all(axis=1))
        if len(wrong):
            raise ValueError(
                f"needs: found {need[wrong[0]].tolist()} of job {wrong[0]}, expected numbers from 0 on"
            )
        gpu, owner = _numbered(instance, gpus, job)
        partner = np.full(len(job), NONE, np.int64)
        return cls(
            instance, job, partner, shares, need[:, : len(OWN)], need[:, len(OWN) :], gpu, owner
        )

    def and_also(self, other: Standing) -> Standing:
        """What stands together with what else stands in the same instance."""
        if not len(self) or not len(other):
            return other if len(other) else self
        names = ("job", "partner", "share", "need", "group_need", "gpu")
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in names
        }
        return replace(self, **joined, owner=np.concatenate([self.owner, other.owner + len(self)]))

    def __len__(self) -> int:
        return len(self.job)

    @cached_property
    def load(self) -> FloatArray:
        """Share of every GPU of the cluster that is held."""
        total = np.bincount(self.gpu, self.share[self.owner], self.instance.cluster.numbering.gpus)
        return np.asarray(total, np.float64)

    @cached_property
    def node(self) -> IntArray:
        """The node of every GPU that is held, by its number in the cluster, shape (F,)."""
        return self.instance.cluster.numbering.node_of(self.gpu)

    @cached_property
    def used(self) -> FloatArray:
        """CPUs and memory (GB) that are in use on every node of the cluster, shape (nodes, 2)."""
        total = np.zeros((self.instance.cluster.numbering.nodes, len(OWN)))
        for place in np.flatnonzero(self.need.any(axis=0)).tolist():
            amount = self.need[self.owner, place]
            total[:, place] = np.bincount(self.node, amount, len(total))
        return total

    @cached_property
    def group_used(self) -> FloatArray:
        """What is in use of each renewable resource that belongs to some nodes, shape (G,)."""
        member = members(self.instance)[:, self.node]
        return np.asarray((self.group_need[self.owner].T * member).sum(axis=1))

    def left_of(self, resources: Resources) -> FloatArray:
        """What is left of the capacities of resources, shape (R,).

        Where a node has less than its jobs need, they hold what it has, and nothing of other nodes;
        on nodes that take no work they hold nothing that counts.
        """
        cluster = self.instance.cluster
        now = self.instance.now
        usable = np.concatenate([pool.usable(now) for pool in cluster.pools])
        gpus = np.bincount(self.node, self.share[self.owner], len(usable))
        own = np.minimum(self.used, own_capacity(self.instance))
        used: dict[str, float] = {}
        for suffix, amount in (
            ("", gpus),
            *((f".{name}", own[:, at]) for at, name in enumerate(OWN)),
        ):
            pool_of_node = cluster.numbering.pool
            total = np.bincount(pool_of_node, np.where(usable, amount, 0.0), len(cluster.pools))
            names = [pool.name + suffix for pool in cluster.pools]
            used.update(zip(names, total.tolist(), strict=True))
        groups = [group.name for group in renewable_groups(self.instance)]
        used.update(zip(groups, self.group_used.tolist(), strict=True))
        held = [used.get(name, 0.0) for name in resources.names]
        return np.asarray(resources.capacity - held, np.float64)

    @property
    def jobs(self) -> IntArray:
        """Rows of all jobs that stand and are in the job table."""
        jobs = np.concatenate([self.job, self.partner])
        return jobs[jobs >= 0]

    def nodes_of(self, jobs: IntArray) -> IntArray:
        """Nodes of the cluster on which any of these jobs stands."""
        mine = np.isin(self.job, jobs) | np.isin(self.partner, jobs)
        return np.unique(self.node[mine[self.owner]])

    def named(self, holder: int) -> str:
        """``job a``, ``jobs a and b``, or the number of a job that is not in the job table."""
        partner = int(self.partner[holder])
        names = self.instance.jobs_table.names
        if partner >= 0:
            return f"jobs {names[int(self.job[holder])]} and {names[partner]}"
        return _named(self.instance, self.job, holder)

    def _gpu(self, number: int) -> str:
        return self.instance.cluster.numbering.gpu_name(number)


def refuse_standing(standing: Standing, jobs: IntArray) -> None:
    """Raise ValueError where one of these jobs, which are to be placed, stands already."""
    names = standing.instance.jobs_table.names
    stands = np.zeros(len(names), bool)
    stands[standing.jobs] = True
    both = jobs[stands[jobs]]
    if len(both):
        raise ValueError(f"job {names[int(both[0])]} stands and is to be placed as well")


def _named(instance: Instance, job: IntArray, holder: int) -> str:
    row = int(job[holder])
    return (
        f"job {instance.jobs_table.names[row]}" if row >= 0 else f"job {holder} of those that stand"
    )


def _numbered(
    instance: Instance, gpus: Sequence[Sequence[str]], job: IntArray
) -> tuple[IntArray, IntArray]:
    """Numbers of GPUs, and who holds each."""
    if len(gpus) != len(job):
        raise ValueError(
            f"gpus: found {len(gpus)} entries, expected {len(job)}, one for each that stands"
        )
    gpu = instance.cluster.numbering.numbers(chain.from_iterable(gpus))
    owner = np.repeat(np.arange(len(job), dtype=np.int64), np.array(list(map(len, gpus)), np.int64))
    wrong = np.flatnonzero(gpu == NONE)
    if len(wrong):
        name = next(
            name for place, name in enumerate(chain.from_iterable(gpus)) if place == wrong[0]
        )
        text = _named(instance, job, int(owner[wrong[0]]))
        raise ValueError(
            f"{text} stands on {show(name)}, expected a GPU of the cluster, written node/index"
        )
    return gpu, owner
