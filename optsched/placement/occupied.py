"""GPUs that are in use before anything is placed.

`Occupied` lists them with their holders, which do not move: rows of an allocation, and running jobs
that are in no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray, mask_of, owners
from optsched.arrays.values import cached_property, replace
from optsched.candidates import Classes, JobRows, Slices
from optsched.candidates.held import held_gpus, held_of
from optsched.candidates.resources import Resources
from optsched.instance import Instance
from optsched.instance.cluster import NONE, Cluster
from optsched.instance.reading import show
from optsched.placement.cut_gpus import CutGpus
from optsched.placement.requests import (
    OWN,
    needs_per_gpu,
)
from optsched.placement.shares import FULL

# --- GPUs that are held ----------------------------------------------------------------------

MOST_NAMED = 4
"""Holders of a GPU that a message names."""


@dataclass(frozen=True)
class Occupied:
    """GPUs of S holders that stay where they are, on nodes of any state.

    A node that takes no work keeps its jobs. They do not affect other nodes, except that they use
    part of a resource that several nodes share.

    Attributes
    ----------
    instance : Instance
    job, partner : IntArray, shape (S,)
        Rows of the job table; partner -1 for a job alone, job -1 for GPUs that nobody may have.
    profile : IntArray, shape (S,)
        Profile of its slices (MIG), among those of the pool; `NO_SLICE` for none.
    need : FloatArray, shape (S, 2)
        CPUs and memory (GB) per GPU.
    group_need : FloatArray, shape (S, G)
        Of each renewable resource that belongs to some nodes, per GPU on these nodes.
    gpu : IntArray, shape (F,)
        GPUs that are held, by their number in the cluster (`Cluster.numbering`).
    share : FloatArray, shape (F,)
        The share of each that its holder has, in (0, 1].
    owner : IntArray, shape (F,)
        The holder of each of these GPUs, ascending.
    """

    instance: Instance
    job: IntArray
    partner: IntArray
    profile: IntArray
    need: FloatArray
    group_need: FloatArray
    gpu: IntArray
    share: FloatArray
    owner: IntArray

    def checked(self) -> Occupied:
        """Return self; raise ValueError if a job is listed twice,
        or the shares of a GPU add up to more than 1.
        """
        twice = (np.bincount(self.jobs) > 1).nonzero()[0]
        if len(twice):
            raise ValueError(f"job {self.instance.jobs_table.names[int(twice[0])]} has GPUs twice")
        # The GPUs of a holder are nearly always ascending. Then none is listed twice: no sort is
        # needed.
        rising = (self.gpu[1:] > self.gpu[:-1]) | (self.owner[1:] > self.owner[:-1])
        if not rising.all():
            self._refuse_gpus_listed_twice()
        over = (self.load > FULL).nonzero()[0]
        if len(over):
            gpu = int(over[0])
            holders = [self.named(owner) for owner in self.owner[self.gpu == gpu].tolist()]
            text = ", ".join(holders[:MOST_NAMED])
            text += " and more" if len(holders) > MOST_NAMED else ""
            raise ValueError(
                f"{self.load[gpu]:g} of {self._gpu(gpu)} is held (by {text}), expected at most 1"
            )
        return self

    def _refuse_gpus_listed_twice(self) -> None:
        key = np.sort(self.gpu * (len(self) + 1) + self.owner)
        again = (key[1:] == key[:-1]).nonzero()[0]
        if len(again):
            gpu, owner = divmod(int(key[again[0]]), len(self) + 1)
            raise ValueError(f"{self.named(owner)} has {self._gpu(gpu)} twice")

    @classmethod
    def none(cls, instance: Instance) -> Occupied:
        groups = len(instance.cluster.groups)
        own, group = np.zeros((0, len(OWN))), np.zeros((0, groups))
        nobody, nothing = EMPTY, np.zeros(0)
        return cls(instance, nobody, nobody, nobody, own, group, nobody, nothing, nobody)

    @classmethod
    def of_rows(
        cls,
        classes: Classes,
        rows: JobRows,
        chosen: IntArray,
        gpus: Sequence[Sequence[str]],
    ) -> Occupied:
        """Rows of an allocation, each on the GPUs that its jobs have.

        Parameters
        ----------
        classes : Classes
        rows : JobRows
            The allocation row by row.
        chosen : IntArray, shape (S,)
            Rows that have GPUs.
        gpus : sequence of sequences of str, length S
            ``node/index``.

        Raises
        ------
        ValueError
            The number of GPUs of a row differs from that of its column, one of them is not in its
            pool, a job is listed twice, or the shares of a GPU add up to more than 1.
        """
        chosen = np.asarray(chosen, np.int64)
        job = rows.job[chosen]
        gpu, owner = _gpu_numbers(classes.instance, gpus, job)
        count = np.bincount(owner, minlength=len(chosen))
        _check_gpus_of_columns(classes, rows.column[chosen], job, gpu, count, owner)
        return cls.of_numbers(classes, rows, chosen, gpu, count).checked()

    @classmethod
    def of_numbers(
        cls,
        classes: Classes,
        rows: JobRows,
        chosen: IntArray,
        gpu: IntArray,
        count: IntArray,
    ) -> Occupied:
        """As `of_rows`, but with numbers of GPUs, row by row, and the number that each row has;
        nothing is checked.
        """
        column = rows.column[chosen]
        need, group_need = needs_per_gpu(classes, column)
        owner = owners(count)
        return cls(
            classes.instance,
            rows.job[chosen],
            rows.partner[chosen],
            Slices.of(classes).profile[column],
            need,
            group_need,
            gpu,
            classes.configurations.share[classes.configuration[column]][owner],
            owner,
        )

    def and_also(self, other: Occupied) -> Occupied:
        """All GPUs that are occupied by either of the two, in the same instance.

        Raises
        ------
        ValueError
            A job is in both, or the shares of a GPU add up to more than 1.
        """
        if not len(self) or not len(other):
            return other if len(other) else self
        names = ("job", "partner", "profile", "need", "group_need", "gpu", "share")
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in names
        }
        owner = np.concatenate([self.owner, other.owner + len(self)])
        return replace(self, **joined, owner=owner).checked()

    def part(self, stays: BoolArray) -> Occupied:
        """The holders of a mask of shape (S,)."""
        kept_gpus = stays[self.owner]
        number = stays.cumsum() - 1
        names = ("job", "partner", "profile", "need", "group_need")
        kept = {name: getattr(self, name)[stays] for name in names}
        kept |= {name: getattr(self, name)[kept_gpus] for name in ("gpu", "share")}
        return replace(self, **kept, owner=number[self.owner[kept_gpus]])

    def without(self, jobs: IntArray) -> Occupied:
        """The holders without those whose first job is one of these."""
        return self.part(~np.isin(self.job, jobs))

    def around(self, pool: int) -> Occupied:
        """The holders that can limit a job in a pool:
        they hold GPUs of the pool, or use resources that several nodes share.
        """
        stays = np.asarray(self.group_need.any(axis=1))
        stays[self.owner[self.instance.cluster.numbering.pool[self.node] == pool]] = True
        return self.part(stays)

    def __len__(self) -> int:
        return len(self.job)

    @cached_property
    def load(self) -> FloatArray:
        """Share of every GPU of the cluster that is held."""
        total = np.bincount(
            self.gpu,
            self.share,
            self.instance.cluster.numbering.gpus,
        )
        return np.asarray(total, np.float64)

    @cached_property
    def node(self) -> IntArray:
        """The node of every GPU that is held, by its number in the cluster, shape (F,)."""
        return self.instance.cluster.numbering.node_of(self.gpu)

    def cut_into(self, cut: CutGpus, spot_of: IntArray) -> None:
        """Add the slices of these holders, and their other shares, to the record of some GPUs.

        Parameters
        ----------
        cut : CutGpus
            Changed in place.
        spot_of : IntArray, shape (GPUs of the cluster,)
            Place of each GPU in ``cut.code``, flat; -1 for none.
        """
        pool = self.instance.cluster.numbering.pool[self.node]
        shared = (self.share < 1.0) & (spot_of[self.gpu] >= 0)
        for place in shared.nonzero()[0].tolist():
            owner = self.owner[place]
            spot = spot_of[self.gpu[[place]]]
            cut.add(int(pool[place]), spot, int(self.profile[owner]), float(self.share[place]))

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
        """Amount in use of each renewable resource that belongs to some nodes, shape (G,)."""
        member = self.instance.cluster.members[:, self.node]
        return np.asarray((self.group_need[self.owner].T * member).sum(axis=1))

    def left_of(self, resources: Resources) -> FloatArray:
        """Amount of each resource that the holders leave free, shape (R,).

        Jobs never count for more of a node's CPUs or memory than the node has, and jobs on nodes
        that take no work do not count: the capacities do not include these nodes.
        """
        cluster = self.instance.cluster
        usable = cluster.usable(self.instance.now)
        gpus = np.bincount(self.node, self.share, len(usable))
        # After a node shrank its jobs may need more than it has.
        needed = np.minimum(self.used, cluster.own_capacity)
        used: dict[str, float] = {}
        for suffix, amount in (
            ("", gpus),
            *((f".{name}", needed[:, place]) for place, name in enumerate(OWN)),
        ):
            pool_of_node = cluster.numbering.pool
            total = np.bincount(pool_of_node, np.where(usable, amount, 0.0), len(cluster.pools))
            names = [pool.name + suffix for pool in cluster.pools]
            used.update(zip(names, total.tolist(), strict=True))
        groups = [group.name for group in cluster.groups]
        used.update(zip(groups, self.group_used.tolist(), strict=True))
        held = [used.get(name, 0.0) for name in resources.names]
        return np.asarray(resources.capacity - held, np.float64)

    @property
    def jobs(self) -> IntArray:
        """Rows of all of these jobs in the job table; a holder without a job has none."""
        jobs = np.concatenate([self.job, self.partner])
        return jobs[jobs >= 0]

    def nodes_of(self, jobs: IntArray) -> IntArray:
        """Nodes of the cluster on which any of these jobs has GPUs."""
        holds = np.isin(self.job, jobs) | np.isin(self.partner, jobs)
        return np.unique(self.node[holds[self.owner]])

    def named(self, holder: int) -> str:
        """``job a``, or ``jobs a and b``."""
        names = self.instance.jobs_table.names
        first, partner = names[int(self.job[holder])], int(self.partner[holder])
        return f"job {first}" if partner < 0 else f"jobs {first} and {names[partner]}"

    def _gpu(self, number: int) -> str:
        return self.instance.cluster.numbering.gpu_name(number)


def refuse_placed_twice(occupied: Occupied, jobs: IntArray) -> None:
    """Raise ValueError where one of these jobs, which are to be placed, already has GPUs."""
    names = occupied.instance.jobs_table.names
    placed = mask_of(occupied.jobs, len(names))
    placed_twice = jobs[placed[jobs]]
    if len(placed_twice):
        raise ValueError(f"job {names[int(placed_twice[0])]} has GPUs and is to be placed as well")


def _check_gpus_of_columns(
    classes: Classes,
    column: IntArray,
    job: IntArray,
    gpu: IntArray,
    count: IntArray,
    owner: IntArray,
) -> None:
    """Raise ValueError where a row has another number of GPUs than its column, or one of another
    pool.
    """
    instance = classes.instance
    names = instance.jobs_table.names
    wrong_count = (count != classes.gpus[column]).nonzero()[0]
    if len(wrong_count):
        holder = int(wrong_count[0])
        wanted = classes.gpus[column[holder]]
        text = f"job {names[int(job[holder])]} has {count[holder]} GPUs"
        raise ValueError(f"{text}, expected the {wanted} of its row")
    numbering = instance.cluster.numbering
    pool = classes.pool[column]
    wrong_pool = (numbering.pool[numbering.node_of(gpu)] != pool[owner]).nonzero()[0]
    if len(wrong_pool):
        first = int(wrong_pool[0])
        holder = int(owner[first])
        name = numbering.gpu_name(int(gpu[first]))
        wanted = instance.cluster.pools[int(pool[holder])].name
        text = f"job {names[int(job[holder])]} has {show(name)}"
        raise ValueError(f"{text}, expected GPUs of pool {show(wanted)}")


def _gpu_numbers(
    instance: Instance, gpus: Sequence[Sequence[str]], job: IntArray
) -> tuple[IntArray, IntArray]:
    """Numbers of GPUs, and the holder of each."""
    if len(gpus) != len(job):
        raise ValueError(
            f"gpus: found {len(gpus)} entries, expected {len(job)}, one for each holder"
        )
    gpu = instance.cluster.numbering.numbers(chain.from_iterable(gpus))
    owner = owners(np.array(list(map(len, gpus)), np.int64))
    wrong = (gpu == NONE).nonzero()[0]
    if len(wrong):
        name = next(islice(chain.from_iterable(gpus), int(wrong[0]), None))
        holder = instance.jobs_table.names[int(job[owner[wrong[0]]])]
        raise ValueError(
            f"job {holder} has {show(name)}, expected a GPU of the cluster, written node/index"
        )
    return gpu, owner


# --- what running jobs hold ------------------------------------------------------------------


def without_held(instance: Instance, cluster: Cluster, jobs: IntArray, option: IntArray) -> Cluster:
    """The cluster whose renewable resources that belong to no nodes are reduced
    by the amounts that these running jobs hold.
    """
    spread = [item for item in cluster.resources if item.nodes is None and item.kind == "renewable"]
    if not len(jobs) or not spread:
        return cluster
    table = instance.jobs_table
    running = [table.running[job] for job in jobs.tolist()]
    count, pool = np.array([(len(gpus), row) for row, gpus, _ in running]).T
    _, per_gpu = held_of(instance, jobs, option, [item.name for item in spread])
    # An option states what it uses, also of a resource of another pool.
    stated = table.options[jobs] >= 0
    left = {}
    for item, need in zip(spread, per_gpu.T, strict=True):
        used = need * count
        if item.pool is not None:
            used = used[stated | (pool == cluster.pool_index[item.pool])]
        left[item.name] = item._replace(capacity=max(item.capacity - float(used.sum()), 0.0))
    resources = tuple(left.get(item.name, item) for item in cluster.resources)
    return replace(cluster, resources=resources)


def occupied_by(instance: Instance, jobs: IntArray, option: IntArray | None = None) -> Occupied:
    """Running jobs that stay where they are and are in no row of an allocation.

    Jobs that share a GPU have equal parts of it, unless their options state their shares.

    Parameters
    ----------
    instance : Instance
    jobs : IntArray, shape (S,)
        Rows of the job table.
    option : IntArray, shape (all jobs,), optional
        The option in which each job of the table runs, -1 where that is not known; by default it is
        known of none (`held_of`).
    """
    if not len(jobs):
        return Occupied.none(instance)
    held = held_gpus(instance, jobs, instance.cluster.node_resources, option)
    alone = np.full(len(jobs), NONE, np.int64)
    of_node, of_group = held.need[:, : len(OWN)], held.need[:, len(OWN) :]
    return Occupied(
        instance, jobs, alone, held.profile, of_node, of_group, held.gpu, held.share, held.owner
    ).checked()


def crowded(instance: Instance, option: IntArray) -> BoolArray:
    """Mask of the jobs that run on nodes with fewer CPUs, less memory or less of another resource
    than the jobs there need, as happens when nodes shrink.
    """
    table = instance.jobs_table
    hit = np.zeros(len(table), bool)
    # Most instances state no needs. Then no node can be short of anything.
    demanding = instance.workloads.demand or instance.options.needs
    if not table.running or not demanding:
        return hit
    jobs = table.places.job
    occupied = occupied_by(instance, jobs, option)
    node = occupied.node
    owner = occupied.owner
    short = occupied.used > instance.cluster.own_capacity * FULL
    needs_it = (occupied.need[owner] > 0) & short[node]
    capacity = np.array([group.capacity for group in instance.cluster.groups])
    group_short = occupied.group_used > capacity * FULL
    on_short_group = instance.cluster.members[:, node].T & group_short
    needs_group = (occupied.group_need[owner] > 0) & on_short_group
    hit[jobs[owner[needs_it.any(axis=1) | needs_group.any(axis=1)]]] = True
    return hit
